"""Fragments over HTTP: fetch, cache by freshness, and parse pages."""
