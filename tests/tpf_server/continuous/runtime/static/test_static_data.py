"""Graphs in memory and stores: what goes in comes out, letter by letter, and is read once."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term
from tests.support.static_graphs import HeldStore
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_DSTREAM
from tpf_server.continuous.runtime.static.static_data import GraphChange, MemoryGraph, StoreGraph
from tpf_server.store.static.columnar import ColumnarStore
from tpf_server.store.static.ox_terms import text_of

XSD = "http://www.w3.org/2001/XMLSchema#"
A, P = Term("<urn:a>"), Term("<urn:p>")
TYPES = ("integer", "decimal", "double", "float", "boolean", "byte", "string", "dateTime", "gYear")

texts = st.sampled_from(
    ["18.0", "18", "+018", "1e1", "true", "1", "2020-01-01T00:00:00.000Z", '"^^<lexical:x>']
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
literals = st.one_of(
    st.builds(
        lambda text, name: ox.Literal(text, datatype=ox.NamedNode(name)),
        texts,
        st.sampled_from([*(XSD + name for name in TYPES), "urn:t", "lexical:t"]),
    ),
    st.builds(lambda text: ox.Literal(text, language="en-BE"), texts),
)
objects = literals | literals.map(
    lambda literal: ox.Triple(ox.NamedNode("urn:x"), ox.NamedNode("urn:y"), literal)
)


@given(st.lists(objects, max_size=6))
def test_terms_keep_their_letters(added: list[ox.Literal | ox.Triple]) -> None:
    graph = MemoryGraph()
    terms = {text_of(each) for each in added}
    graph.add((A, P, term) for term in terms)
    assert {object_ for _, _, object_ in graph.match(A, None, None)} == terms
    for term in terms:
        assert list(graph.match(None, None, term)) == [(A, P, term)]
    graph.remove((A, P, term) for term in terms)
    assert graph.count(None, None, None) == 0


def test_files_keep_their_letters(tmp_path: Path) -> None:
    path = tmp_path / "data.ttl"
    path.write_text('<urn:a> <urn:p> 18.0, 018, 1.50e0, "x", "y"@en, "07"^^<%sbyte> .' % XSD)  # noqa: UP031
    graph = MemoryGraph()
    graph.load(path)
    assert {object_ for _, _, object_ in graph.match(None, None, None)} == {
        f'"18.0"^^<{XSD}decimal>', f'"018"^^<{XSD}integer>', f'"1.50e0"^^<{XSD}double>',
        '"x"', '"y"@en', f'"07"^^<{XSD}byte>',
    }  # fmt: skip


def test_files_are_read_as_stores_read_them(tmp_path: Path) -> None:
    graph, line = MemoryGraph(), "<urn:a> <urn:p> _:b .\n"
    (tmp_path / "one.nt").write_text(line)
    (tmp_path / "two.nt.gz").write_bytes(gzip.compress(line.encode()))
    for name in ("one.nt", "two.nt.gz"):
        graph.load(tmp_path / name)
    # Blank nodes of two files are two.
    assert graph.count(A, P, None) == 2
    (tmp_path / "relative.jsonld").write_text('{"@id": "a", "urn:p": "x"}')
    (tmp_path / "broken.ttl").write_text("<urn:a> <urn:p> .")
    for name, reason in (
        ("relative.jsonld", "a relative IRI: 'a'"),
        ("broken.ttl", "broken.ttl, line 1"),
        ("nothing.nt", "No such file"),
        ("notes.txt", "no ending of an RDF file"),
    ):
        with pytest.raises(ContinuousError, match=reason):
            graph.load(tmp_path / name)


def test_stores_are_exchanged_for_others() -> None:
    """Common triples are no change; equal versions are not read."""
    engine = Engine(EngineSettings(semantics=PAPER))
    text = "SELECT ?o { STREAM <s> [ALL] { ?e <urn:at> ?a } GRAPH <g> { ?a <urn:p> ?o } }"
    added = engine.register(text)
    gone = engine.register(text, semantics=PAPER_DSTREAM)
    engine.push("s", ("<urn:e>", "<urn:at>", A), 1)
    heard: list[str] = []

    def listen(change: GraphChange) -> Callable[[], None]:
        return lambda: heard.extend(change.graphs)

    engine.static.on_change(listen)

    def exchange(version: str, *objects: str) -> None:
        store = HeldStore(version, [Quad(A, P, Term(each)) for each in objects])
        graph = StoreGraph(cast("ColumnarStore", store))
        engine.static.exchange({DEFAULT_GRAPH: [graph], engine.name("g"): [graph]})

    engine.add([(A, P, '"kept"')], "g")
    exchange("1", '"one"', '"both"')
    exchange("1")
    exchange("2", '"both"', '"two"')
    assert heard == ["<http://localhost/g>", *([DEFAULT_GRAPH, "<http://localhost/g>"] * 2)]
    assert [sorted(str(row[0]) for row in each.rows) for each in added] == [
        ['"kept"'], ['"both"', '"one"'], ['"two"'],
    ]  # fmt: skip
    assert [list(each.rows) for each in gone] == [[('"one"',)]]
    engine.static.exchange({})
    assert engine.static.names == ("<http://localhost/g>",)
    assert [sorted(str(row[0]) for row in each.rows) for each in gone] == [['"both"', '"two"']]


@pytest.mark.parametrize("value", ["18.0", "18", "1.8e1"])
def test_static_and_streamed_values_join_as_they_are_written(value: str) -> None:
    """By term, as SPARQL joins; a filter compares values."""
    native, periodic = Engine(), Engine()
    element = ("<urn:e>", "<urn:v>", f'"18.0"^^<{XSD}double>')
    by_term = native.register("SELECT ?a { STREAM <s> [NOW] { ?e <urn:v> ?v } ?a <urn:p> ?v }")
    by_value = native.register(
        "SELECT ?a ?w { STREAM <s> [NOW] { ?e <urn:v> ?v } ?a <urn:p> ?w FILTER(?v = ?w) }"
    )
    answers = periodic.register_csparql(
        "SELECT ?a FROM STREAM <s> [RANGE 1s TUMBLING] { ?e <urn:v> ?v . ?a <urn:p> ?v }"
    )
    for engine in (native, periodic):
        engine.add([(A, P, f'"{value}"^^<{XSD}double>')])
        engine.push("s", element, 1)
    periodic.finish()
    assert [row for each in by_term for row in each.rows] == [(A,)] * (value == "18.0")
    assert [row for each in answers for row in each.rows] == [(A,)] * (value == "18.0")
    assert [row for each in by_value for row in each.rows] == [(A, f'"{value}"^^<{XSD}double>')]


class Counting:
    """A store of numbered triples, which counts how many it reads."""

    version = "1"

    def __init__(self, size: int) -> None:
        self.size = size
        self.read = 0
        self.pages = 0

    def quads(self, _pattern: QuadPattern, offset: int, limit: int) -> list[Quad]:
        numbers = range(self.size)[offset : offset + limit]
        self.read += len(numbers)
        self.pages += 1
        return [Quad(Term("<s>"), Term("<p>"), Term(f'"{number}"')) for number in numbers]


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 219, 220, 221, 12_219, 12_220, 30_000])
def test_all_triples_are_read_once_in_few_pages(size: int) -> None:
    store = Counting(size)
    found = [
        each for _, _, each in StoreGraph(cast("ColumnarStore", store)).match(None, None, None)
    ]
    assert found == [f'"{number}"' for number in range(size)]
    assert store.read == size
    assert store.pages <= 5 + size // 10_000


def test_who_asks_whether_there_is_any_reads_few() -> None:
    store = Counting(1_000_000)
    assert next(StoreGraph(cast("ColumnarStore", store)).match(None, None, None))
    assert store.read <= 100
