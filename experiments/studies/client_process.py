"""A process that answers queries with our client, so that its CPU can be told from the rest.

A question per line on standard input, ``{"id": …, "query": …, "url": …}``, is answered by a line of
JSON: ``{"id": …, "rows": [[term, …], …], "first": …, "seconds": …, "cpu": …}``, with an ``error``
instead of rows where there is none; ``first`` is when the first row was there. Every question has a
new client, which knows nothing yet.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from rdflib import Graph

from tpf_client import Client
from tpf_client.errors import ClientError
from tpf_client.solutions import Solutions


def _answer(query: str, url: str) -> Iterator[list[str | None]]:
    """The rows of an answer, terms in N-Triples in the order of the variables' names.

    Raises:
        ClientError: there is none.
    """
    with Client(url) as client:
        result = client.query(query)
        if isinstance(result, Solutions):
            names = [f"?{name}" for name in result.variables]
            order = sorted(range(len(names)), key=names.__getitem__)
            for solution in result:
                yield [solution.row[place] for place in order]
        elif isinstance(result, Graph):
            for triple in result:
                yield [term.n3() for term in triple]
        else:
            yield [str(result).lower()]


def main() -> None:
    """Answer questions until standard input ends."""
    for line in sys.stdin:
        question = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        found: dict[str, Any]
        rows: list[list[str | None]] = []
        first: float | None = None
        try:
            for row in _answer(question["query"], question["url"]):
                first = first or time.perf_counter() - wall
                rows.append(row)
            found = {"rows": rows}
        except ClientError as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        found |= {
            "id": question["id"],
            "first": first,
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
