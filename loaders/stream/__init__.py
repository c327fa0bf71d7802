"""Arriving data to a server, by Spark Structured Streaming, each exactly once."""
