"""What operators remember: groups, aggregates, bags of rows with their indexes."""
