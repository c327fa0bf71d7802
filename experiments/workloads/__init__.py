"""Data and queries that experiments generate: the same seed gives the same text."""
