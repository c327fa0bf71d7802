"""SERVICE to SPARQL endpoints, beside pyoxigraph over one store that has their data in a graph."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pyoxigraph as ox
import pytest

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Term, iri
from tests.support.live_server import START, LiveServer
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_client import Client
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.errors import SourceError, UnsupportedQueryError
from tpf_client.planner.budget import Allowance

EX = "http://example.org/"
REMOTE = "http://sparql.test/query"
SERVED = "http://served.test/sparql"
NAMES = [Term(f"<{EX}n{n}>") for n in range(60)]
Answer = Callable[[dict[str, Any], Any], Iterable[bytes]]


def random_quads(seed: int, size: int) -> list[Quad]:
    pick = random.Random(seed)
    literals = [Term('"a"'), Term('"b \\"c\\" ?x { }"@en'), Term(f'"5"^^<{EX}t>')]
    return [
        Quad(pick.choice(NAMES), iri(f"{EX}p{pick.randrange(3)}"), pick.choice([*NAMES, *literals]))
        for _ in range(size)
    ]


HERE, THERE = random_quads(1, 150), random_quads(2, 200)


def store_of(quads: Iterable[Quad], graph: str = "") -> ox.Store:
    store = ox.Store()
    add(store, quads, graph)
    return store


def add(store: ox.Store, quads: Iterable[Quad], graph: str = "") -> None:
    lines = "".join(f"{' '.join(quad[:3])} {graph} .\n" for quad in quads)
    store.load(lines.encode(), format=ox.RdfFormat.N_QUADS)


def endpoint_of(store: ox.Store, before: str = "text/html") -> Answer:
    """A SPARQL endpoint as others make them: only questions are answered in RDF."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        query = parse_qs(environ["QUERY_STRING"]).get("query")
        if query is None:
            status = "200 OK" if before else "400 Bad Request"
            start_response(status, [("Content-Type", before or "text/plain")])
            return [b"<html>ask me</html>"]
        found = store.query(query[0])
        assert isinstance(found, ox.QueryTriples)
        start_response("200 OK", [("Content-Type", "text/turtle"), ("Cache-Control", "max-age=5")])
        return [found.serialize(format=ox.RdfFormat.TURTLE) or b""]

    return answer


class World:
    """A server of fragments, and an endpoint."""

    def __init__(self, folder: Path, there: Iterable[Quad] = THERE, before: str = "") -> None:
        self.server = LiveServer(folder, HERE)
        self.there = store_of(there)
        self.log: list[tuple[str, str]] = []
        self.session = self.server.session()
        endpoint = WsgiAdapter(endpoint_of(self.there, before), self.log)
        self.session.mount("http://sparql.test/", endpoint)

    def client(self, **options: Any) -> Client:
        return Client(
            self.server.url, session=self.session, clock=self.server.clock, parallelism=0, **options
        )


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path, before=getattr(request, "param", "text/html"))
    yield made
    made.server.close()


QUERIES = [
    "SELECT * { ?a e:p0 ?b SERVICE <S> { ?b e:p1 ?c } }",
    "SELECT * { SERVICE <S> { ?a e:p0 ?b . ?b e:p1 ?c FILTER(?c != ?a) } }",
    "SELECT * { ?a e:p0 ?b OPTIONAL { SERVICE <S> { ?b e:p1 ?c } } }",
    "SELECT * { SERVICE <S> { ?a ?p e:n3 } }",
    "SELECT * { SERVICE <S> { e:n5 ?p ?o } ?o e:p2 ?x }",
    "SELECT * { SERVICE <S> { ?x ?p ?x } }",
    "SELECT ?p (COUNT(*) AS ?n) { SERVICE <S> { ?s ?p ?o } } GROUP BY ?p",
    "SELECT * { ?a e:p0 ?b MINUS { SERVICE <S> { ?a e:p0 ?c } } }",
    "SELECT * { SERVICE <S> { e:n1 e:p0+ ?o } }",
    'SELECT * { SERVICE <S> { ?s ?p "b \\"c\\" ?x { }"@en } }',
    "SELECT * { ?a e:p1 ?b SERVICE <S> { { ?b e:p0 ?c } UNION { ?b e:p2 ?c } } }",
    "SELECT * { VALUES ?e { <S> } ?a e:p1 ?b SERVICE ?e { ?b e:p0 ?c } }",
    "SELECT * { SERVICE <S> { ?s e:nothing ?o } }",
]


