"""Pages: data, metadata, and labels of quads."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Interval
from annotations.terms import Quad, Term
from tests.support.examples import examples
from tests.support.oracle import quad_of
from tpf_client.errors import PageError
from tpf_client.fragments.form import Form
from tpf_client.fragments.page_reader import PageReader

URL = "http://ex.org/d?p=x"
PREFIXES = """
@prefix : <http://ex.org/> . @prefix hydra: <http://www.w3.org/ns/hydra/core#> .
@prefix void: <http://rdfs.org/ns/void#> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix sd: <http://www.w3.org/ns/sparql-service-description#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix tmp: <http://example.org/temporal#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
FORM = """
<http://ex.org/d#dataset> hydra:search [ hydra:template "http://ex.org/d{?s,p,o,g}" ;
    hydra:mapping [ hydra:variable "s" ; hydra:property rdf:subject ] ,
        [ hydra:variable "p" ; hydra:property rdf:predicate ] ,
        [ hydra:variable "o" ; hydra:property rdf:object ] ,
        [ hydra:variable "g" ; hydra:property sd:graph ] ] .
"""
COUNTS = "<http://ex.org/d?p=x> void:triples 250 ; hydra:itemsPerPage 100 ."
TRIG = (
    PREFIXES
    + ":a :delay 5, 6 ; :platform '2' . :b :delay 7 . GRAPH :g { :a :delay 8 }"
    + "<#metadata> { <#metadata> foaf:primaryTopic <http://ex.org/d?p=x> ."
    + FORM
    + COUNTS
    + """
    <http://ex.org/d?p=x> hydra:next <http://ex.org/d?p=x&page=2> ; tmp:dynamicTriples 3 ;
        tmp:annotationMethod "plain" ; tmp:labelling "expiration", "interval" ;
        tmp:earliestExpiration "2020-01-01T00:00:00Z"^^xsd:dateTime ;
        tmp:evaluatedAt "2019-12-31T23:59:50.000001Z"^^xsd:dateTime ;
        tmp:plainView <http://ex.org/d/plain?p=x> .
    [] tmp:expiration "2020-01-01T00:00:00Z"^^xsd:dateTime ; tmp:predicate :delay ;
        tmp:subject :a ; tmp:object 5 .
    [] tmp:initial "2019-01-01T00:00:00Z"^^xsd:dateTime ;
        tmp:final "2020-02-01T00:00:00Z"^^xsd:dateTime ; tmp:predicate :platform ; tmp:subject :a .
    [] tmp:expiration "2020-03-01T00:00:00Z"^^xsd:dateTime ; tmp:predicate :delay ;
        tmp:subject :a ; tmp:graph :g .
    [] tmp:expiration "never"^^xsd:dateTime ; tmp:predicate :delay ; tmp:subject :b .
    }"""
)


def _term(name: str) -> Term:
    return Term(f"<http://ex.org/{name}>")


def _integer(value: int) -> Term:
    return Term(f'"{value}"^^<http://www.w3.org/2001/XMLSchema#integer>')


def test_data_metadata_and_labels_of_a_quad_page() -> None:
    facts, about, warnings = PageReader().read(TRIG.encode(), "application/trig;charset=x", URL)
    until = datetime(2020, 1, 1, tzinfo=UTC)
    labels = {fact.quad: fact.label for fact in facts}
    assert labels == {
        Quad(_term("a"), _term("delay"), _integer(5)): Expiration(until),
        Quad(_term("a"), _term("delay"), _integer(6)): None,
        Quad(_term("a"), _term("platform"), Term('"2"')): Interval(
            datetime(2019, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)
        ),
        Quad(_term("b"), _term("delay"), _integer(7)): None,
        Quad(_term("a"), _term("delay"), _integer(8), _term("g")): Expiration(
            datetime(2020, 3, 1, tzinfo=UTC)
        ),
    }
    assert len(warnings) == 1
    assert "never" in warnings[0]
    assert (about.count, about.page_size, about.dynamic) == (250, 100, 3)
    assert about.next_page == "http://ex.org/d?p=x&page=2"
    assert about.method == "plain"
    assert about.earliest_expiration == until
    assert about.evaluated_at == datetime(2019, 12, 31, 23, 59, 50, 1, tzinfo=UTC)
    assert about.plain_view == "http://ex.org/d/plain?p=x"
    assert about.form is not None
    assert about.form.graph == "g"


