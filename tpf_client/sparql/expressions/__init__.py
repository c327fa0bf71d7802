"""Expressions as closures over solutions."""