def both(text: str) -> tuple[str, str]:
    """A query for us, and the same for one store that has the other's data in a graph."""
    prefix = f"PREFIX e: <{EX}> "
    local = text.replace("SERVICE <S>", f"GRAPH <{REMOTE}>").replace("SERVICE ?e", "GRAPH ?e")
    return prefix + text.replace("<S>", f"<{REMOTE}>"), prefix + local.replace("<S>", f"<{REMOTE}>")


def expected_of(query: str) -> tuple[list[str], Counter[tuple[str | None, ...]]]:
    """The variables, and the solutions of one store that has the other's data in a graph."""
    everything = store_of(HERE)
    add(everything, THERE, f"<{REMOTE}>")
    solutions = everything.query(query)
    assert isinstance(solutions, ox.QuerySolutions)
    names = [variable.value for variable in solutions.variables]
    rows = (tuple(str(row[n]) if row[n] else None for n in names) for row in solutions)
    return names, Counter(map(_plain, rows))


def found_by(world: World, query: str, names: list[str]) -> Counter[tuple[str | None, ...]]:
    with world.client() as client:
        rows = list(client.select(query))
    return Counter(_plain(tuple(row[n].n3() if n in row else None for n in names)) for row in rows)


@pytest.mark.parametrize("text", QUERIES)
def test_an_endpoint_answers_like_a_graph(world: World, text: str) -> None:
    ours, theirs = both(text)
    names, expected = expected_of(theirs)
    assert found_by(world, ours, names) == expected


@pytest.mark.parametrize(
    ("pattern", "stays"),
    [
        ("SERVICE ?e { ?a e:p0 ?c }", False),
        ("SERVICE SILENT ?e { ?a e:p0 ?c }", True),
        ("OPTIONAL { SERVICE ?e { ?a e:p0 ?c } }", True),
        ("OPTIONAL { SERVICE SILENT ?e { ?a e:p0 ?c } }", True),
        ("MINUS { SERVICE ?e { ?a e:p0 ?c } }", True),
        ("{ SERVICE ?e { ?a e:p0 ?c } } UNION { SERVICE ?e { ?a e:p1 ?c } }", False),
        ("BIND(1/0 AS ?x) SERVICE ?e { ?a e:p0 ?c }", False),
        ("BIND(?e AS ?f) SERVICE ?e { ?a e:p0 ?b } SERVICE ?f { ?b e:p1 ?c }", False),
    ],
)
def test_an_endpoint_that_is_an_error_ends_no_query(
    world: World, pattern: str, stays: bool
) -> None:
    """The other solutions are answered; a service that fails has none, but for a SILENT one."""
    subjects = sorted({quad.subject for quad in THERE})
    good = " ".join(f"({each} <S>)" for each in subjects)
    bad = f"({subjects[0]} 7)"
    text = "SELECT ?a ?u ?b ?c { VALUES (?a ?u) { ROWS } BIND(IRI(?u) AS ?e) PATTERN }"
    text = text.replace("PATTERN", pattern)
    _, theirs = both(text.replace("ROWS", good).replace("SILENT ", ""))
    names, expected = expected_of(theirs.replace("SERVICE ?f", "GRAPH ?f"))
    assert expected
    if stays:
        expected[_plain((subjects[0], '"7"', None, None))] += 1
    ours, _ = both(text.replace("ROWS", f"{good} {bad}"))
    assert found_by(world, ours, names) == expected