def test_a_missing_or_senseless_count_is_unknown() -> None:
    for count in ("", '<http://ex.org/d?p=x> void:triples "many" .'):
        page = PREFIXES + "<#metadata> { <#metadata> foaf:primaryTopic <http://ex.org/d?p=x> ."
        _, about, _ = PageReader().read(
            (page + FORM + count + "}").encode(), "application/trig", URL
        )
        assert about.count is None


# Any data may speak of forms, counts and topics, in any format.

_HYDRA, _VOID = "http://www.w3.org/ns/hydra/core#", "http://rdfs.org/ns/void#"
_WORDS = [
    *(f"<{_HYDRA}{name}>" for name in (
        "search", "template", "mapping", "variable", "property", "next", "nextPage", "first",
        "previous", "last", "totalItems", "itemsPerPage", "limit", "view",
    )),
    *(f"<{_VOID}{name}>" for name in ("triples", "subset", "vocabulary")),
    *(f"<http://example.org/temporal#{name}>" for name in (
        "predicate", "subject", "object", "expiration", "mapping", "dynamicTriples", "changes",
        "evaluatedAt", "nextChange", "plainView", "annotationMethod", "labelling", "at",
    )),
    "<http://xmlns.com/foaf/0.1/primaryTopic>",
    "<http://www.w3.org/ns/sparql-service-description#defaultGraph>",
    "<http://purl.org/dc/terms/source>", "<http://ex.org/delay>",
]  # fmt: skip
_ELSEWHERE = [f"<http://ex.org/{name}>" for name in "abc"]
_NEAR = [
    *(f"<http://ex.org/d#{name}>" for name in ("a", "b", "metadata", "pattern")),
    "<http://ex.org/d?p=x#a>",
    "<http://ex.org/d?p=x#metadata>",
    "<http://ex.org/d?p=y>",
    "<http://ex.org/d?p=y#metadata>",
    "<http://ex.org/d/a>",
    "<http://ex.org/dd>",
    "_:a",
    "_:b",
]
"""Names that data may have beside the page, its fragment and its dataset."""
_OWN = ["<http://ex.org/d#dataset>", "<http://ex.org/d?p=x>"]
_ABOUT = [f"<http://ex.org/{name}>" for name in ("delay", "publisher")] + [
    "<http://purl.org/dc/terms/license>",
    "<http://purl.org/dc/terms/publisher>",
    "<http://www.w3.org/2000/01/rdf-schema#seeAlso>",
]
"""What data may say of the page and its dataset themselves: no words of interfaces."""
_VALUES = ['"0"', _integer(0), '"http://ex.org/a{?s,p,o}"', '"s"', '"2001-01-01T00:00:00Z"']
_THINGS = [*_ELSEWHERE, *_NEAR]
_spoken = st.one_of(
    st.builds(
        lambda s, p, o: Quad(Term(s), Term(p), Term(o)),
        st.sampled_from(_THINGS), st.sampled_from(_WORDS), st.sampled_from([*_THINGS, *_VALUES]),
    ),
    st.builds(
        lambda s, p, o: Quad(Term(s), Term(p), Term(o)),
        st.sampled_from(_OWN), st.sampled_from(_ABOUT), st.sampled_from([*_THINGS, *_VALUES]),
    ),
    st.builds(
        lambda s, p, o: Quad(Term(s), Term(p), Term(o)),
        st.sampled_from(_ELSEWHERE), st.sampled_from(_WORDS), st.sampled_from(_OWN),
    ),
)  # fmt: skip
_DATA_FORM = """:a hydra:search :b . :b hydra:template "http://ex.org/a{?s,p,o}" ;
    hydra:mapping :c . :c hydra:variable "s" ; hydra:property rdf:subject ."""
