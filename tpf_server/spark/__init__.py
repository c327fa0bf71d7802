"""Start Spark, for loading and for continuous queries. Errors have the root `SparkError`."""
