"""Elements of one shape, one by one and as columns."""
