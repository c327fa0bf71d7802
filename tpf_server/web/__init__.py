"""The HTTP interface: what is asked for where, and how answers are dressed."""
