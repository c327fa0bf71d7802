"""Sources of real data: each gives static facts, and where it is a feed, dynamic ones."""
