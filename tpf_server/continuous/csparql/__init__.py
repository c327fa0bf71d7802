"""C-SPARQL: periodic queries over windows, on the native engine or on Spark."""
