"""Rewrite algebra to algebra."""
