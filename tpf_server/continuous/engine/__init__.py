"""The engine of continuous queries of both languages: what neither syntax nor policy decides."""
