"""Static data beside streams: graphs, cached sub-queries, and their changes."""
