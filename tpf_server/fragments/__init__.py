"""Fragments: request → pattern → fragment → writer → response.

A fragment is a value that is computed once and rendered by any writer.
"""