_MORE = "hydra:next <http://ex.org/d?p=x&page=2>"
_PAGES = {
    "a page": f"<http://ex.org/d?p=x> void:triples 250 ; hydra:itemsPerPage 100 ; {_MORE} .",
    "a fragment and its page": f"""<http://ex.org/d#dataset> void:subset <http://ex.org/d?p=x> .
        <http://ex.org/d?p=x&page=1> void:subset <http://ex.org/d?p=x> .
        <http://ex.org/d?p=x> hydra:totalItems 250 ; {_MORE} .""",
    "another way to write the URL": f"""<http://ex.org/d?p=x&q=> void:triples 250 ; {_MORE} .
        <http://ex.org/d#dataset> void:subset <http://ex.org/d?p=x&q=> .""",
    "a collection and its view": f"""<http://ex.org/d> hydra:view <http://ex.org/d?p=x> ;
        hydra:totalItems 250 . <http://ex.org/d?p=x> {_MORE} .""",
    "the reference server": f"""<http://ex.org/#dataset> hydra:member <http://ex.org/d#dataset> .
        <http://ex.org/d#dataset> a void:Dataset, hydra:Collection ; void:subset
            <http://ex.org/d?p=x>, <http://ex.org/d?p=x&page=1> ; dct:title "d" ;
            sd:defaultGraph <urn:ldf:defaultGraph> .
        <http://ex.org/d?p=x> void:subset <http://ex.org/d?p=x&page=1> .
        <http://ex.org/d?p=x&page=1> a hydra:PartialCollectionView ; dct:title "of d"@en ;
            dct:description "?s x ?o"@en ; dct:source <http://ex.org/d#dataset> ;
            hydra:totalItems 250 ; void:triples 250 ; hydra:itemsPerPage 100 ;
            hydra:first <http://ex.org/d?p=x&page=1> ; {_MORE} .""",
    "labels": f"""<http://ex.org/d?p=x> void:triples 250 ; tmp:dynamicTriples 3 ; {_MORE} .
        [] tmp:expiration "2020-01-01T00:00:00Z"^^xsd:dateTime ; tmp:predicate :delay ;
            tmp:subject :a .""",
    "another name of the server": f"""<http://inside/d#dataset> hydra:search <http://inside/f> ;
        void:subset <http://inside/d?p=x> . <http://inside/d?p=x> void:triples 250 ; {_MORE} .""",
}  # fmt: skip
_TRIPLES = [ox.RdfFormat.TURTLE, ox.RdfFormat.N_TRIPLES, ox.RdfFormat.RDF_XML]
_QUADS = [ox.RdfFormat.TRIG, ox.RdfFormat.N_QUADS, ox.RdfFormat.JSON_LD]


@examples(150)
@given(
    said=st.frozensets(_spoken, min_size=1, max_size=12),
    page=st.sampled_from(sorted(_PAGES)),
    rdf_format=st.sampled_from(_TRIPLES + _QUADS),
    more=st.sampled_from(["", _DATA_FORM]),
)
def test_only_what_is_about_this_page_is_metadata(
    said: frozenset[Quad], page: str, rdf_format: ox.RdfFormat, more: str
) -> None:
    form = FORM
    if page == "labels":
        # A blank node with a label's instant is a label there.
        said = frozenset(each for each in said if not each.predicate.endswith("#expiration>"))
    if page == "another name of the server":
        form = FORM.replace("http://ex.org/d#dataset", "http://inside/d#dataset")
        form = form.replace("http://ex.org/d{", "http://inside/d{")
        more = ""
    about = list(ox.parse(PREFIXES + form + _PAGES[page], ox.RdfFormat.TURTLE))
    data = {quad_of(each) for each in ox.parse(PREFIXES + more, ox.RdfFormat.TURTLE)} | said
    rows = [_ox_quad(quad) for quad in sorted(data)]
    if rdf_format in _QUADS:
        # A graph of the data that has a topic, as pages have.
        topic = Quad(_term("g"), Term("<http://xmlns.com/foaf/0.1/primaryTopic>"), _term("a"))
        data |= {each._replace(graph=_term("g")) for each in (*said, topic)}
        rows = [_ox_quad(quad) for quad in sorted(data)]
        graph = ox.NamedNode(URL + "#metadata")
        rows += [ox.Quad(each.subject, each.predicate, each.object, graph) for each in about]
        rows.append(
            ox.Quad(graph, ox.NamedNode("http://xmlns.com/foaf/0.1/primaryTopic"),
                    ox.NamedNode(URL), graph)
        )  # fmt: skip
        body = ox.serialize(rows, format=rdf_format)
    else:
        body = ox.serialize([each.triple for each in (*rows, *about)], format=rdf_format)
    assert body is not None
    facts, metadata, _ = PageReader().read(body, rdf_format.media_type, URL)
    assert _bag(fact.quad for fact in facts) == _bag(data)
    assert metadata.count == 250
    assert metadata.next_page == "http://ex.org/d?p=x&page=2"
    assert metadata.form is not None
    assert metadata.form.template.endswith("/d{?s,p,o,g}")
    assert metadata.dynamic == (3 if page == "labels" else None)
    assert metadata.change is None
    labelled = {fact.quad.triple[:2] for fact in facts if fact.label is not None}
    assert labelled <= {(_term("a"), _term("delay"))}


