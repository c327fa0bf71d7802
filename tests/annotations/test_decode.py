"""Older forms, blank nodes and malformed annotations."""

from datetime import UTC, datetime

import pyoxigraph as ox
import pytest

from annotations.errors import AnnotationError, DecodeError, InstantError, LabelError, OverlapError
from annotations.labels import Expiration, Fact, Interval
from annotations.methods import method_named
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri, literal
from tests.support.facts import NAMING
from tests.support.oracle import quad_of

PREFIXES = """
PREFIX : <http://example.org/>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX tmp: <http://example.org/temporal#>
PREFIX sp: <http://example.org/singletonproperties#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""


def ex(name: str) -> Term:
    return iri(f"http://example.org/{name}")


def at(hour: int) -> datetime:
    return datetime(2015, 12, 8, hour, tzinfo=UTC)


def quads(text: str) -> list[Quad]:
    return [quad_of(quad) for quad in ox.parse(PREFIXES + text, format=ox.RdfFormat.TRIG)]


def decode(method: str, text: str) -> list[Fact]:
    return method_named(method).decode(quads(text), NAMING)


def problems(method: str, text: str) -> tuple[list[Fact], list[AnnotationError]]:
    found: list[AnnotationError] = []
    facts = method_named(method).decode(quads(text), NAMING, on_error=found.append)
    return facts, found


FACT = Quad(ex("s"), ex("p"), literal("5"))


@pytest.mark.parametrize(
    "label",
    [
        ':p1 tmp:expiration "2015-12-08T10:00:00Z"^^xsd:dateTime .',
        ':p1 tmp:expiration "2015-12-08T11:00:00+01:00"^^xsd:dateTimeStamp .',
        ':p1 tmp:expiration "2015-12-08T10:00:00.000Z"^^<xsd:dateTimeStamp> .',
    ],
)
def test_datatypes_of_instants(label: str) -> None:
    text = ':s :p1 "5" . :p1 sp:singletonPropertyOf :p .' + label
    assert decode("singleton-property", text) == [Fact(FACT, Expiration(at(10)))]


@pytest.mark.parametrize(
    "label",
    [
        ":g tmp:interval [ tmp:initial {0} ; tmp:final {1} ]",
        ":g tmp:interval :i . :i tmp:initial {0} ; tmp:final {1}",
        ":g tmp:intervalInitial {0} ; tmp:intervalFinal {1}",
    ],
)
def test_forms_of_intervals(label: str) -> None:
    nine, ten = ('"2015-12-08T09:00:00Z"^^xsd:dateTime', '"2015-12-08T10:00:00Z"^^xsd:dateTime')
    text = f':g {{ :s :p "5" }} {label.format(nine, ten)} .'
    assert decode("named-graph", text) == [Fact(FACT, Interval(at(9), at(10)))]


def test_blank_nodes_carry_labels() -> None:
    expiration = 'tmp:expiration "2015-12-08T10:00:00Z"^^xsd:dateTime'
    expected = [Fact(FACT, Expiration(at(10)))]
    reified = (
        f'[] a rdf:Statement ; rdf:subject :s ; rdf:predicate :p ; rdf:object "5" ; {expiration} .'
    )
    assert decode("reification", reified) == expected
    assert decode("rdf-1.2", f':s :p "5" . [] rdf:reifies <<( :s :p "5" )>> ; {expiration} .') == (
        expected
    )
    assert decode("rdf-1.2", f':s :p "5" {{| {expiration} |}} .') == expected
    assert decode("named-graph", f'_:g {{ :s :p "5" }} _:g {expiration} .') == expected


def test_the_history_of_a_fact() -> None:
    text = """
        :s :p "5" .
        <http://elsewhere.example/?object=%225%22&subject=urn:s&predicate=urn%3Ap>
            tmp:interval :i1, :i2 .
        <urn:s> <urn:p> "5" .
        :i1 tmp:initial "2015-12-08T08:00:00Z"^^xsd:dateTime ;
            tmp:final "2015-12-08T09:00:00Z"^^xsd:dateTime .
        :i2 tmp:initial "2015-12-08T09:00:00Z"^^xsd:dateTime ;
            tmp:final "2015-12-08T10:00:00Z"^^xsd:dateTime .
    """
    quad = Quad(iri("urn:s"), iri("urn:p"), literal("5"))
    assert decode("implicit-graph", text) == [
        Fact(FACT),
        Fact(quad, Interval(at(8), at(9))),
        Fact(quad, Interval(at(9), at(10))),
    ]


def test_one_node_may_label_several_facts() -> None:
    expiration = 'tmp:expiration "2015-12-08T10:00:00Z"^^xsd:dateTime'
    label = Expiration(at(10))
    assert decode("named-graph", f':g {{ :s :p "5" . :s2 :p "5" }} :g {expiration} .') == [
        Fact(FACT, label),
        Fact(FACT._replace(subject=ex("s2")), label),
    ]


def test_what_has_no_label_is_static() -> None:
    text = """
        :x a rdf:Statement ; rdf:subject :s ; rdf:predicate :p ; rdf:object "5" .
        :p1 sp:singletonPropertyOf :p . :s :p1 "5" . :g tmp:graph :h . :g { :s :p "5" }
        :x rdf:reifies <<( :s :p "5" )>> .
    """
    for method in ("singleton-property", "named-graph", "implicit-graph", "reification", "rdf-1.2"):
        assert decode(method, text) == [Fact(quad) for quad in quads(text)]


def test_what_else_is_said_of_a_labelled_node_is_kept() -> None:
    text = """:x rdf:subject :s ; rdf:predicate :p ; rdf:object "5" ; :source :feed ;
        tmp:expiration "2015-12-08T10:00:00Z"^^xsd:dateTime ."""
    assert set(decode("reification", text)) == {
        Fact(FACT, Expiration(at(10))),
        Fact(Quad(ex("x"), ex("source"), ex("feed"))),
    }


NAMELESS = 'tmp:expiration "2015-12-08T10:00:00"^^xsd:dateTime'
AT_TEN = '"2015-12-08T10:00:00Z"^^xsd:dateTime'
AT_ELEVEN = '"2015-12-08T11:00:00Z"^^xsd:dateTime'
TEN = f"tmp:expiration {AT_TEN}"
NAMED = ':g { :s :p "5" } :g'


@pytest.mark.parametrize(
    ("method", "text", "error", "message"),
    [
        ("named-graph", f"{NAMED} {NAMELESS} .", InstantError, "time zone"),
        ("named-graph", f'{NAMED} tmp:expiration "soon" .', InstantError, "soon"),
        ("named-graph", f"{NAMED} tmp:expiration :t .", InstantError, "instant"),
        ("named-graph", f":g {TEN} .", DecodeError, "no statement"),
        ("named-graph", f"{NAMED} {TEN} ; tmp:graph :a, :b .", DecodeError, "2 values"),
        ("named-graph", f"{NAMED} tmp:interval :i .", DecodeError, "exactly one"),
        ("named-graph", f"{NAMED} tmp:intervalInitial {AT_TEN} .", DecodeError, "exactly one"),
        ("named-graph", f"{NAMED} tmp:interval [ tmp:initial {AT_TEN} ; tmp:final {AT_TEN} ] .",
         LabelError, "end after"),
        ("named-graph", f"{NAMED} {TEN}, {AT_ELEVEN} .", OverlapError, "overlap"),
        ("named-graph", f':g2 {{ :s :p "6" }} {NAMED} {TEN} . :g2 {TEN} .',
         OverlapError, "overlap"),
        ("singleton-property", f':s :p1 "5" . :p1 sp:singletonPropertyOf tmp:expiration ; {TEN} .',
         DecodeError, "cannot be labelled"),
        ("singleton-property", f':s :p1 "5" . :p1 {TEN} .', DecodeError, "singletonPropertyOf"),
        ("singleton-property", f":p1 sp:singletonPropertyOf :p ; {TEN} .", DecodeError,
         "no statement"),
        ("singleton-property", f':s :p1 "5" . :p1 sp:singletonPropertyOf :p, :q ; {TEN} .',
         DecodeError, "2 values"),
        ("implicit-graph", f":x {TEN} .", DecodeError, "not the IRI of the fragment"),
        ("implicit-graph",
         f"<http://example.org/trains?subject=urn%3As&predicate=urn%3Ap&object=urn%3Ao> {TEN} .",
         DecodeError, "do not hold"),
        ("reification", f":x {TEN} .", DecodeError, "labels no fact"),
        ("reification", f":x rdf:subject :s ; rdf:object :o ; {TEN} .", DecodeError, "predicate"),
        ("reification", f":x rdf:subject :s ; rdf:predicate :p ; rdf:object :o, :o2 ; {TEN} .",
         DecodeError, "found 2"),
        ("rdf-1.2", f":x {TEN} .", DecodeError, "reifies"),
        ("rdf-1.2", f":x rdf:reifies :t ; {TEN} .", DecodeError, "not a triple term"),
        ("rdf-1.2", f':x rdf:reifies <<( :s :p "5" )>> ; {TEN} .', DecodeError, "not stated"),
        ("rdf-1.2", f':s :p "5" . :i tmp:initial {AT_TEN} ; tmp:final {AT_ELEVEN} .', DecodeError,
         "nothing is labelled"),
    ],
)  # fmt: skip
def test_wrong_annotations_are_refused_or_reported(
    method: str, text: str, error: type[AnnotationError], message: str
) -> None:
    with pytest.raises(error, match=message):
        decode(method, text)
    good = f'{text} :other :stays "as it is" .'
    facts, found = problems(method, good)
    assert type(found[0]) is error
    assert message in str(found[0])
    assert len(found) == 1
    assert Fact(Quad(ex("other"), ex("stays"), literal("as it is"))) in facts


def test_a_fact_whose_label_cannot_be_read_does_not_become_static() -> None:
    facts, found = problems("rdf-1.2", f':s :p "5" {{| {NAMELESS} |}} . :s :q "6" {{| {TEN} |}} .')
    assert facts == [Fact(Quad(ex("s"), ex("q"), literal("6")), Expiration(at(10)))]
    assert [type(error) for error in found] == [InstantError]


def test_of_overlapping_labels_the_earliest_stays() -> None:
    interval = (
        ':{0} {{ :s :p "{0}" }} :{0} tmp:interval [ '
        'tmp:initial "2015-12-08T{1}:00:00Z"^^xsd:dateTime ; '
        'tmp:final "2015-12-08T{2}:00:00Z"^^xsd:dateTime ] . '
    )
    text = (
        interval.format("b", 10, 12) + interval.format("a", "09", 11) + interval.format("c", 11, 13)
    )
    facts, found = problems("named-graph", text)
    assert [fact.quad.object for fact in facts] == [literal("a"), literal("c")]
    assert [type(error) for error in found] == [OverlapError]


def test_the_key_may_be_the_whole_triple() -> None:
    text = f':g {{ :s :p "5" }} :g2 {{ :s :p "6" }} :g {TEN} . :g2 {TEN} .'
    facts = method_named("named-graph").decode(quads(text), NAMING, key="triple")
    assert [fact.quad.object for fact in facts] == [literal("5"), literal("6")]
    assert all(fact.quad.graph == DEFAULT_GRAPH for fact in facts)
