"""Pages: what is data, what is metadata, and which label a quad carries."""

from datetime import UTC, datetime

import pytest

from annotations.labels import Expiration, Interval
from annotations.terms import Quad, Term
from tpf_client.errors import PageError, ParseError
from tpf_client.fragments.parser import PageReader

URL = "http://ex.org/d?p=x"
PREFIXES = """
@prefix : <http://ex.org/> . @prefix hydra: <http://www.w3.org/ns/hydra/core#> .
@prefix void: <http://rdfs.org/ns/void#> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix sd: <http://www.w3.org/ns/sparql-service-description#> .
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
    facts, about, warnings, _ = PageReader().read(TRIG.encode(), "application/trig;charset=x", URL)
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
    assert about.labellings == {"expiration", "interval"}
    assert about.earliest_expiration == until
    assert about.evaluated_at == datetime(2019, 12, 31, 23, 59, 50, 1, tzinfo=UTC)
    assert about.plain_view == "http://ex.org/d/plain?p=x"
    assert about.form is not None
    assert about.form.graph == "g"


def test_metadata_of_a_triple_page_are_told_from_its_data() -> None:
    turtle = PREFIXES + ":a :delay 5 . :a foaf:primaryTopic :x ." + FORM + COUNTS
    facts, about, _, _ = PageReader().read(turtle.encode(), "text/turtle", URL)
    assert {fact.quad.predicate for fact in facts} == {
        _term("delay"),
        Term("<http://xmlns.com/foaf/0.1/primaryTopic>"),
    }
    assert about.count == 250
    assert about.form is not None


def test_a_missing_or_senseless_count_is_unknown() -> None:
    for count in ("", '<http://ex.org/d?p=x> void:triples "many" .'):
        page = PREFIXES + "<#metadata> { <#metadata> foaf:primaryTopic <http://ex.org/d?p=x> ."
        _, about, _, _ = PageReader().read(
            (page + FORM + count + "}").encode(), "application/trig", URL
        )
        assert about.count is None


@pytest.mark.parametrize(
    ("body", "media_type", "error"),
    [
        (b"<html></html>", "text/html", ParseError),
        (b"", "", ParseError),
        (TRIG[:-200].encode(), "application/trig", ParseError),
        (b"\xff\xfe", "application/trig", ParseError),
        (b"<a> <b> <c> .", "text/turtle", PageError),
        (b"", "text/turtle", PageError),
    ],
)
def test_what_is_no_page(body: bytes, media_type: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"http://ex\.org/d\?p=x"):
        PageReader().read(body, media_type, URL)
