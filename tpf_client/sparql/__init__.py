"""Sparql."""
