"""RDF files as datasets, against the data themselves and pyoxigraph."""

import asyncio
import codecs
import gzip
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact, Interval
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri, literal
from tests.support.shelf import Shelf
from tpf_client import AsyncClient, Client, ClientError
from tpf_client.fragments.destinations import is_file

EX = "http://example.org/"
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
_terms = st.sampled_from([iri(EX + "a"), iri(EX + "b"), iri(EX + "c")])
_quads = st.lists(
    st.builds(
        Quad,
        st.one_of(_terms, st.just(Term("_:x"))),
        _terms,
        st.one_of(_terms, st.sampled_from([literal("1"), literal("a", "en"), Term("_:x")])),
        st.just(DEFAULT_GRAPH),
    ),
    max_size=12,
)


def _written(path: Path, quads: list[Quad]) -> str:
    path.write_text("".join(f"{' '.join(quad).rstrip()} .\n" for quad in quads))
    return str(path)


@given(_quads, st.sampled_from(["?s ?p ?o . ?o ?q ?r", "?s ?p ?s", f"?s <{EX}a> ?o", "?s ?p '1'"]))
def test_a_file_answers_as_a_store_does(
    tmp_path_factory: pytest.TempPathFactory, quads: list[Quad], pattern: str
) -> None:
    file = _written(tmp_path_factory.mktemp("data") / "data.nt", quads)
    store = ox.Store()
    store.load(path=file)
    query = f"SELECT * WHERE {{ {pattern} }}"

    def shown(term: object) -> str:
        return "_" if isinstance(term, ox.BlankNode) or str(term).startswith("_:") else str(term)

    answer = store.query(query)
    assert isinstance(answer, ox.QuerySolutions)
    names = [each.value for each in answer.variables]
    expected = Counter(tuple(shown(row[name]) for name in names) for row in answer)
    with Client(file) as client:
        rows = [dict(zip(solutions.variables, each.row, strict=True))
                for solutions in [client.select(query)] for each in solutions]  # fmt: skip
    assert Counter(tuple(shown(row[name]) for name in names) for row in rows) == expected


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_labels_in_a_file_hold(tmp_path: Path, method: Method) -> None:
    facts = [
        Fact(Quad(iri(EX + "s"), iri(EX + "name"), literal("static"))),
        Fact(Quad(iri(EX + "s"), iri(EX + "p"), literal("over")), Expiration(NOON)),
        Fact(
            Quad(iri(EX + "s"), iri(EX + "q"), literal("holds")),
            Expiration(NOON + timedelta(seconds=5)),
        ),
        Fact(
            Quad(iri(EX + "s"), iri(EX + "r"), literal("comes")),
            Interval(NOON + timedelta(seconds=2), NOON + timedelta(seconds=9)),
        ),
    ]
    naming = Naming(EX + "facts/", EX + "dataset")
    quads = [quad for fact in facts for quad in method.encode(fact, naming)]
    file = _written(tmp_path / "data.nq", quads)
    clock = ManualClock(NOON)
    with Client(file, clock=clock) as client:
        query = "SELECT ?o { ?s ?p ?o }"
        assert {str(row["o"]) for row in client.select(query)} == {"static", "holds"}
        after = client.select(query, at=NOON + timedelta(seconds=7))
        assert {str(row["o"]) for row in after} == {"static", "comes"}
        before = client.select(query, at=NOON - timedelta(seconds=7))
        assert {str(row["o"]) for row in before} == {"static", "over", "holds"}
        stream = client.stream(query, until=NOON + timedelta(seconds=20))
        seen = [{str(row["o"]) for row in update.results} for update in stream]
        assert seen[0] == {"static", "holds"}
        assert {"static", "holds", "comes"} in seen
        assert seen[-1] == {"static"}


BLANK = {
    "one": """PREFIX : <http://example.org/>
        :a :in [ :name "Gent" ] . _:x :p :b {| :said :y |} . _:x :q _:z .""",
    "two": """PREFIX : <http://example.org/>
        :b :in [ :name "Brugge" ] . _:x :p :b {| :said :z |} . _:x :q :w .""",
}


