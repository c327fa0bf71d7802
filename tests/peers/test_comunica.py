"""Comunica and Client.js get the right answers from the real server, and N3.js reads its pages.

N3.js, which Client.js has of 2016, reads them as pyoxigraph does.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyoxigraph as ox
import pytest
import requests

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import METHODS, method_named
from annotations.methods.base import Naming
from annotations.methods.names import fragment_iri
from annotations.terms import Quad, Term, iri, literal
from tests.support.oracle import bag, select, store_of, term_of
from tests.support.peers import COMUNICA, HERE, LDF_CLIENT, N3, NODE, NODE_MODULES, Comunica
from tests.support.running_server import RunningServer, n_quads

T, EX = "http://example.org/train#", "http://example.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
DEPARTURES = 250
CONFIG = """
[datasets.rail]
source = "rail.nq"
live = false
[datasets.small]
source = "rail.nq"
live = false
page_size = 7
[datasets.graphs]
source = "graphs.nq"
live = false
page_size = 3
[datasets.whole]
source = "graphs.nq"
live = false
[datasets.odd]
source = "odd.nq"
live = false
[datasets.trains]
source = "trains.nq"
page_size = 5
[datasets.board]
source = "trains.nq"
"""


def t(name: str) -> Term:
    return iri(T + name)


def ex(name: str) -> Term:
    return iri(EX + name)


def integer(value: int) -> Term:
    return literal(str(value), datatype=XSD + "integer")


def departures(count: int) -> Iterator[Quad]:
    """Departures from a board, with platforms that some lack, and stops with names."""
    for number in range(count):
        train = ex(f"departure-{number}")
        yield Quad(train, t("stop"), ex(f"stop-{number % 9}"))
        yield Quad(train, t("headSign"), literal(f"Ghent {number % 40}"))
        if number % 3:
            yield Quad(train, t("platform"), literal(str(number % 12)))
    for number in range(9):
        yield Quad(ex(f"stop-{number}"), t("name"), literal(f"stop {number}", "en"))
        if number % 2:
            yield Quad(ex(f"stop-{number}"), t("name"), literal(f"Halt {number}", "de"))


RAIL = list(departures(DEPARTURES))
GRAPHS = [
    *(Quad(ex(f"s{n}"), t("p"), integer(n), ex(f"graph-{n % 2}")) for n in range(20)),
    *(Quad(ex(f"s{n}"), t("p"), integer(n)) for n in range(5)),
    *(Quad(ex(f"s{n}"), t("q"), ex(f"s{n + 1}")) for n in range(10)),
]
TEXTS = ["", 'say "hi"', "back\\slash", "two\nlines\r\n", "tab\there", "ünïcode", "a+b%20c&d=e#f"]
IRIS = ["path-ünïcode-é", "q?a=b&c=d", "frag#ment", "pct%20%41", "plus+plus", "paren(s)'"]
ODD = [
    *(Quad(ex("texts"), t("text"), literal(text)) for text in TEXTS),
    *(Quad(ex("texts"), t("tagged"), literal(text, "en-gb")) for text in TEXTS),
    *(Quad(ex("texts"), t("typed"), literal(text, datatype=EX + "type#x")) for text in TEXTS),
    *(Quad(ex(name), t("is"), integer(len(name))) for name in IRIS),
    Quad(ex("texts"), t("picture"), literal("🚂")),
    Quad(ex("numbers"), t("value"), literal("01", datatype=XSD + "integer")),
    Quad(ex("numbers"), t("value"), literal("1.50", datatype=XSD + "decimal")),
    Quad(ex("numbers"), t("value"), literal("1e3", datatype=XSD + "double")),
    Quad(ex("list"), t("first"), Term("_:b1")),
    Quad(Term("_:b1"), t("next"), Term("_:b2")),
    Quad(Term("_:b1"), t("value"), integer(1)),
    Quad(Term("_:b2"), t("value"), integer(2)),
]  # fmt: skip


@pytest.fixture(scope="module")
def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def facts(now: datetime) -> list[Fact]:
    """Twelve delays that expire in an hour or two, eight platforms that hold for a while."""
    found = []
    for number in range(12):
        train = ex(f"departure-{number}")
        end = now + timedelta(hours=1 + number % 2)
        found.append(Fact(Quad(train, t("delay"), integer(60 * (number % 4))), Expiration(end)))
        if number < 8:
            label = Interval(now - timedelta(minutes=5), now + timedelta(hours=3))
            found.append(Fact(Quad(train, t("platform"), literal(f"{number}b")), label))
    return found


TRAINS = [quad for quad in departures(12) if quad.predicate != t("platform")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, facts: list[Fact]) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    for name, quads in {"rail": RAIL, "graphs": GRAPHS, "odd": ODD, "trains": TRAINS}.items():
        (folder / f"{name}.nq").write_text(n_quads(quads), encoding="utf-8")
    with RunningServer(folder, CONFIG) as running:
        for name in ("trains", "board"):
            running.publish_facts(name, facts)
        yield running


@pytest.fixture(scope="module")
def comunica() -> Iterator[Comunica]:
    with Comunica() as client:
        yield client


PREFIXES = """
PREFIX t: <http://example.org/train#>
PREFIX ex: <http://example.org/>
PREFIX tmp: <http://example.org/temporal#>
PREFIX sp: <http://example.org/singletonproperties#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""


