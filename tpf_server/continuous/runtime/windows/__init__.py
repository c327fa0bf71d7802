"""Windows: which elements of a stream a query sees at an instant."""
