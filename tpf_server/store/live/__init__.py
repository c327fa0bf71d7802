"""Labelled facts in a durable log, with an index in the memory of every process."""
