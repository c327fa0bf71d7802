"""The query streamer: a query's answer kept up to date by asking again when facts expire."""
