"""The operators: nodes that take changes and give changes."""
