"""Static data beside streams: graphs, sub-queries that are kept, and their changes."""
