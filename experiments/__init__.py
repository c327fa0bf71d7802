"""Experiments: one architecture measured against another."""
