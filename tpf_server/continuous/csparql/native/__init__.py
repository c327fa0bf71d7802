"""Execution on the native engine: the incremental dataflow, asked at every instant."""
