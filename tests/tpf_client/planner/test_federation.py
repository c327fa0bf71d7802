"""Several sources as one, and SERVICE to another one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotations.terms import Quad, iri, literal
from tests.support.live_server import BASE, LiveServer
from tpf_client import Client, Solutions
from tpf_client.errors import HttpError, SourceError, UnsupportedQueryError

EX = "http://example.org/"
OTHER = "http://other.test/"
PLAIN = {"max_values": 0, "max_page_size": 10}
PREFIX = f"PREFIX : <{EX}> "


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[LiveServer, LiveServer]]:
    """One knows people, the other cities; both know labels."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    people = [Quad(iri(f"{EX}p{n}"), iri(EX + "lives"), iri(f"{EX}c{n % 7}")) for n in range(40)]
    people += [Quad(iri(f"{EX}p{n}"), iri(EX + "label"), literal(f"p{n}")) for n in range(40)]
    cities = [Quad(iri(f"{EX}c{n}"), iri(EX + "size"), literal(str(n))) for n in range(7)]
    cities += [Quad(iri(f"{EX}c{n}"), iri(EX + "label"), literal(f"c{n}")) for n in range(7)]
    away = {**PLAIN, "base_url": OTHER}
    with (
        LiveServer(tmp_path / "a", people, live=False, page_size=10, server=dict(PLAIN)) as here,
        LiveServer(tmp_path / "b", cities, live=False, page_size=10, server=away) as there,
    ):
        yield here, there


def ask(client: Client, query: str) -> set[tuple[str | None, ...]]:
    answer = client.query(PREFIX + query)
    assert isinstance(answer, Solutions)
    return {row.row for row in answer}


def test_sources_without_matches_are_not_asked_again(
    servers: tuple[LiveServer, LiveServer],
) -> None:
    with servers[0].client("", servers[1]) as client:
        found = ask(client, 'SELECT ?p ?l { ?c :size "3" ; :label ?l . ?p :lives ?c }')
        assert found == {(f"<{EX}p{n}>", '"c3"') for n in range(3, 40, 7)}
        people, cities = ([path for _, path in server.log] for server in servers)
        # The form and a first page of each pattern; what a city is called, and who lives there.
        assert len(people) == 1 + 3 + 2
        assert len(cities) == 1 + 3 + 1
        assert not any("lives" in path and "c3" in path for path in cities)


def test_service(servers: tuple[LiveServer, LiveServer]) -> None:
    here, there = servers
    with here.client(session=here.session(there), allowed_origins=[OTHER]) as client:
        query = f"SELECT ?z {{ :p3 :lives ?c SERVICE <{OTHER}trains> {{ ?c :size ?z }} }}"
        assert ask(client, query) == {('"3"',)}
        silent = query.replace("SERVICE", "SERVICE SILENT")
        assert ask(client, silent) == {('"3"',)}
        for word in ("", "OPTIONAL"):
            service = f"SERVICE %s <{OTHER}gone> {{ ?c :size ?z }}"
            text = f"SELECT ?c ?z {{ :p3 :lives ?c {word} {{ {service} }} }}"
            with pytest.raises(HttpError) as error:
                ask(client, text % "")
            assert error.value.url == f"{OTHER}gone"
            assert ask(client, text % "SILENT") == {(f"<{EX}c3>", None)}
            assert client.estimate(PREFIX + text % "SILENT").facts == 1
            with pytest.raises(HttpError):
                client.estimate(PREFIX + text % "")
        # No request can be sent to the first, nor one so long.
        for endpoint, size in (("urn:x", "3"), (f"{OTHER}trains", "3" * 2**18)):
            text = f'SELECT ?c {{ :p3 :lives ?c SERVICE %s <{endpoint}> {{ ?c :size "{size}" }} }}'
            with pytest.raises(SourceError, match="not a URL that can be asked"):
                ask(client, text % "")
            assert ask(client, text % "SILENT") == {(f"<{EX}c3>",)}


def test_a_service_that_solutions_name(servers: tuple[LiveServer, LiveServer]) -> None:
    """Each endpoint is asked for what its own solutions need; nobody asks those not named."""
    endpoints = f"VALUES (?c ?e) {{ (:c3 <{OTHER}trains>) (:c4 <{BASE}trains>) }}"
    query = f"SELECT ?p ?z {{ ?p :lives ?c {endpoints} SERVICE %s ?e {{ ?c :size ?z }} }}"
    here, there = servers
    with here.client(session=here.session(there)) as client:
        found = ask(client, query % "")
        assert found == {(f"<{EX}p{n}>", '"3"') for n in range(3, 40, 7)}
        # The form, a first page of the pattern, which holds the city.
        assert len(there.log) == 2
        gone = (query % "%s").replace(BASE + "trains", OTHER + "gone")
        with pytest.raises(HttpError) as error:
            ask(client, gone % "")
        assert error.value.url == f"{OTHER}gone"
        others = {(f"<{EX}p{n}>", None) for n in range(4, 40, 7)}
        assert ask(client, gone % "SILENT") == found | others
        unnamed = f"SELECT * {{ SERVICE ?e {{ ?c :size ?z }} OPTIONAL {{ {endpoints} }} }}"
        before = len(here.log)
        with pytest.raises(UnsupportedQueryError, match="nothing before it gives it a value"):
            ask(client, unnamed)
        assert len(here.log) == before


def test_a_silent_service_that_fails_half_way(servers: tuple[LiveServer, LiveServer]) -> None:
    """Its solutions so far do not count; the rest of the query does."""
    here, there = servers
    app = there.app

    def failing(environ, start):
        if "page=2" in environ["QUERY_STRING"]:
            start("404 Gone", [("Content-Type", "text/plain")])
            return [b"gone"]
        return app(environ, start)

    there.app = failing
    with here.client(session=here.session(there)) as client:
        text = f"SELECT ?c ?z {{ :p3 :lives ?c SERVICE %s <{OTHER}trains> {{ ?x ?y ?z }} }}"
        assert ask(client, text % "SILENT") == {(f"<{EX}c3>", None)}
        with pytest.raises(SourceError, match="page=2"):
            ask(client, text % "")
