"""The languages of continuous queries: dialects of one parser, and their policies."""
