"""Fragments over HTTP: pages fetched, cached by their freshness, and parsed to values."""
