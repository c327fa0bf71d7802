"""C-SPARQL."""