@pytest.mark.parametrize(
    "pattern",
    ["?s :in ?o . ?o :name ?n", "?s :p ?o {| :said ?y |}", "?r ?said <<( ?s ?p ?o )>> . ?s :q ?w",
     "?r ?said ?t . BIND(SUBJECT(?t) AS ?s) ?s :q ?w"],
)  # fmt: skip
def test_blank_nodes_are_those_of_their_file_everywhere(tmp_path: Path, pattern: str) -> None:
    store = ox.Store()
    files = []
    for name, text in BLANK.items():
        file = tmp_path / f"{name}.ttl"
        file.write_text(text)
        files.append(str(file))
        store.extend(ox.parse(text, ox.RdfFormat.TURTLE, rename_blank_nodes=True))
    query = f"PREFIX : <{EX}> SELECT * {{ {pattern} }}"
    expected: Any = store.query(query)
    with Client(*files) as client:
        assert len(list(client.select(query))) == len(list(expected)) > 0


def test_a_large_file_has_pages(tmp_path: Path) -> None:
    quads = [Quad(iri(f"{EX}{n}"), iri(EX + "p"), literal(str(n))) for n in range(2_345)]
    file = Path(_written(tmp_path / "data.nt", quads))
    packed = tmp_path / "data.nt.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    with Client(str(packed)) as client:
        assert len(client.select("SELECT * { ?s ?p ?o }")) == len(quads)
        requests = client.statistics.requests
        assert len(client.select("SELECT * { ?s ?p ?o } LIMIT 3")) == 3
        assert client.statistics.requests - requests <= 3


@pytest.mark.parametrize("kind", ["nt", "nq", "ttl", "jsonld", "rdf"])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, kind: str) -> None:
    triple = ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:p"), ox.Literal("1"))
    body = ox.serialize([triple], format=ox.RdfFormat.from_extension(kind))
    assert body is not None
    path = tmp_path / f"a.{kind}"
    path.write_bytes(codecs.BOM_UTF8 + body)
    with Client(str(path)) as client:
        assert client.ask('ASK { <urn:a> <urn:p> "1" }')


def test_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    wrong = tmp_path / "data.ttl"
    wrong.write_text("<a> <b> .")
    with pytest.raises(ClientError, match=r"data.ttl: malformed text/turtle.* line 1"):
        Client(str(wrong))
    other = tmp_path / "data.txt"
    other.write_text("")
    with pytest.raises(ClientError, match=r"data.txt is not called like a file of RDF: .nt,"):
        Client(str(other))
    assert not is_file("SELECT * { ?s ?p ?o } # " + "x" * 5_000)
    assert not is_file(str(tmp_path))
    assert not is_file("http://example.org/")


def test_a_packed_file_that_is_damaged_anywhere_is_an_error_or_the_same(tmp_path: Path) -> None:
    whole = gzip.compress(f"<{EX}a> <{EX}p> <{EX}b> .\n".encode())
    file = tmp_path / "data.nt.gz"
    damaged = [whole[:n] for n in range(len(whole))]
    damaged += [whole[:n] + bytes([whole[n] ^ 0x55]) + whole[n + 1 :] for n in range(len(whole))]
    refused = []
    for content in damaged:
        file.write_bytes(content)
        try:
            with Client(str(file)) as client:
                assert len(client.select("SELECT * { ?s ?p ?o }")) in (0, 1)
        except ClientError as error:
            refused.append(str(error))
    assert len(refused) > len(whole)
    assert all(each.startswith("data.nt.gz: ") for each in refused)


def test_files_are_asked_together_with_servers_in_threads_and_event_loops(tmp_path: Path) -> None:
    name, kind = iri(EX + "name"), iri(EX + "kind")
    things = [iri(f"{EX}{n}") for n in range(5)]
    with Shelf(tmp_path) as shelf:
        url, _ = shelf.add([Quad(each, name, literal(each[-2])) for each in things])
        file = Path(
            _written(tmp_path / "kinds.nt", [Quad(each, kind, name) for each in things[2:]])
        )
        query = (
            f"SELECT ?n {{ ?x <{EX}name> ?n ; <{EX}kind> ?kind . SERVICE <{url}> {{ ?x ?p ?n }} }}"
        )
        with Client(url, file) as client:
            rows = {str(row["n"]) for row in client.select(query)}

        async def asked() -> set[str]:
            async with AsyncClient(file, url) as client:
                return {str(row["n"]) for row in await client.select(query)}

        assert asyncio.run(asked()) == rows == {"2", "3", "4"}
