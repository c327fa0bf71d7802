"""The engine of continuous queries of all languages: what neither syntax nor policy decides."""
