"""Pages hold the published facts and their own metadata, nothing else."""

import json
import warnings
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from rdflib.term import Node

from annotations.instants import format_instant
from annotations.methods import METHODS
from annotations.methods.base import FactPattern
from annotations.terms import (
    Quad,
    QuadPattern,
    Term,
    Variable,
    is_triple_term,
    literal,
    literal_parts,
)
from tests.faults.shots import Shot, fire
from tests.support.examples import examples
from tests.support.served import BASE, Served, parse, quad
from tpf_server.settings import VIEW_NAMES

UNTIL = "expiration=2015-12-08T13:00:00Z"
GENID = f"{BASE}.well-known/genid/trains/"
HYDRA = "http://www.w3.org/ns/hydra/core#"
XSD = "http://www.w3.org/2001/XMLSchema#"
FORMATS = {
    "trig": "application/trig",
    "nq": "application/n-quads",
    "ttl": "text/turtle",
    "nt": "application/n-triples",
    "jsonld": "application/ld+json",
}
WITH_GRAPHS = ("trig", "nq", "jsonld")
INJECTED = quote(">> .\n<urn:injected> <urn:p> <urn:o> .\n<< <a:b> <a:c>", safe="")


@pytest.fixture
def server(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for tests whose publications are refused."""
    with Served(tmp_path_factory.mktemp("refusing")) as server:
        yield server


@pytest.mark.parametrize(
    "name",
    [
        f"b%20)%3E{INJECTED}", "a%20%3Cx%3E", "", "%0A", "a%00", "%FF", "-a", "a.", "a%2Fb", "%61",
        "b)", "é", "%C3%A9%20", '"', "a%3E%20.%0A",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "line",
    [
        "<{}> <urn:p> <urn:o> .",
        "<urn:s> <{}> <urn:o> .",
        "<urn:s> <urn:p> <{}> .",
        "<urn:s> <urn:p> <urn:o> <{}> .",
        "<urn:s> <urn:p> <<( <{}> <urn:p> <urn:o> )>> .",
        "<urn:s> <urn:p> <<( <urn:s> <urn:p> <<( <urn:s> <urn:p> <{}> )>> )>> .",
    ],
)
def test_what_only_looks_like_a_blank_node_is_refused(
    refusing: Served, line: str, name: str
) -> None:
    response = refusing.post(line.format(GENID + name), UNTIL)
    assert response.status_code in (400, 422), response.text
    assert refusing.page("trains/rdf-1.2").data == []


def test_queries_and_bindings_check_names_of_blank_nodes(server: Served) -> None:
    with server:
        for name in ("a%20%3Cx%3E", "%00", ""):
            iri = quote(GENID + name, safe="")
            values = quote(f"(?object) {{ (<{GENID}{name}>) }}", safe="")
            triple = quote(f"<<( <a:b> <a:c> <{GENID}{name}> )>>", safe="")
            for query in (f"subject={iri}", f"values={values}", f"object={triple}"):
                assert server.get(f"trains?{query}").status_code == 400, query


def test_a_name_that_comes_back_is_the_blank_node(server: Served) -> None:
    with server:
        assert server.post("_:x <urn:p> <<( _:x <urn:p> _:y )>> .", UNTIL).status_code == 201
        (row,) = server.page("trains").data
        assert row.subject.startswith(f"<{GENID}")
        text = f'"about {row.subject}"'
        line = f"{row.subject} <urn:q> <<( {row.subject} <urn:p> {text} )>> ."
        assert server.post(line, UNTIL).status_code == 201
        data = server.page(f"trains?subject={quote(row.subject[1:-1], safe='')}").data
        # What stands in a text stays a text.
        assert Quad(row.subject, Term("<urn:q>"), Term(line[:-2].split(" ", 2)[2])) in data
        assert len(data) == 2


FORGED = [
    f"<urn:s> <{HYDRA}next> <http://evil.test/> <{BASE}trains{{}}#metadata> .",
    f'<urn:s> <{HYDRA}template> "http://evil.test/{{{{?s}}}}" <{BASE}trains/plain{{}}#metadata> .',
    f"<{BASE}trains{{}}> <{HYDRA}next> <http://evil.test/> .",
    f"<{BASE}trains/plain#dataset> <{HYDRA}search> <urn:form> <urn:graph> .",
    f'<{BASE}trains{{}}> <http://rdfs.org/ns/void#triples> "0" .',
    f"<{BASE}trains{{}}> <http://example.org/temporal#plainView> <http://evil.test/> .",
    f"<urn:graph> <http://xmlns.com/foaf/0.1/primaryTopic> <{BASE}trains{{}}> .",
    f"<urn:fragment> <http://rdfs.org/ns/void#subset> <{BASE}trains{{}}> .",
]
NAMED_LIKE_THE_DEFAULT_GRAPH = "<urn:s> <urn:p> <urn:o> <urn:ldf:defaultGraph> ."


OF_CONTROLS = (HYDRA, "http://rdfs.org/ns/void#", "http://example.org/temporal#")


def test_what_a_page_says_of_itself_can_nobody_publish(server: Served) -> None:
    own = f"<{BASE}trains"
    with server:
        server.post("<urn:s> <urn:p> <urn:o> .", UNTIL)
        for page in ("", "/plain", "/implicit-graph"):
            rows = parse(server.get(f"trains{page}", "application/n-quads").content, FORMATS["nq"])
            said = {
                row.predicate: row
                for row in rows
                if row.predicate[1:].startswith(OF_CONTROLS)
                and row.subject.startswith(own)
                and "metadata" in row.graph
            }
            assert len(said) > 5
            lines = [f"{' '.join(row[:3])} ." for row in said.values()]
            tmp, names = "http://example.org/temporal#", ("at", "changes", "nextChange")
            lines += [f'{own}{page}> <{tmp}{name}> "x" .' for name in names]
            for line in lines:
                assert server.post(line, UNTIL).status_code == 422, line


def test_nobody_publishes_metadata_of_our_pages(server: Served) -> None:
    with server:
        for line, page in product(FORGED, ("", "?page=1", ".ttl?predicate=urn:p")):
            response = server.post(line.format(page), UNTIL)
            assert response.status_code == 422
            assert "only the server says this of its own pages" in response.json()["detail"]
            # The same about others is data like any other.
            elsewhere = line.format(page).replace(f"{BASE}trains", "http://other.test/trains")
            assert server.post(elsewhere, UNTIL).status_code == 201
        response = server.post(NAMED_LIKE_THE_DEFAULT_GRAPH, UNTIL)
        assert response.status_code == 422
        assert "requests call the default graph <urn:ldf:defaultGraph>" in response.json()["detail"]


def test_metadata_from_a_file_do_not_reach_a_page(tmp_path: Path) -> None:
    honest = quad("a", "p", "o")
    quads = {
        suffix: [
            parse(line.format(f".{suffix}").encode(), "application/n-quads")[0] for line in FORGED
        ]
        for suffix in FORMATS
    }
    (other,) = parse(NAMED_LIKE_THE_DEFAULT_GRAPH.encode(), "application/n-quads")
    everything = {honest, other}.union(*quads.values())
    with Served(tmp_path, everything, live=False, settings={"page_size": 100}) as served:
        bodies = {suffix: served.get(f"trains.{suffix}").content for suffix in FORMATS}
    for suffix, forgeries in quads.items():
        rows = set(parse(bodies[suffix], FORMATS[suffix]))
        triples = {row.triple for row in rows}
        graph = Term(f"<{BASE}trains.{suffix}#metadata>")
        assert other not in rows
        said = {row.triple for row in rows if row.graph == graph}
        assert suffix not in WITH_GRAPHS or honest in rows
        for forged in forgeries:
            if suffix in WITH_GRAPHS:
                assert forged.triple not in said
                assert (forged in rows) == (
                    "metadata" not in forged.graph and "primaryTopic" not in forged.predicate
                )
            else:
                assert forged.triple not in triples or "#metadata" in forged.graph


# Whatever is published comes back

TEXTS = st.text(max_size=6) | st.sampled_from(
    ['"', "\\", "\n", "\r", "\t", "\x00", "\x7f", "\ufffe", "\u2028", "<", "> .\n", ")>>", "'",
     '"""', "}", "\U0001f682", "a b", "\\u0041", "^^", "@en", "\u202e", "_:b"]
)  # fmt: skip
IRIS = st.builds(
    lambda scheme, rest: f"{scheme}:{rest}",
    st.sampled_from(["urn:x", "http://example.org/", "a", "http://server.test/trains"]),
    st.text(
        st.sampled_from("ab:/?#[]@!$&'()*+,;=-._~%é🚂\u00a0\u202e{}|^`\\ <>\"\n\x00"), max_size=6
    ),
)
TAGS = st.sampled_from(["en", "de-CH", "ar--rtl", "x", "en-a-b"])
LITERALS = st.one_of(
    st.builds(literal, TEXTS),
    st.builds(literal, TEXTS, TAGS),
    TEXTS.map(lambda text: Term(f"{literal(text)}^^<http://example.org/d>")),
    st.sampled_from([Term(f'"1"^^<{XSD}{name}>') for name in ("integer", "string", "anyURI")]),
    st.just(Term('"{}"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON>')),
)
LABELS = ("b", "é", "a.b", "1", "a-b", "a·b", "🚂")
BLANK = st.sampled_from([Term(f"_:{label}") for label in LABELS])
NAMES = IRIS.map(lambda text: Term(f"<{text}>"))
PLAIN = NAMES | BLANK | LITERALS
TRIPLE_TERMS = st.recursive(
    st.builds(lambda s, p, o: Term(f"<<( {s} {p} {o} )>>"), NAMES | BLANK, NAMES, PLAIN),
    lambda inner: st.builds(lambda s, p, o: Term(f"<<( {s} {p} {o} )>>"), NAMES, NAMES, inner),
    max_leaves=2,
)
QUADS = st.builds(
    Quad,
    NAMES | BLANK,
    NAMES,
    PLAIN | TRIPLE_TERMS,
    st.just(Term("")) | NAMES | BLANK,
)


