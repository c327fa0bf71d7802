"""Queries that answer at instants: those in C-SPARQL and RSP-QL."""
