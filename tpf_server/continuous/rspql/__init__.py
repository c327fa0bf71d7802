"""RSP-QL: named windows over streams, report policies, and stream operators."""