def _plain(row: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Integers of two writers."""
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    return tuple(None if each is None else each.replace(integer, "").strip('"') for each in row)


@pytest.mark.parametrize("world", ["text/html", ""], ids=["page", "400"], indirect=True)
def test_keys_are_asked_for_in_blocks(world: World) -> None:
    with world.client() as client:
        assert list(client.select(both(QUERIES[0])[0]))
    keys = {quad.object for quad in HERE if quad.predicate == iri(EX + "p0")}
    blocks = [path for _, path in world.log if "VALUES" in path]
    # What the URL says first, the question whether it is an endpoint, and blocks of 50.
    assert 1 <= len(blocks) <= -(-len(keys) // 50) + 1
    assert len(world.log) <= len(blocks) + 3


def test_what_is_no_endpoint_is_said_as_before(world: World) -> None:
    turtle = WsgiAdapter(_static)
    world.session.mount("http://file.test/", turtle)
    with world.client() as client:
        query = "SELECT * { SERVICE <http://file.test/x> { ?s ?p ?o } }"
        with pytest.raises(SourceError, match="no form"):
            list(client.select(query))
        assert len(list(client.select(query.replace("SERVICE", "SERVICE SILENT")))) == 1


def _static(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """A file, whatever is asked."""
    start_response("200 OK", [("Content-Type", "text/turtle")])
    return [b"<x:a> <x:b> <x:c> ."]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("GRAPH <x:g> { ?s ?p ?o }", "GRAPH"),
        ("GRAPH ?g { ?s ?p ?o }", "GRAPH"),
        ("?s ?p ?o . ?o ?q ?r", "blank node"),
    ],
)
def test_what_would_be_answered_in_part_is_refused(tmp_path: Path, pattern: str, says: str) -> None:
    node, predicate = Term("_:b"), Term("<x:p>")
    quads = [Quad(Term("<x:a>"), predicate, node), Quad(node, predicate, NAMES[0])]
    world = World(tmp_path, quads)
    with world.client() as client:
        with pytest.raises(SourceError, match=says):
            list(client.select(f"SELECT * {{ SERVICE <{REMOTE}> {{ {pattern} }} }}"))
        assert len(list(client.select(f"SELECT * {{ SERVICE <{REMOTE}> {{ ?s ?p ?o }} }}"))) == 2
    world.server.close()


def test_only_what_is_allowed_is_asked(world: World) -> None:
    query = both(QUERIES[0])[0]
    with (
        world.client(services=()) as client,
        pytest.raises(UnsupportedQueryError, match="not allowed"),
    ):
        list(client.select(query))
    assert world.log == []
    with world.client(services=[REMOTE]) as client:
        assert list(client.select(query))


def test_our_own_endpoint_is_one(world: World, tmp_path: Path) -> None:
    with world.client() as inner:
        endpoint = SparqlEndpoint(inner, Allowance(60, 10_000, 2**30), hosts=["served.test"])
        world.session.mount("http://served.test/", WsgiAdapter(endpoint))
        with world.client() as client:
            rows = list(client.select(f"SELECT * {{ SERVICE <{SERVED}> {{ ?s <{EX}p0> ?o }} }}"))
        endpoint.close()
    expected = {(quad.subject, quad.object) for quad in HERE if quad.predicate == iri(EX + "p0")}
    assert {(row["s"].n3(), row["o"].n3()) for row in rows} == expected


def test_an_answer_follows_what_the_endpoint_says(world: World) -> None:
    live = Quad(NAMES[0], iri(EX + "live"), NAMES[1])
    world.server.publish([Fact(live, Expiration(START + timedelta(seconds=30)))])
    renewed = Fact(live, Expiration(START + timedelta(hours=1)))
    new = Quad(NAMES[1], iri(EX + "new"), NAMES[2])
    world.server.clock.schedule(
        START + timedelta(seconds=20),
        lambda: (world.server.publish([renewed]), add(world.there, [new])),
    )
    query = f"SELECT * {{ ?a <{EX}live> ?b SERVICE <{REMOTE}> {{ ?b <{EX}new> ?c }} }}"
    with world.client() as client:
        updates = iter(client.stream(query, static_recheck=10.0))
        assert not next(updates).added
        update = next(updates)
    assert len(update.added) == 1
