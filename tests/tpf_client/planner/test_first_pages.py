"""What first pages have of keys, where later pages show it otherwise: no solution comes twice."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import requests

from annotations.labels import Fact, Interval
from annotations.terms import Quad, Term, blank_node, iri, literal
from tests.support.live_server import BASE, START, LiveServer
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_client import Client

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

    def serve(data: Iterable[Quad], *, live: bool) -> LiveServer:
        server = {"max_values": request.param, "max_page_size": 10}
        servers.append(LiveServer(tmp_path, data, live=live, page_size=10, server=server))
        return servers[-1]

    yield serve
    for each in servers:
        each.close()


def ask(server: LiveServer, predicate: str, change: Callable[[str, bytes], bytes]) -> list[Any]:
    """Whose values are looked up, where each body is changed by its query."""

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        kept: list[Any] = []
        environ["HTTP_ACCEPT_ENCODING"] = "identity"
        body = b"".join(server.app(environ, cast(Any, lambda *each: kept.extend(each[:2]))))
        start(kept[0], [field for field in kept[1] if field[0] != "Content-Length"])
        return [change(environ["QUERY_STRING"], body)]

    session = requests.Session()
    session.mount(BASE, WsgiAdapter(app))
    query = f"SELECT ?s ?v {{ ?s <{EX}kind> <{EX}few> ; <{EX}{predicate}> ?v }}"
    with Client(server.url, session=session, clock=server.clock, parallelism=0) as client:
        return [row.row for row in client.select(query)]


def test_blank_nodes_that_only_their_page_knows(served: Callable[..., LiveServer]) -> None:
    parts = [quad(n, "part", blank_node(f"x{n}")) for n in range(ALL)]
    server = served(KINDS + parts, live=False)
    seen = []

    def unnamed(_query: str, body: bytes) -> bytes:
        head, *rest = body.split(GENID)
        seen.extend(rest)
        return head + b"".join(b"_:" + each.replace(b">", b"", 1) for each in rest)

    found = ask(server, "part", unnamed)
    assert seen
    assert sorted(subject for subject, _ in found) == [f"<{EX}n{n}>" for n in range(KEYS)]


def test_facts_that_change_before_they_are_looked_up(served: Callable[..., LiveServer]) -> None:
    server = served(KINDS, live=True)
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
