"""What is read twice of a key, and is not the same then: no solution comes twice."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from annotations.labels import Fact, Interval
from annotations.terms import Quad, Term, blank_node, iri, literal
from tests.support.live_server import BASE, START, LiveServer
from tests.support.wsgi_adapter import WholeAnswer, changing

EX = "http://example.org/"
KEYS, ALL = 5, 200
SLOT = timedelta(seconds=10)
GENID = f"<{BASE}.well-known/genid/trains/".encode()


def quad(number: int, predicate: str, value: Term) -> Quad:
    return Quad(iri(f"{EX}n{number}"), iri(EX + predicate), value)


KINDS = [quad(n, "kind", iri(EX + ("few" if n < KEYS else "rest"))) for n in range(ALL)]


@pytest.fixture(params=[0, 50], ids=["plain", "blocks"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., LiveServer]]:
    servers: list[LiveServer] = []

    def serve(data: Iterable[Quad], *, live: bool, page_labels: bool = True) -> LiveServer:
        server = {"max_values": request.param, "max_page_size": 10}
        servers.append(
            LiveServer(
                tmp_path, data, live=live, page_size=10, server=server, page_labels=page_labels
            )
        )
        return servers[-1]

    yield serve
    for each in servers:
        each.close()


def ask(
    server: LiveServer, predicate: str, change: Callable[[str, bytes], bytes], rest: str = ""
) -> list[Any]:
    """Whose values are looked up, where each body is changed by its query."""

    def changed(environ: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        status, headers, body = answer
        return status, headers, change(environ["QUERY_STRING"], body)

    query = f"SELECT ?s ?v {{ ?s <{EX}kind> <{EX}few> ; <{EX}{predicate}> ?v }} {rest}"
    with server.client(app=changing(server.app, changed)) as client:
        return [row.row for row in client.select(query)]


@pytest.mark.parametrize(("keys", "rest"), [(KEYS, ""), (60, "LIMIT 50"), (60, "LIMIT 200")])
def test_blank_nodes_that_only_their_page_knows(
    served: Callable[..., LiveServer], keys: int, rest: str
) -> None:
    """On the first page; or by their keys first, and then in the whole fragment."""
    data = [quad(n, "part", blank_node(f"x{n}")) for n in range(2 * ALL)]
    data += [quad(n, "kind", iri(EX + ("few" if n < keys else "rest"))) for n in range(2 * ALL)]
    server = served(data, live=False)
    seen = []

    def unnamed(_query: str, body: bytes) -> bytes:
        head, *named = body.split(GENID)
        seen.extend(named)
        return head + b"".join(b"_:" + each.replace(b">", b"", 1) for each in named)

    found = ask(server, "part", unnamed, rest)
    assert seen
    subjects = {subject for subject, _ in found}
    assert subjects <= {f"<{EX}n{n}>" for n in range(keys)}
    assert len(found) == len(subjects) == (50 if rest == "LIMIT 50" else keys)


@pytest.mark.parametrize("page_labels", [True, False], ids=["labels", "no labels"])
def test_facts_that_change_before_they_are_looked_up(
    served: Callable[..., LiveServer], page_labels: bool
) -> None:
    server = served(KINDS, live=True, page_labels=page_labels)
    server.publish(
        Fact(quad(n, "late", literal(str(k))), Interval(START + SLOT * k, START + SLOT * (k + 1)))
        for n in range(ALL)
        for k in range(2)
    )
    asked = []

    def later(query: str, body: bytes) -> bytes:
        if "late" in query:
            asked.append(query)
            # What was just read holds no more when the next page is asked for.
            server.clock.advance_to(START + SLOT)
        return body

    found = ask(server, "late", later)
    assert len(asked) > 1
    assert sorted(found) == [(f"<{EX}n{n}>", '"1"') for n in range(KEYS)]
