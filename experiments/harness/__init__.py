"""How it is measured: the runner, measured processes and servers, results, the report."""
