"""The measuring harness: runner, measured processes and servers, results, report."""
