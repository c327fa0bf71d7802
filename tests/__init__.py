"""The tests mirror the packages.

This file makes ours win over the package `tests` that hydra-python-core installs.
"""
