"""Annotated facts: each method, place and form of query, against another engine."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Label, Labelling
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.namespaces import (
    DEFAULT_VOCABULARY,
    RDF,
    RDF_OBJECT,
    RDF_REIFIES,
    RDF_TYPE,
    SINGLETON,
    TEMPORAL,
    XSD_INTEGER,
)
from annotations.terms import Quad, Term, Triple, blank_node, iri, literal, triple_term
from tests.support.live_server import START, LiveServer
from tests.support.oracle import SolutionBag, bag, solutions_of, store_of, term_of
from tests.tpf_client.streaming.test_timelines import Row
from tpf_client import Client, commands
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings
from tpf_server.store.static.columnar import open_store

EX = "http://example.org/"
NAMING = Naming("http://foreign.test/facts/", "http://foreign.test/data")
HOUR = timedelta(hours=1)
STATIC = ["file", "served", "loaded", "file, blank nodes", "served, blank nodes"]
PLACES = [*STATIC, "live", "live, no labels in pages"]
PREFIXES = f"PREFIX : <{EX}> PREFIX tmp: <{TEMPORAL}> PREFIX sp: <{SINGLETON}> PREFIX rdf: <{RDF}> "
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
    "object of each kind": "SELECT * { VALUES ?o { 1 :t 'a'@en 'a'@en--ltr } ?s :term ?o }",
    "two labelled patterns": "SELECT * { ?s :term ?o . ?t :same ?o }",
    "path of labelled facts": "SELECT * { ?s :term/^:same ?t }",
    "triple terms": "SELECT * { ?s :term <<( ?a :p ?b )>> }",
    "OPTIONAL": "SELECT * { ?s :term ?o OPTIONAL { ?o :term ?x . ?y :same ?x } }",
    "FILTER": "SELECT * { ?s :term ?o FILTER(ISLITERAL(?o) && ?o != 1) }",
    "NOT EXISTS": "SELECT * { ?s :term ?o FILTER NOT EXISTS { ?o ?y ?x } }",
    "types": "SELECT * { ?s a ?o }",
    "reifications": "SELECT * { ?s rdf:object ?o }",
    "reifiers": "SELECT * { ?s rdf:reifies ?o }",
    "labels": "SELECT * { { ?s tmp:expiration ?o } UNION { ?s tmp:interval ?o } }",
    "FILTER on the predicate": "SELECT * { ?s ?p ?o FILTER(?p IN (tmp:expiration, tmp:final)) }",
    "links": "SELECT * { { ?s tmp:graph ?o } UNION { ?s sp:singletonPropertyOf ?o } }",
    "what is said of an annotation": "SELECT * { ?s :source ?o . ?s ?p ?x }",
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
        *_facts_with_terms(label),
        # These are like parts of annotations, and label nothing.
        Fact(Quad(s, RDF_OBJECT, t), label),
        Fact(Quad(t, RDF_OBJECT, t)),
        Fact(Quad(s, RDF_REIFIES, triple_term(Triple(s, p, t))), label),
        Fact(Quad(t, RDF_REIFIES, triple_term(Triple(s, p, t)))),
        Fact(Quad(s, RDF_TYPE, t), label),
    ]


def _facts_with_terms(label: Label) -> Iterator[Fact]:
    s, t, p = (iri(EX + name) for name in "stp")
    blank = blank_node("b")
    texts = literal("a", "en"), literal("a", "en--ltr"), literal('"\\\n%&é'), literal("")
    terms = (
        *(blank, t, literal("1", datatype=XSD_INTEGER), literal("x", datatype=EX), *texts),
        triple_term(Triple(s, p, literal("a", "en"))),
        triple_term(Triple(blank, p, triple_term(Triple(s, p, blank)))),
    )
    for number, term in enumerate(terms):
        yield Fact(Quad(iri(f"{EX}s{number}"), iri(EX + "term"), term), label)
        yield Fact(Quad(iri(f"{EX}t{number}"), iri(EX + "same"), term), label)
    yield Fact(Quad(blank, iri(EX + "term"), literal("of a blank node")), label)


@contextmanager
def _client(folder: Path, method: Method, facts: Iterable[Fact], place: str) -> Iterator[Client]:
    """A client of annotated facts, or of live ones in the view of the method."""
    facts = list(facts)
    quads = list(dict.fromkeys(quad for fact in facts for quad in method.encode(fact, NAMING)))
    if place.endswith("blank nodes"):
        quads = [Quad(*map(_blank, quad)) for quad in quads]
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
        if place.startswith("file"):
            client = Client(file, clock=server.clock)
        else:
            client = server.client(f"/{method.name}" if live else "")
        yield stack.enter_context(client)


def _blank(term: Term) -> Term:
    """Put blank nodes in the place of minted names, but for properties."""
    return Term(re.sub(rf"<{NAMING.fact_base}(?!property)(\w+)/(\w+)>", r"_:\1\2", term))


def _bag(names: Iterable[str], rows: Iterable[Row]) -> SolutionBag:
    """The solutions, with all blank nodes alike."""
    return bag(
        {
            f"?{name.lstrip('?')}": re.sub(r"_:\w+", "_:b", term)
            for name, term in zip(names, row, strict=True)
            if term is not None
        }
        for row in rows
    )


def _stream(client: Client, query: str) -> SolutionBag:
    update = next(iter(client.stream(query, until=START)))
    return _bag(update.variables, [each.row for each in update.results])


def _query(client: Client, query: str, at: datetime | None = None) -> SolutionBag:
    solutions = client.select(query, at=at)
    return _bag(solutions.variables, [each.row for each in solutions])


def _query_at(client: Client, query: str) -> SolutionBag:
    return _query(client, query, START)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("labelling", ["expiration", "interval"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_annotated_facts_are_found_and_nothing_else(
    tmp_path: Path, method: Method, labelling: Labelling, place: str
) -> None:
    facts = _facts(labelling)
    own = method.encode(facts[1], NAMING)[0].graph
    labels = DEFAULT_VOCABULARY.expiration, DEFAULT_VOCABULARY.interval
    node = next(each for each in method.encode(facts[0], NAMING) if each.predicate in labels)
    facts.append(Fact(Quad(node.subject, iri(EX + "source"), literal("a sensor"))))
    quads = [fact.quad for fact in facts]
    if place.endswith("blank nodes"):
        quads = [Quad(*map(_blank, quad)) for quad in quads]
    oracle = store_of(quads)
    ways = [_stream]
    if place.startswith("file"):
        # A server's data are queried as they are.
        ways.append(_query)
    if labelling == "interval" or not place.startswith(("served", "loaded")):
        # Expirations in data do not tell since when facts held.
        ways.append(_query_at)
    wrong = []
    with _client(tmp_path, method, facts, place) as client:
        for name, form in FORMS.items():
            if "annotation" in name and own == facts[1].quad.graph:
                continue
            query = PREFIXES + form.replace(":own", own)
            found = solutions_of(oracle, query)
            names = [each.value for each in found.variables]
            expected = _bag(
                names, [tuple(row[n] and term_of(row[n]) for n in names) for row in found]
            )
            wrong += [(name, way.__name__) for way in ways if way(client, query) != expected]
    assert wrong == []
