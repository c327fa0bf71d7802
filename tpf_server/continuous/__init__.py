"""Continuous queries as a service: both engines behind one HTTP interface and one command."""
