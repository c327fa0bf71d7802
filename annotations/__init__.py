"""The pure kernel: terms, namespaces, clocks, time labels and annotation methods.

Standard library only. Every other package may import this one; it imports none of them.
"""
