"""Static quads in memory-mapped columns: written once, replaced as a whole."""
