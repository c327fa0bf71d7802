"""RDF files of any size into a static store, through Spark."""
