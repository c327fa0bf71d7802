"""The fragment server: publishes RDF whose changing facts carry time labels."""
