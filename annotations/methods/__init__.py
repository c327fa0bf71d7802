"""Annotation methods: the ways in which RDF can carry the time label of a fact."""
