"""The client as Python developers use it: forms, terms, timeouts, tables, threads, notebooks."""

import copy
import pickle
import pydoc
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import rdflib
import requests
import responses
from rdflib import BNode, Literal, URIRef

import tpf_client
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Term, Variable, blank_node, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import (
    Client,
    ClosedError,
    LimitError,
    Limits,
    Solutions,
    SourceError,
    UnsupportedQueryError,
    publish,
)
from tpf_client.errors import QuerySyntaxError
from tpf_client.queries import QueryOptions

EX = "http://example.org/"
ALL = "SELECT * { ?s ?p ?o }"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    quads = [Quad(iri(f"{EX}{n:03}"), iri(EX + "p"), literal(f"<{n}>")) for n in range(60)]
    with LiveServer(tmp_path, quads, page_size=10, server={"max_page_size": 10}) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


def test_each_form_has_a_method(client: Client) -> None:
    assert isinstance(client.select(ALL), Solutions)
    assert client.ask("ASK { ?s ?p ?o }") is True
    assert len(client.construct("CONSTRUCT WHERE { ?s ?p ?o }")) == 60
    assert len(client.describe(f"DESCRIBE <{EX}001>")) == 1
    with pytest.raises(UnsupportedQueryError, match="this is SELECT, not ASK"):
        client.ask(ALL)
    with pytest.raises(UnsupportedQueryError, match="this is DESCRIBE, not CONSTRUCT"):
        client.construct(f"DESCRIBE <{EX}001>")


def test_solutions_are_a_collection(client: Client, server: LiveServer) -> None:
    solutions = client.select(ALL)
    assert solutions
    few = len(server.log)
    assert few < 5
    assert len(solutions) == 60
    assert len(server.log) > few
    asked = len(server.log)
    assert solutions.fetchall() == list(solutions)
    assert not client.select("SELECT * { ?s <urn:none> ?o }")
    assert len(server.log) - asked <= 2


def test_a_solution_is_read_by_names(client: Client) -> None:
    solution: Any = next(iter(client.select(ALL)))
    assert solution["o"] == Literal("<0>")
    with pytest.raises(TypeError, match=r"by names of variables \('o', 'p', 's'\)|by names"):
        solution[0]
    for copied in (
        copy.copy(solution),
        copy.deepcopy(solution),
        pickle.loads(pickle.dumps(solution)),
    ):
        assert (copied, copied.o) == (solution, Literal("<0>"))


def test_a_table_of_the_first_solutions(client: Client) -> None:
    html = client.select(ALL)._repr_html_()
    assert html.count("<tr>") == 1 + 50 + 1
    assert "<td>&lt;0&gt;</td>" in html
    assert html.endswith('<td colspan="3">…</td></tr></tbody></table>')


def test_threads_share_the_solutions(server: LiveServer) -> None:
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        solutions = client.select(ALL)
        start = threading.Barrier(4)

        def read(_: int) -> list[str]:
            start.wait()
            return [str(row["s"]) for row in solutions]

        with ThreadPoolExecutor(4) as pool:
            readers = list(pool.map(read, range(4)))
    assert all(each == readers[0] for each in readers)
    assert len(set(readers[0])) == 60


def test_pieces_are_read_once(client: Client) -> None:
    solutions = client.select(ALL)
    next(iter(solutions))
    pieces = solutions.pieces("csv")
    with pytest.raises(ClosedError, match="read in pieces"):
        solutions.pieces("json")
    with pytest.raises(ClosedError, match="read in pieces"):
        len(solutions)
    assert "".join(pieces).count("\n") == 61


def test_a_closed_client_answers_nothing(server: LiveServer) -> None:
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        assert client.ask("ASK { ?s ?p ?o }")
    with pytest.raises(ClosedError, match="the client is closed"):
        client.ask("ASK { ?s ?p ?o }")


WRONG: dict[str, tuple[Any, str]] = {
    "headers": (5, "headers: Mapping, not int"),
    "auth": ("user:password", "auth: tuple, not str"),
    "clock": (5, "clock: a clock, not int"),
    "session": ("s", "session: a session, not str"),
    "parallelism": ("8", "parallelism: int, not str"),
    "cache_bytes": (1.5, "cache_bytes: int, not float"),
    "limits": (5, "limits: Limits, not int"),
    "allowed_origins": (EX, "allowed_origins: Iterable, not str"),
    "services": (EX, "services: Iterable, not str"),
    "vocabulary": (EX, "vocabulary: Vocabulary, not str"),
    "bindings": ([EX], "bindings: Mapping, not list"),
    "at": ("2020-01-01", "at: datetime, not str"),
    "base": (5, "base: str, not int"),
    "until": (date(2020, 1, 1), "until: datetime, not date"),
    "token": (5, "token: str, not int"),
    "valid": ((START, "2020"), "valid: datetime, not str"),
    "facts": (5, "facts: str or Iterable, not int"),
    "pattern": ((None, None, None), "pattern: QuadPattern, not tuple"),
}


