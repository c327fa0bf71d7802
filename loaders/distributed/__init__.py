"""The dynamic side of sources on Spark."""