def _bag(rows: Iterable[Sequence[str | None]]) -> Counter[tuple[str, ...]]:
    """Rows, whatever their blank nodes are called."""
    return Counter(tuple(re.sub("^_:.*", "_:", str(term)) for term in row) for row in rows)


def _ox_quad(quad: Quad) -> ox.Quad:
    (made,) = ox.parse(" ".join(filter(None, quad)) + " .", ox.RdfFormat.N_QUADS)
    return made


def _many(line: str) -> Callable[[int], str]:
    return lambda count: "\n".join(line.replace("%", str(n)) for n in range(count))


def _forms_in_common(count: int) -> str:
    """Forms that share mappings with many statements."""
    said = ", ".join(f"<u:p{n}>" for n in range(100))
    mappings = ", ".join(f"<u:m{n}>" for n in range(count))
    forms = "\n".join(
        f'<#d> hydra:search <u:f{n}> . <u:f{n}> hydra:template "/{{?s,p,o}}" ; '
        f"hydra:mapping {mappings} ."
        for n in range(100)
    )
    each = f'hydra:variable "s" ; hydra:property {said} .'
    return forms + "\n".join(f"<u:m{n}> {each}" for n in range(count))


GROWING: dict[str, Callable[[int], str]] = {
    "vocabularies": _many("<u:x%> void:vocabulary <u:v%#> ."),
    "vocabularies of one": _many("<> void:vocabulary <u:v%#> ."),
    "topics": _many("<u:x%> foaf:primaryTopic <u:y%> ."),
    "counts": _many("<u:x%> void:triples % ."),
    "links": _many("<u:x%> hydra:next <u:y%> ."),
    "subsets": _many("<u:x%> void:subset <u:x0%> ."),
    "instants": _many('<u:x%> tmp:evaluatedAt "%", "x%" ; tmp:nextChange "never" .'),
    "labels": _many("<u:x%> tmp:predicate :p ; tmp:subject <u:s%> ; tmp:expiration % ."),
    "labels of one": _many("<u:x> tmp:predicate :p% ; tmp:subject :s% ; tmp:object :o% ."),
    "labels of a product": _many(
        "<u:x> tmp:predicate :p% ; tmp:subject :s% ; tmp:object :o% ; "
        'tmp:expiration "2020-01-01T00:00:00Z"^^xsd:dateTime .'
    ),
    "forms": _many('<#d> hydra:search [ hydra:template "/%{?s,p,o}" ; hydra:mapping [] ] .'),
    "templates": _many('<#d> hydra:search <u:f> . <u:f> hydra:template "/%" .'),
    "mappings": _many("<#d> hydra:search <u:f> . <u:f> hydra:mapping <u:m%> ."),
    "roles": _many('<u:m> hydra:variable "%" ; hydra:property <u:p%> .'),
    "forms in common": _forms_in_common,
}


@pytest.mark.parametrize("how", ["with graphs", "without graphs"])
@pytest.mark.parametrize("kind", GROWING)
def test_work_grows_no_faster_than_the_metadata(kind: str, how: str) -> None:
    """Steps of the interpreter grow in proportion."""

    def steps(count: int) -> int:
        said = PREFIXES + TRIG.replace(PREFIXES, "").replace(
            "<#metadata> {", "<#metadata> { " + GROWING[kind](count)
        )
        media_type = "application/trig"
        if how == "without graphs":
            said = re.sub("GRAPH :g { :a :delay 8 }|<#metadata> {|}$", "", said)
            media_type = "text/turtle"
        return _steps(lambda: PageReader().read(said.encode(), media_type, URL))

    steps(1)  # what is made once, as modules and caches
    few, many, most = (steps(count) for count in (12, 24, 48))
    assert most - many <= 2.5 * (many - few) + 1_000


def _steps(action: Callable[[], object]) -> int:
    """Count the interpreter's steps of an action that may be refused."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except PageError:
        pass
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(
    "template",
    ["{" * 9_900, "{" * 101, "/{?" + "s," * 101 + "}", "{s}" * 101, "/" * 10_001],
)
def test_a_template_with_too_many_parts_is_none(template: str) -> None:
    """Expansion takes quadratic time for some templates."""
    with pytest.raises(ValueError, match="more than"):
        Form(template, "s", "p", "o")
    page = TRIG.replace("http://ex.org/d{?s,p,o,g}", template)
    with pytest.raises(PageError, match="whose template is none"):
        PageReader().read(page.encode(), "application/trig", URL)