def _using(name: str, value: Any) -> object:
    given: dict[str, Any] = {name: value}
    if name in ("token", "valid", "facts"):
        return publish(EX, **{"facts": "", **given})
    if name == "until":
        return Client(EX).stream(ALL, **given)
    if name == "pattern":
        return list(Client(EX).match(value))
    if name in ("bindings", "at", "base"):
        return Client(EX).query(ALL, **given)
    return Client(EX, **given)


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_another_type_is_a_sentence(name: str) -> None:
    value, message = WRONG[name]
    with pytest.raises(TypeError, match=f"^{message}$"):
        _using(name, value)


def test_help_lists_what_there_is() -> None:
    text = pydoc.render_doc(tpf_client, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    for name in tpf_client.__all__:
        assert re.search(rf"class {name}\b|^    {name}\(", text, re.MULTILINE), name


def test_a_failure_stays_a_failure(server: LiveServer) -> None:
    limits = Limits(max_query_requests=3)
    with server.client(limits=limits) as client:
        solutions = client.select(ALL)
        for _ in range(2):
            with pytest.raises(SourceError, match="max_query_requests=3"):
                len(solutions)
        with pytest.raises(SourceError, match="max_query_requests=3"):
            solutions.pieces("csv")


def test_what_was_interrupted_is_not_complete() -> None:
    def rows() -> Iterator[tuple[Term]]:
        yield (literal("1"),)
        raise KeyboardInterrupt

    solutions = Solutions((Variable("?x"),), rows())
    with pytest.raises(KeyboardInterrupt):
        solutions.fetchall()
    for read in (solutions.fetchall, solutions.serialize, solutions.pieces):
        with pytest.raises(ClosedError, match="interrupted"):
            read()


def test_timeout(client: Client) -> None:
    with pytest.raises(LimitError, match="the query takes more than timeout=0 allows"):
        client.select(ALL, timeout=0).fetchall()
    with pytest.raises(LimitError, match="the query takes more than timeout=0 allows"):
        client.query(ALL, options=QueryOptions(timeout=0))
    both = QueryOptions(at=START, timeout=5)
    assert QueryOptions.given(both, None, None) == both
    assert QueryOptions.given(both, None, 0) == QueryOptions(at=START, timeout=0)
    with pytest.raises(ValueError, match="an instant needs a time zone"):
        client.stream(ALL, until=START.replace(tzinfo=None))
    assert len(client.select(ALL, timeout=60)) == 60
    with pytest.raises(ValueError, match="timeout: 0 to"):
        client.query(ALL, timeout=-1)
    with pytest.raises(ValueError, match=r"timeout: 0 to .* not '5'"):
        client.query(ALL, timeout="5")  # type: ignore[arg-type]


def test_a_timeout_ends_a_join(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = map(float, count())
    monkeypatch.setattr("tpf_client.planner.driver.monotonic", lambda: next(seconds))
    query = "SELECT * { ?a ?b ?c . ?d ?e ?f }"
    assert len(client.select(query).fetchall()) == 3600
    for form in (query, f"{query} ORDER BY ?c"):
        with pytest.raises(LimitError, match="timeout=1000 allows"):
            client.select(form, timeout=1000).fetchall()


def test_a_timeout_ends_what_is_made_between_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = map(float, count())
    monkeypatch.setattr("tpf_client.planner.driver.monotonic", lambda: next(seconds))
    file = tmp_path / "data.nt"
    file.write_text("".join(f"<urn:s{n}> <urn:p> <urn:o{n}> .\n" for n in range(40)))
    with Client(file) as client:
        query = "SELECT * { ?a <urn:p>* ?b . ?c ?d ?e }"
        assert len(client.select(query).fetchall()) == 4800
        with pytest.raises(LimitError, match="timeout=1000 allows"):
            client.select(query, timeout=1000).fetchall()


def test_explained(client: Client) -> None:
    text = client.explain("SELECT * { ?s ?p ?o } LIMIT 30")
    assert text.startswith("1. scan ?s ?p ?o")
    assert client.explain("ASK { ?s ?p ?o }", {"s": URIRef(EX + "001")}).startswith("1. ")


@pytest.mark.parametrize(
    ("given", "message"), [(b"SELECT", "a query is a str, not bytes"), (None, "not NoneType")]
)
def test_a_query_of_another_type(client: Client, given: Any, message: str) -> None:
    for method in (client.query, client.select, client.ask, client.explain, client.stream):
        with pytest.raises(TypeError, match=message):
            method(given)
    with pytest.raises(TypeError, match="the URL of a dataset is a str, not list"):
        Client(["http://example.org/"])  # type: ignore[arg-type]


@responses.activate
def test_headers_go_to_the_datasets_alone() -> None:
    page = """<http://{host}/d> <http://www.w3.org/ns/hydra/core#search> _:f .
        _:f <http://www.w3.org/ns/hydra/core#template> "http://{host}/d{{?s,p,o}}" ;
          <http://www.w3.org/ns/hydra/core#mapping> _:s, _:p, _:o .
        _:s <http://www.w3.org/ns/hydra/core#variable> "s" ; <http://www.w3.org/ns/hydra/core#property> <http://www.w3.org/1999/02/22-rdf-syntax-ns#subject> .
        _:p <http://www.w3.org/ns/hydra/core#variable> "p" ; <http://www.w3.org/ns/hydra/core#property> <http://www.w3.org/1999/02/22-rdf-syntax-ns#predicate> .
        _:o <http://www.w3.org/ns/hydra/core#variable> "o" ; <http://www.w3.org/ns/hydra/core#property> <http://www.w3.org/1999/02/22-rdf-syntax-ns#object> .
        <urn:a> <urn:b> "{host}" ."""  # noqa: E501
    for host in ("our.test", "other.test"):
        responses.get(f"http://{host}/d", page.format(host=host), content_type="text/turtle")
    responses.get("http://our.test/moved", status=302, headers={"Location": "http://other.test/d"})
    session = requests.Session()
    with Client("http://our.test/d", session=session, headers={"X-Key": "k"}, auth=("ü", "p:w"),
                allowed_origins=["http://other.test/"], parallelism=0) as client:  # fmt: skip
        client.select("SELECT * { ?s ?p ?o SERVICE <http://other.test/d> { ?s ?p ?q } }").fetchall()
        client.select("SELECT * { SERVICE <http://our.test/moved> { ?s ?p ?q } }").fetchall()
    sent = [(call.request.url or "", call.request.headers) for call in responses.calls]
    assert {url.split("/")[2] for url, _ in sent} == {"our.test", "other.test"}
    assert any("moved" in url for url, _ in sent)
    for url, headers in sent:
        ours = url.startswith("http://our.test/")
        assert headers.get("X-Key") == ("k" if ours else None)
        assert headers.get("Authorization") == ("Basic w7w6cDp3" if ours else None)


class _Shown(list[Any]):
    """What a notebook shows, oldest first."""

    def update(self, shown: Any) -> None:
        self.append(shown)


def test_a_stream_is_a_live_table_in_a_notebook(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _Shown()

    def display(first: Any, **_: Any) -> _Shown:
        shown.append(first)
        return shown

    notebook: Any = ModuleType("IPython.display")
    notebook.HTML, notebook.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    fact = Quad(iri(EX + "a"), iri(EX + "delay"), literal("300"))
    server.publish([Fact(fact, Expiration(START + timedelta(seconds=10)))])
    with server.client() as client:
        stream = client.stream(f"SELECT * {{ ?s <{EX}delay> ?o }}")
        stream._ipython_display_()
        client.scheduler.run(until=START + timedelta(seconds=15))
    assert shown[0] == "waiting for the first answer"
    assert "<td>300</td>" in shown[1]
    assert "valid until 2015-12-08T10:20:10Z" in shown[1]
    assert "<tbody></tbody>" in shown[-1]


# ------------------------------------------------------------- terms, updates, refusals


PREFIX = f"PREFIX : <{EX}> "


@pytest.fixture
def small_server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(
        tmp_path,
        [
            Quad(iri(EX + "a"), iri(EX + "name"), literal("A\n\"a\"", language="en")),
            Quad(iri(EX + "a"), iri(EX + "size"),
                 literal("007", datatype="http://www.w3.org/2001/XMLSchema#integer")),
            Quad(iri(EX + "b"), iri(EX + "name"), literal("B")),
            Quad(iri(EX + "b"), iri(EX + "part"), blank_node("x")),
            Quad(blank_node("x"), iri(EX + "name"), literal("X")),
        ],
    ) as server:  # fmt: skip
        yield server


@pytest.fixture
def small(small_server: LiveServer) -> Iterator[Client]:
    with small_server.client() as client:
        yield client


def test_select_gives_rdflib_terms_whose_lexical_forms_are_kept(small: Client) -> None:
    rows = list(small.select(PREFIX + "SELECT * { ?s :name ?n OPTIONAL { ?s :size ?z } }"))
    by_subject = {row["s"]: row for row in rows}
    a = by_subject[URIRef(EX + "a")]
    assert a["n"] == Literal('A\n"a"', lang="en")
    assert str(a.z) == "007"
    assert isinstance(a.z, Literal)
    assert a.z.datatype == rdflib.XSD.integer
    b = by_subject[URIRef(EX + "b")]
    assert "z" not in b
    assert set(b) == {"s", "n"}
    with pytest.raises(AttributeError, match="z"):
        _ = b.z
    assert any(isinstance(subject, BNode) for subject in by_subject)


def test_pandas(small: Client) -> None:
    frame = small.select(PREFIX + "SELECT ?s ?z { ?s :size ?z }").to_pandas()
    assert frame.to_dict("records") == [{"s": EX + "a", "z": 7}]


def test_wrong_queries_are_refused_before_the_first_request(
    small: Client, small_server: LiveServer
) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        small.query("SELECT * {\n  ?s ?p \n}")
    assert (caught.value.line, caught.value.column) == (3, 1)
    with pytest.raises(UnsupportedQueryError):
        small.query("SELECT * { SERVICE ?where { ?s ?p ?o } }")
    with pytest.raises(UnsupportedQueryError):
        small.select("ASK {}")
    assert small_server.log == []


def test_a_stream_over_labels_gives_changes_and_ends_when_closed(
    small: Client, small_server: LiveServer
) -> None:
    soon, later = (START + timedelta(seconds=n) for n in (5, 9))
    delay = iri(EX + "delay")
    small_server.publish(
        [
            Fact(Quad(iri(EX + "a"), delay, literal("1")), Expiration(soon)),
            Fact(Quad(iri(EX + "b"), delay, literal("2")), Expiration(later)),
        ]
    )
    stream = small.stream(PREFIX + "SELECT ?s ?d { ?s :delay ?d }")
    updates = iter(stream)
    first = next(updates)
    assert len(first.added) == 2
    assert first.valid_until == soon
    second = next(updates)
    assert second.at == soon
    assert [row["d"] for row in second.removed] == [Literal("1")]
    assert second.added == ()
    assert second.to_json() == {
        "at": "2015-12-08T10:20:05Z",
        "vars": ["s", "d"],
        "added": [],
        "valid": [],
        "removed": [
            {
                "s": {"type": "uri", "value": EX + "a"},
                "d": {"type": "literal", "value": "1"},
            }
        ],
        "valid_until": "2015-12-08T10:20:09Z",
        "next_look": "2015-12-08T10:20:09Z",
        "dynamic": True,
    }
    assert second.to_pandas().to_dict("records") == [{"s": EX + "b", "d": "2"}]
    stream.close()
    assert list(updates) == []


def test_exported_names() -> None:
    assert {"AsyncClient", "Client", "Limits", "publish"} < set(tpf_client.__all__)
    assert tpf_client.__version__ == version("live-linked-data")
    for name in tpf_client.__all__:
        assert getattr(tpf_client, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = tpf_client.Nothing


def test_progress(small: Client) -> None:
    told: list[tuple[int, int]] = []
    answer = small.query(
        PREFIX + "SELECT * { ?s :name ?n }",
        options=QueryOptions(progress=lambda *n: told.append(n)),
    )
    assert isinstance(answer, Solutions)
    assert len(list(answer)) == 3
    assert told == sorted(told)
    assert told[-1] == (small.statistics.requests + small.statistics.cache_hits, 3)


def test_ill_typed_literals_are_data_like_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = literal("no number", datatype=str(rdflib.XSD.integer))
    server = LiveServer(tmp_path, [Quad(iri(EX + "a"), iri(EX + "p"), number)], live=False)
    with Client(server.url, session=server.session(), clock=server.clock) as client:
        (row,) = client.select("SELECT ?o { ?s ?p ?o }")
        graph = client.query("CONSTRUCT WHERE { ?s ?p ?o }")
        frame = client.select("SELECT ?o { ?s ?p ?o }").to_pandas()
    server.close()
    assert str(row["o"]) == "no number"
    assert isinstance(graph, rdflib.Graph)
    assert "no number" in graph.serialize(format="nt")
    assert frame["o"].tolist() == ["no number"]
    assert [record.name for record in caplog.records if "rdflib" in record.name] == []
    # What others do with rdflib is logged as ever.
    Literal("no number", datatype=rdflib.XSD.integer)
    assert [record.name for record in caplog.records] == ["rdflib.term"]
