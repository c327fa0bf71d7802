"""The tests mirror the packages. (hydra-python-core installs a package ``tests``: ours must win.)"""
