"""RSP-QL: named windows over streams, report policies, and what is streamed of the answers."""
