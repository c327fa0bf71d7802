"""What `tpf-query` runs: its commands, the endpoint, and tables."""
