"""The client: SPARQL 1.1 over Triple Pattern Fragments, once or continuously."""
