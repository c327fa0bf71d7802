"""The query streamer: keep a query's answer up to date by reading expired facts again."""