class Question(NamedTuple):
    """A query over a fragment interface.

    Args:
        url: the interface.
        query: SPARQL, without the prefixes above.
        quads: the data that it stands for.
        at_least: how many answers there are at least, so that no question is empty by mistake.
        kind: what Comunica is to take the interface for; ``None``: it finds out.
    """

    url: str
    query: str
    quads: Sequence[Quad]
    at_least: int = 1
    kind: str | None = None


def check(comunica: Comunica, questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Have all questions answered by both, and compare.

    Returns:
        Comunica's answers.
    """
    answers = []
    stores: dict[int, ox.Store] = {}
    for question in questions:
        source = {"type": question.kind, "value": question.url} if question.kind else question.url
        answer = comunica.ask(PREFIXES + question.query, source)
        store = stores.setdefault(id(question.quads), store_of(question.quads))
        assert "error" not in answer, (question.url, question.query, answer["error"])
        _compare(question, answer, store)
        answers.append(answer)
    return answers


def _compare(question: Question, answer: dict[str, Any], store: ox.Store) -> None:
    about = (question.url, question.query)
    query = PREFIXES + question.query
    if "bindings" in answer:
        expected = bag(select(store, query))
        assert expected.total() >= question.at_least, about
        assert bag(answer["bindings"]) == expected, about
        return
    result = store.query(query)
    if "boolean" in answer:
        assert isinstance(result, ox.QueryBoolean)
        assert answer["boolean"] == bool(result), about
        return
    assert isinstance(result, ox.QueryTriples)
    constructed = Counter(tuple(map(term_of, triple)) for triple in result)
    assert len(constructed) >= question.at_least, about
    assert {quad[:3] for quad in answer["quads"]} == set(constructed), about


STATIC_QUERIES = [
    "SELECT * { ?d t:stop ?s }",
    "SELECT * { ?d t:stop ex:stop-3 ; t:headSign ?h }",
    "SELECT * { ?d t:stop ?s . ?s t:name ?n FILTER(LANG(?n) = 'de') }",
    "SELECT * { ?d t:stop ex:stop-1 OPTIONAL { ?d t:platform ?p } }",
    "SELECT * { ?d t:headSign 'Ghent 7' . ?d t:platform ?p FILTER(xsd:integer(?p) > 3) }",
    "SELECT (COUNT(*) AS ?n) { ?d t:platform ?p }",
    "SELECT DISTINCT ?p { ?d t:stop ex:stop-4 . ?d ?p ?o }",
    "SELECT * { { ?d t:headSign 'Ghent 1' } UNION { ?d t:headSign 'Ghent 2' } }",
    "ASK { ex:departure-249 t:stop ?s }",
    "ASK { ex:departure-250 t:stop ?s }",
    "CONSTRUCT { ?s t:sees ?h } { ?d t:stop ?s ; t:headSign ?h . ?s t:name 'stop 2'@en }",
]


BLOCK_QUERIES = [
    *STATIC_QUERIES,
    "SELECT * { ?d t:headSign 'Ghent 7' ; ?p ?o }",
    "SELECT * { ?d t:stop ex:stop-2 OPTIONAL { ?d t:platform ?p } ?d t:headSign ?h }",
    "SELECT * { VALUES (?d ?x) { (ex:departure-1 1) (ex:departure-2 UNDEF) } ?d t:headSign ?h }",
]


@COMUNICA.needed
@pytest.mark.parametrize("dataset", ["rail", "small"])
def test_static_data_with_joins_options_and_paging(
    comunica: Comunica, server: RunningServer, dataset: str
) -> None:
    url = server.url + dataset
    # Without a bound term, seven per page would be a hundred requests for nothing new.
    queries = STATIC_QUERIES if dataset == "rail" else STATIC_QUERIES[1:]
    answers = check(comunica, (Question(url, query, RAIL, at_least=1) for query in queries))
    fetched = {request for answer in answers for request in answer["requests"]}
    assert any("page=2" in request for request in fetched)
    # It knows the form: a bound pattern costs two requests, not the whole dataset page by page.
    exists = [answer for answer in answers if answer.get("boolean") is not None]
    assert [len(answer["requests"]) for answer in exists] == [2, 2]


@COMUNICA.needed
def test_blocks_of_bindings(comunica: Comunica, server: RunningServer) -> None:
    url = server.url + "rail"
    plain = check(comunica, (Question(url, query, RAIL) for query in BLOCK_QUERIES))
    blocks = check(comunica, (Question(url, q, RAIL, kind="brtpf") for q in BLOCK_QUERIES))
    sent = [(len(a["requests"]), len(b["requests"])) for a, b in zip(plain, blocks, strict=True)]
    assert any("values=" in request for answer in blocks for request in answer["requests"])
    assert sum(b for _, b in sent) < sum(a for a, _ in sent), sent


@COMUNICA.needed
def test_named_graphs(comunica: Comunica, server: RunningServer) -> None:
    queries = [
        "SELECT * { ?s t:p ?o }",
        "SELECT * { GRAPH ?g { ?s t:p ?o } }",
        "SELECT * { GRAPH ex:graph-1 { ?s t:p ?o } }",
        "SELECT * { ?s t:q ?n . GRAPH ?g { ?n t:p ?o } }",
        "ASK { GRAPH ex:graph-2 { ?s ?p ?o } }",
        "SELECT DISTINCT ?g { GRAPH ?g { ?s ?p ?o } }",
        "CONSTRUCT { ?s t:in ?g } { GRAPH ?g { ?s t:p 4 } }",
    ]
    check(comunica, (Question(f"{server.url}graphs", query, GRAPHS) for query in queries))


@COMUNICA.needed
def test_terms_of_all_kinds(comunica: Comunica, server: RunningServer) -> None:
    named = [quad.subject for quad in ODD if quad.predicate == t("is")]
    queries = [
        # Bound terms stay in the basic plane: Comunica cannot expand others into a template.
        "SELECT * { ex:texts ?p ?o }",
        *(f"SELECT ?p {{ ex:texts ?p {literal(text)} }}" for text in TEXTS),
        *(f"SELECT ?p {{ ex:texts ?p {literal(text, 'en-gb')} }}" for text in TEXTS),
        *(f"SELECT ?p {{ ex:texts ?p {literal(text, None, EX + 'type#x')} }}" for text in TEXTS),
        *(f"SELECT * {{ {name} ?p ?o }}" for name in named),
        "SELECT ?s { ?s t:value '1.50'^^xsd:decimal }",
        "SELECT ?one ?two { ex:list t:first ?b . ?b t:value ?one ; t:next ?c . ?c t:value ?two }",
    ]
    check(comunica, (Question(f"{server.url}odd", query, ODD) for query in queries))
    # The oracle would write these numbers in another way; we keep them as they came.
    answer = comunica.ask(f"SELECT ?v {{ <{EX}numbers> <{T}value> ?v }}", f"{server.url}odd")
    kept = {quad.object for quad in ODD if quad.subject == ex("numbers")}
    assert {row["?v"] for row in answer["bindings"]} == kept


def expected(server: RunningServer, view: str, facts: list[Fact]) -> list[Quad]:
    """The static quads, and the facts as the view shows them."""
    if view == "plain":
        return [*TRAINS, *(fact.quad for fact in facts)]
    naming = Naming(f"{server.url}trains/facts/", f"{server.url}trains/{view}")
    method = method_named(view)
    return [*TRAINS, *(quad for fact in facts for quad in method.encode(fact, naming))]


OF_FACTS = """
SELECT * {{ ?d t:stop ?s . {fact} {label} }}
SELECT * {{ {fact} {label} FILTER(?v >= 120) }}
SELECT ?d ?h ?v {{ ?d t:headSign ?h OPTIONAL {{ {fact} {label} FILTER(?v > 60) }} }}
ASK {{ {fact} {label} FILTER(?v = 180) }}
ASK {{ {fact} {label} FILTER(?v = 181) }}
CONSTRUCT {{ ?d t:late ?v }} {{ {fact} {label} }}
SELECT ?d ?p ?from ?to {{ {platform} }}
SELECT (COUNT(*) AS ?n) {{ {fact} }}
"""
REIFIED = """
SELECT * { ?x rdf:reifies ?fact ; tmp:expiration ?t }
SELECT * { ?x rdf:reifies <<( ?d t:delay ?v )>> ; tmp:expiration ?t }
SELECT * { ?x rdf:reifies <<( ex:departure-3 t:delay 180 )>> ; tmp:expiration ?t }
SELECT * { << ?d t:platform ?p >> tmp:interval ?i . ?i tmp:initial ?from ; tmp:final ?to }
"""
PATTERNS = {
    "plain": ("?d t:delay ?v .", "", "?d t:platform ?p"),
    "singleton-property": (
        "?d ?x ?v . ?x sp:singletonPropertyOf t:delay .",
        "?x tmp:expiration ?t",
        "?d ?x ?p . ?x sp:singletonPropertyOf t:platform ; tmp:interval ?i . "
        "?i tmp:initial ?from ; tmp:final ?to",
    ),
    "named-graph": (
        "GRAPH ?x { ?d t:delay ?v }",
        "?x tmp:expiration ?t",
        "GRAPH ?x { ?d t:platform ?p } ?x tmp:interval ?i . ?i tmp:initial ?from ; tmp:final ?to",
    ),
    "implicit-graph": ("?d t:delay ?v .", "", "?d t:platform ?p"),
    "reification": (
        "?x rdf:subject ?d ; rdf:predicate t:delay ; rdf:object ?v .",
        "?x tmp:expiration ?t",
        "?x rdf:subject ?d ; rdf:predicate t:platform ; rdf:object ?p ; tmp:interval ?i . "
        "?i tmp:initial ?from ; tmp:final ?to",
    ),
    "rdf-1.2": ("?d t:delay ?v .", "", "?d t:platform ?p"),
}


@COMUNICA.needed
@pytest.mark.parametrize("view", ["plain", *(method.name for method in METHODS)])
def test_live_facts_in_every_view(
    comunica: Comunica, server: RunningServer, facts: list[Fact], view: str
) -> None:
    quads = expected(server, view, facts)
    fact, label, platform = PATTERNS[view]
    queries = OF_FACTS.format(fact=fact, label=label, platform=platform).strip().splitlines()
    if view == "implicit-graph":
        # The label hangs on the IRI of the fragment of one fact, which a query computes.
        naming = Naming(f"{server.url}trains/facts/", f"{server.url}trains/{view}")
        fragment = fragment_iri(facts[0].quad, naming)
        queries += ["SELECT * { ?x tmp:expiration ?t }", f"SELECT * {{ {fragment} ?p ?t }}"]
    if view == "rdf-1.2":
        queries += REIFIED.strip().splitlines()
    check(comunica, (Question(f"{server.url}trains/{view}", query, quads) for query in queries))


FORMATS = {
    "application/trig": ox.RdfFormat.TRIG,
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
}


def canonical(text: str, kind: ox.RdfFormat, base: str) -> set[str]:
    """Its quads, with blank nodes named by what is said of them."""
    found = ox.Dataset(ox.parse(text, format=kind, base_iri=base))
    found.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return set(map(str, found))


@N3.needed
def test_n3_reads_what_we_write(server: RunningServer) -> None:
    views = [f"board/{method.name}" for method in METHODS]
    documents = []
    for path in ("rail", "rail?page=2", "whole", "odd", "board", *views, ""):
        for media_type, format_ in FORMATS.items():
            answer = requests.get(server.url + path, headers={"Accept": media_type}, timeout=60)
            assert answer.headers["Content-Type"].startswith(media_type)
            documents.append((answer.url, media_type, format_, answer.text))
    lines = [
        json.dumps({"base": url, "format": media_type, "text": text})
        for url, media_type, _, text in documents
    ]
    found = subprocess.run(
        [NODE.command, str(HERE / "n3.mjs"), str(NODE_MODULES)],
        input="\n".join(lines), capture_output=True, text=True, timeout=120, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(found) == len(documents) == 4 * (5 + len(views) + 1)
    for (url, media_type, format_, text), line in zip(documents, found, strict=True):
        said = json.loads(line)
        assert "error" not in said, (url, media_type, said["error"])
        theirs = canonical(said["quads"], ox.RdfFormat.N_QUADS, url)
        assert theirs == canonical(text, format_, url), (url, media_type)


@LDF_CLIENT.needed
@pytest.mark.parametrize(
    ("dataset", "pattern", "names"),
    [
        ("rail", f"?stop <{T}name> ?name", {'"stop 1"@en', '"Halt 1"@de'}),
        ("board", f"<{EX}departure-1> <{T}delay> ?name", {f'"60"^^{XSD}integer'}),
    ],
)
def test_client_js_answers(
    server: RunningServer, dataset: str, pattern: str, names: set[str]
) -> None:
    query = f"SELECT ?name {{ <{EX}departure-1> <{T}stop> ?stop . {pattern} }}"
    program = str(NODE_MODULES / "ldf-client/bin/ldf-client")
    found = subprocess.run(
        [NODE.command, program, f"{server.url}{dataset}", "-q", query],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert {row["?name"] for row in json.loads(found.stdout)} == names
