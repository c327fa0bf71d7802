"""Elements of streams: texts, instants, terms."""
