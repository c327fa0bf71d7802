"""What a page asks of `tpf_client.tab`, and what it is told, as far as tests compare it."""

import json
from collections import Counter
from typing import Any

from tpf_client import Client, Solutions
from tpf_client.errors import QueryError

ENDS = ("done", "failed", "refused", "words")
"""The events after which there is no other."""


def message(number: int | str, url: str, query: str, mode: str = "once", **more: Any) -> str:
    """The text of a message."""
    return json.dumps({"id": number, "sources": [url], "query": query, "mode": mode, **more})


def answer_of(events: list[dict[str, Any]]) -> object:
    """What the events of a query that is answered once tell."""
    last = events[-1]
    if last["event"] != "done":
        return last["event"]
    told = [each["data"] for each in events if each["event"] == "rows"]
    if "boolean" in told[0]:
        return told[0]["boolean"]
    rows = [row for each in told for row in each["added"]]
    assert len(rows) == last["data"]["rows"]
    return Counter(map(_row, rows))


def answer_here(url: str, query: str) -> object:
    """The same of the client that waits, in this process."""
    with Client(url) as client:
        try:
            found = client.query(query)
        except QueryError:
            return "refused"
        if isinstance(found, Solutions):
            return Counter(_row(row.to_json()) for row in found)
        return found if isinstance(found, bool) else len(found)


def same(found: object, expected: object) -> bool:
    """Whether events tell what `answer_here` does; of a graph, as many triples."""
    if isinstance(expected, int) and not isinstance(expected, bool):
        return isinstance(found, Counter) and found.total() == expected
    return found == expected


def _row(binding: dict[str, Any]) -> str:
    """A row, whatever its blank nodes are called."""
    named = {
        name: "_:" if term["type"] == "bnode" else json.dumps(term, sort_keys=True)
        for name, term in binding.items()
    }
    return json.dumps(named, sort_keys=True)
