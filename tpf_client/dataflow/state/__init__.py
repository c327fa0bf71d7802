"""The state of operators: groups, aggregates, bags of rows with their indexes."""
