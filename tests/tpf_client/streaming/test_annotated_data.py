"""Labelled facts in named graphs: each method, place and form of query, against another engine."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.oracle import SolutionBag, bag, select, store_of
from tpf_client import Client, Solution, commands
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings
from tpf_server.store.static.columnar import open_store

EX = "http://example.org/"
NAMING = Naming("http://foreign.test/facts/", "http://foreign.test/data")
HOUR = timedelta(hours=1)
FORMS = {
    "default graph": "SELECT * { ?s :p ?o }",
    "default graph, any predicate": "SELECT * { ?s ?p ?o }",
    "GRAPH ?g": "SELECT * { GRAPH ?g { ?s :p ?o } }",
    "GRAPH ?g, any predicate": "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "GRAPH ?g of no pattern": "SELECT * { GRAPH ?g { } }",
    "GRAPH <g>": "SELECT * { GRAPH :g { ?s :p ?o } }",
    "GRAPH <g>, any predicate": "SELECT * { GRAPH :g { ?s ?p ?o } }",
    "GRAPH of no facts": "SELECT * { GRAPH :none { ?s :p ?o } }",
    "GRAPH of the annotation": "SELECT * { GRAPH :own { ?s :p ?o } }",
    "GRAPH of the annotation, any predicate": "SELECT * { GRAPH :own { ?s ?p ?o } }",
    "FROM": "SELECT * FROM :g FROM :h { ?s :p ?o }",
    "FROM NAMED": "SELECT * FROM NAMED :h { GRAPH ?g { ?s :p ?o } }",
    "both graphs": "SELECT * { ?s :p ?o GRAPH ?g { ?s :p ?x } }",
    "GRAPH from VALUES": "SELECT * { VALUES ?g { :h :none } GRAPH ?g { ?s :p ?x } }",
    "GRAPH in OPTIONAL": "SELECT * { ?s :q ?o OPTIONAL { GRAPH ?g { ?s :p ?x } } }",
    "GRAPH in EXISTS": "SELECT * { ?s :q ?o FILTER EXISTS { GRAPH :g { ?s :p ?x } } }",
    "path": "SELECT * { GRAPH ?g { ?s :p|:q ?o } }",
    "path of any length": "SELECT * { GRAPH ?g { :t :p+ ?o } }",
}


def _facts(labelling: Labelling) -> list[Fact]:
    expires = Expiration(START + HOUR)
    label = expires if labelling == "expiration" else Interval(START - HOUR, START + HOUR)
    s, t, p, q, g, h = (iri(EX + name) for name in "stpqgh")
    return [
        Fact(Quad(s, p, literal("labelled")), label),
        Fact(Quad(s, p, literal("labelled in g"), g), label),
        Fact(Quad(t, p, literal("labelled in h"), h), label),
        Fact(Quad(t, p, s, g), label),
        Fact(Quad(s, q, literal("static"))),
        Fact(Quad(s, q, literal("static in g"), g)),
    ]


@contextmanager
def _client(folder: Path, method: Method, facts: Iterable[Fact], place: str) -> Iterator[Client]:
    """A client of annotated facts, or of live ones in the view of the method."""
    facts = list(facts)
    quads = list(dict.fromkeys(quad for fact in facts for quad in method.encode(fact, NAMING)))
    file, store = folder / "data.nq", folder / "store"
    file.write_text("".join(f"{' '.join(quad).rstrip()} .\n" for quad in quads))
    live = place.startswith("live")
    if live:
        quads = [fact.quad for fact in facts if fact.label is None]
    silent = place == "live, no labels in pages"
    with ExitStack() as stack:
        server = LiveServer(folder, quads, live=live, page_labels=not silent)
        stack.enter_context(server)
        if live:
            server.publish(fact for fact in facts if fact.label)
        if place == "loaded":
            arguments = ["rdf", str(file), "-o", str(store), "--engine", "local", "--quiet"]
            assert commands.run("tpf-load", arguments) == 0
            static = stack.enter_context(open_store(store))
            dataset = OpenDataset(DatasetSettings(name="trains"), static, None)
            server.app = create_app(server.settings, [dataset], server.clock)
        if place == "file":
            client = Client(file, clock=server.clock)
        else:
            client = server.client(f"/{method.name}" if live else "")
        yield stack.enter_context(client)


def _bag(solutions: Iterable[Solution]) -> SolutionBag:
    return bag({f"?{name}": each[name].n3() for name in each} for each in solutions)


def _stream(client: Client, query: str) -> SolutionBag:
    return _bag(next(iter(client.stream(query, until=START))).results)


def _query(client: Client, query: str) -> SolutionBag:
    return _bag(client.select(query))


def _query_at(client: Client, query: str) -> SolutionBag:
    return _bag(client.select(query, at=START))


@pytest.mark.parametrize("place", ["file", "served", "loaded", "live", "live, no labels in pages"])
@pytest.mark.parametrize("labelling", ["expiration", "interval"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_labelled_fact_is_in_its_graph(
    tmp_path: Path, method: Method, labelling: Labelling, place: str
) -> None:
    facts = _facts(labelling)
    own = method.encode(facts[1], NAMING)[0].graph
    oracle = store_of(fact.quad for fact in facts)
    ways = [_stream]
    if place == "file":
        # A server's data are queried as they are.
        ways.append(_query)
    if labelling == "interval" or place not in ("served", "loaded"):
        # Expirations in data do not tell since when facts held.
        ways.append(_query_at)
    wrong = []
    with _client(tmp_path, method, facts, place) as client:
        for name, form in FORMS.items():
            if "annotation" in name and own == facts[1].quad.graph:
                continue
            query = f"PREFIX : <{EX}> {form.replace(':own', own)}"
            expected = bag(select(oracle, query))
            wrong += [(name, way.__name__) for way in ways if way(client, query) != expected]
    assert wrong == []
