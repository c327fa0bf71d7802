"""Execution on Spark Structured Streaming; only here the server imports pyspark."""
