"""From algebra to a dataflow."""
