"""The pure kernel: terms, clocks, time labels and annotation methods. Standard library only."""
