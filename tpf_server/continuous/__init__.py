"""Continuous queries: runtime, languages, Spark, and the service of a server."""
