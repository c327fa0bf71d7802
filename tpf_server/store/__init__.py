"""Stores: static quads in memory-mapped columns, labelled facts in a durable log with an index."""
