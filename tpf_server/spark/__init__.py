"""The one start of Spark: for pipelines that load, and for continuous queries that run on it.

Above `annotations`, below everything that has a pipeline. Errors have the root `SparkError`.
"""