def accepted(row: Quad) -> bool:
    """True if the parser accepts it."""
    line = " ".join(filter(None, row)) + " .\n"
    try:
        return parse(line.encode(), "application/n-quads") == [row]
    except (SyntaxError, ValueError):
        return False


def by_rdflib(body: bytes, suffix: str) -> set[tuple[object, ...]]:
    """The quads of a page by another parser."""
    found = rdflib.Dataset(default_union=False)
    name = {"nq": "nquads", "jsonld": "json-ld", "ttl": "turtle"}.get(suffix, suffix)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as changed:
        changed.setattr(rdflib, "NORMALIZE_LITERALS", False)
        warnings.simplefilter("ignore", DeprecationWarning)  # of rdflib, about itself
        found.parse(data=body, format=name)
    default = (None, rdflib.URIRef("urn:x-rdflib:default"))
    return {
        (*map(plainly, (s, p, o)), "" if g in default else str(g)) for s, p, o, g in found.quads()
    }


def plainly(node: Node) -> tuple[str, ...]:
    if isinstance(node, rdflib.Literal):
        return str(node), (node.language or "").lower(), str(node.datatype or "")
    assert isinstance(node, rdflib.URIRef | rdflib.BNode)
    return (str(node),)


ANY = QuadPattern(*[Variable(f"?{name}") for name in "spog"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Facts of one example have ended when the next comes."""
    static = [quad("_:b", "p", '"text"'), quad("a", "p", "_:b", "_:b")]
    with Served(tmp_path, static, dataset={"key": "triple"}) as running:
        yield running


def ending(served: Served) -> str:
    """The label of an example."""
    now = served.clock.now() + timedelta(seconds=10)
    served.clock.advance_to(now)
    return f"expiration={format_instant(now + timedelta(seconds=5))}"


def get(served: Served, path: str) -> bytes:
    """A page, asked for in process."""
    answer = fire(served.app, Shot("GET", f"/{path}".encode()))
    assert answer.status == 200, answer.body
    return answer.body


@examples(8, fixtures=True)
@given(rows=st.lists(QUADS.filter(accepted), min_size=1, max_size=6))
def test_every_page_reads_back_as_what_was_published(served: Served, rows: list[Quad]) -> None:
    body = "".join(" ".join(filter(None, row)) + " .\n" for row in rows)
    response = served.post(body, ending(served))
    assert response.status_code in (201, 422), response.text
    assert served.live is not None
    assert served.dataset.static is not None
    facts = served.live.facts(FactPattern(), served.live.snapshot(served.clock.now()), 0, 100)
    static = list(served.dataset.static.quads(ANY, 0, 10))
    for view in VIEW_NAMES:
        endpoint = served.app.extensions["tpf_server"].endpoints(BASE)[f"trains/{view}"]
        method = next((each for each in METHODS if each.name == view), None)
        encoded = [*static]
        for fact in facts:
            encoded += method.encode(fact, endpoint.view.naming) if method else [fact.quad]
        shown = {endpoint.skolemizer.quad(row) for row in encoded}
        for suffix, media_type in FORMATS.items():
            path = f"trains/{view}.{suffix}"
            check_page(get(served, path), f"{BASE}{path}", suffix, media_type, shown)


def check_page(body: bytes, url: str, suffix: str, media_type: str, shown: set[Quad]) -> None:
    graph = f"<{url}#metadata>"
    rows = parse(body, media_type)
    if suffix in WITH_GRAPHS:
        data = {row for row in rows if row.graph != graph}
        if suffix == "jsonld" and any(is_triple_term(row.object) for row in shown):
            assert len(data) > len(shown)
        else:
            assert data == shown
        metadata = {row.triple for row in rows if row.graph == graph}
    else:
        triples = {row.triple for row in shown}
        assert triples <= {row.triple for row in rows}
        metadata = {row.triple for row in rows} - triples
    # Nothing in the metadata but what pages say of themselves.
    for triple in metadata:
        assert triple.subject.startswith(("_:", f"<{BASE}trains")), triple
    if "/plain." not in url and "/named-graph." not in url:
        return  # the other parser takes most of the time, and each view writes by the same writers
    terms = {term for row in [*rows, *shown] for term in row}
    if any(is_triple_term(term) or "--" in term or "\u00a0" in term for term in terms):
        return  # the other parser knows neither RDF 1.2 nor IRIs with all characters
    expected = {
        (*map(_plain_term, row[:3]), row.graph[1:-1] if suffix in WITH_GRAPHS else "")
        for row in shown
    }
    found = by_rdflib(body, suffix)
    if suffix in WITH_GRAPHS:
        found = {row for row in found if row[3] != graph[1:-1]}
        assert found == expected
    else:
        assert expected <= {(*row[:3], "") for row in found}


def _plain_term(term: str) -> tuple[str, ...]:
    if term[0] != '"':
        return (term[1:-1],)
    lexical, language, datatype = literal_parts(term)
    suffix = term[term.rfind('"') + 1 :]
    return lexical, (language or "").lower(), datatype if suffix.startswith("^^") else ""


@pytest.mark.parametrize("field", ["@id", "predicate", "@type", "value type", "graph", "language"])
@examples(6, fixtures=True)
@given(text=IRIS.map(str) | TEXTS)
def test_no_text_in_a_body_of_json_ld_breaks_a_page(served: Served, field: str, text: str) -> None:
    node: dict[str, object] = {"@id": "urn:s", "urn:p": "x"}
    match field:
        case "@id":
            node["@id"] = text
        case "predicate":
            node[text] = "x"
        case "@type":
            node["@type"] = text
        case "value type":
            node["urn:p"] = {"@value": "x", "@type": text}
        case "language":
            node["urn:p"] = {"@value": "x", "@language": text}
        case _:
            node = {"@id": text, "@graph": [node]}
    response = served.post(json.dumps(node), ending(served), "application/ld+json")
    assert response.status_code in (201, 400, 422), response.text
    check_parsable(served)


def check_parsable(served: Served) -> None:
    for view in ("", "/named-graph", "/rdf-1.2"):
        for suffix, media_type in FORMATS.items():
            parse(get(served, f"trains{view}.{suffix}"), media_type)


@examples(20, fixtures=True)
@given(
    texts=st.tuples(*[IRIS | TEXTS | LITERALS | TRIPLE_TERMS | st.just(f"{BASE}x")] * 3),
    graph=st.none() | IRIS | TEXTS,
)
def test_no_label_of_an_implicit_graph_breaks_a_page(
    served: Served, texts: tuple[str, str, str], graph: str | None
) -> None:
    pairs = [*zip(("subject", "predicate", "object"), texts, strict=True)]
    pairs += [("graph", graph)] if graph is not None else []
    node = f"{BASE}trains/implicit-graph?" + "&".join(
        f"{name}={quote(text, safe='')}" for name, text in pairs
    )
    end = ending(served).partition("=")[2]
    date_time = "<http://www.w3.org/2001/XMLSchema#dateTime>"
    line = f'<{node}> <http://example.org/temporal#expiration> "{end}"^^{date_time} .'
    response = served.post(line, "annotation=implicit-graph")
    assert response.status_code < 500, response.text
    check_parsable(served)
