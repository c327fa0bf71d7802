"""RDF files into a static store, through Spark."""
