"""Elements that all look the same, one by one and as columns."""
