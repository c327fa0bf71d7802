"""Execution on Spark Structured Streaming; the only place of the server that imports pyspark."""
