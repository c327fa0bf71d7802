"""Fragments."""
