"""RSP-QL: its syntax, report policies and windows."""
