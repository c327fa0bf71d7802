"""The engine of continuous queries of all languages, without syntax and policies."""
