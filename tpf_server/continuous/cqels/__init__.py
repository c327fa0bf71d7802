"""Continuous queries over streams of RDF, in CQELS-QL, evaluated natively."""
