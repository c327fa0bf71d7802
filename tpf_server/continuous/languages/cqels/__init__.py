"""CQELS-QL."""
