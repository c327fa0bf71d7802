"""Sources of real data: static facts, and dynamic ones from feeds."""
