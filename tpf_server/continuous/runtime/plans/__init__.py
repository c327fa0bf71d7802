"""From a query to its dataflow, and how queries share plans."""
