"""The measuring harness."""
