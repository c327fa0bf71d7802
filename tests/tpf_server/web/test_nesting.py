"""Bodies and terms that nest without end, or grow when read, are refused.

Work is counted in calls, and never grows faster than the body.
"""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from urllib.parse import quote

import pytest

from annotations.errors import AnnotationError
from annotations.instants import to_micros
from annotations.labels import Fact, Interval
from annotations.methods import METHODS
from annotations.methods.method import Method
from annotations.terms import MAX_NESTING, Quad, Term
from tests.support.counted_calls import counted_calls
from tests.support.facts import NAMING
from tests.support.served import NOON, Served, quad
from tpf_client.errors import ParseError
from tpf_client.fragments.page_reader import PageReader, parse_page_body
from tpf_server.continuous.runtime.elements.elements import RDF_TYPES, read_rdf
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.errors import BodyError
from tpf_server.store.live.batch import checked, plan, spans
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import Record
from tpf_server.web.bodies import parse_body
from tpf_server.web.publish import parse_patch

UNTIL = "expiration=2999-01-01T00:00:00Z"
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:a="a:"'
GROWING = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))


def triple_term(depth: int) -> str:
    return "<<( <a:s> <a:p> " * depth + "<a:o>" + " )>>" * depth


def turtle(depth: int) -> str:
    return f"<a:x> <a:says> {triple_term(depth)} ."


def json_ld(depth: int) -> str:
    # One more for the document itself.
    return '{"a:p":' * depth + '"x"' + "}" * depth


def rdf_xml(depth: int) -> str:
    nodes = (depth - 1) // 2
    inside = "<a:x><a:p>" * nodes + "</a:p></a:x>" * nodes
    return f"<rdf:RDF {RDF}>{inside}</rdf:RDF>"


@pytest.mark.parametrize("depth", [MAX_NESTING + 2, 20_000])
@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (turtle, "text/turtle"),
        (turtle, "application/n-quads"),
        (lambda depth: "# it's\n" + turtle(depth), "application/trig"),
        (lambda depth: turtle(depth).replace("<a:p> <<", "<a:p> #)>>\n<<"), "text/turtle"),
        (json_ld, "application/ld+json"),
        (rdf_xml, "application/rdf+xml"),
    ],
)
def test_a_body_that_is_nested_too_deep_is_400(
    shared: Served, body: object, media_type: str, depth: int
) -> None:
    assert callable(body)
    response = shared.post(body(depth), UNTIL, media_type)
    assert response.status_code == 400
    assert f"nested more than {MAX_NESTING} deep" in response.json()["detail"]
    assert shared.get("trains").status_code == 200


TAKEN = [
    (turtle(MAX_NESTING), "text/turtle"),
    # None is inside another one; what stands in texts, names and comments does not count.
    ("".join(f"<a:x> <a:p{n}> {triple_term(1)} .\n" for n in range(300)), "text/turtle"),
    (f'<a:x> <a:p> "{"<<( " * 300}" .', "text/turtle"),
    (f'<a:x> <a:p> """{"<<( " * 300}"\n"""  .', "text/turtle"),
    (f"<a:x> <a:p> '{'<<( ' * 300}' . # {'<<( ' * 300}", "text/turtle"),
    (json_ld(MAX_NESTING - 1), "application/ld+json"),
    ('{"@id":"a:x","a:p":"' + "[" * 300 + '\\""}', "application/ld+json"),
    (rdf_xml(MAX_NESTING - 1), "application/rdf+xml"),
]


def test_a_body_that_is_not_is_taken(served: Served) -> None:
    for body, media_type in TAKEN:
        response = served.post(body, UNTIL, media_type)
        assert response.status_code == 201, response.text


@pytest.mark.parametrize("entities", ['<!ENTITY e0 "lol">', f'<!ENTITY e0 "lol">{GROWING}'])
def test_entities_of_xml_are_not_read(shared: Served, entities: str) -> None:
    body = (
        f'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [{entities}]>\n<rdf:RDF {RDF}>'
        '<rdf:Description rdf:about="a:s"><a:p>&e0;</a:p></rdf:Description></rdf:RDF>'
    )
    response = shared.post(body, UNTIL, "application/rdf+xml")
    assert response.status_code == 400
    assert response.json()["detail"] == "line 2: entities are not read; write IRIs out"


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 1_000])
@pytest.mark.parametrize("form", ["<<( <a:s> <a:p> {} )>>", "<<a:s a:p {}>>"])
def test_a_term_that_is_nested_too_deep_is_400(shared: Served, form: str, depth: int) -> None:
    opening, closing = form.split("{}")

    def ask(depth: int) -> str:
        text = opening * depth + "<a:o>" + closing * depth
        return f"trains?object={quote(text, safe='')}"

    response = shared.get(ask(depth))
    assert response.status_code == 400
    assert f"nested more than {MAX_NESTING} deep" in response.json()["detail"]
    assert shared.page(ask(MAX_NESTING)).total == 0


class Compared(str):
    """A term whose comparisons are calls."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other))

    def __hash__(self) -> int:
        return str.__hash__(self)


def grows_no_faster(action: Callable[[int], Callable[[], object]], size: int) -> None:
    def work(make: Callable[[], object]) -> None:
        with suppress(AnnotationError, BodyError):
            make()

    small, large = (counted_calls(partial(work, action(each))) for each in (size, 4 * size))
    assert large < 5 * small


TMP = NAMING.vocabulary
SECOND = timedelta(seconds=1)


def annotated(kind: str, size: int) -> Iterator[tuple[str, ...]]:
    """Annotations of each method that share one node, or whose node has many labels."""
    for number in range(size):
        end = f'"2999-01-01T00:00:00.{number:06}Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'
        match kind:
            case "labels":
                yield "<urn:x>", TMP.expiration, end, ""
            case "facts":
                yield f"<urn:{number}>", "<urn:p>", "<urn:o>", "<urn:x>"
                yield f"<urn:{number}>", "<urn:x>", "<urn:o>", ""
                yield "<urn:s>", "<urn:p>", f"<urn:{number}>", ""
                yield "<urn:x>", REIFIES, f"<<( <urn:s> <urn:p> <urn:{number}> )>>", ""
                yield "<urn:x>", f"<{RDF_NAMESPACE}object>", "<urn:o>", f"<urn:{number}>"
            case "interval":
                yield f"<urn:{number}>", TMP.interval, "<urn:i>", ""
                yield "<urn:i>", TMP.initial, end, f"<urn:{number}>"


RDF_NAMESPACE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
REIFIES = f"<{RDF_NAMESPACE}reifies>"
ONE_OF_EACH = [
    ("<urn:x>", f"<{RDF_NAMESPACE}subject>", "<urn:s>", ""),
    ("<urn:x>", f"<{RDF_NAMESPACE}predicate>", "<urn:p>", ""),
    ("<urn:x>", TMP.singleton_property_of, "<urn:p>", ""),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("kinds", [("labels",), ("labels", "facts"), ("interval", "facts")])
def test_annotations_cost_no_more_than_they_are_long(method: Method, kinds: list[str]) -> None:
    def decoding(size: int) -> Callable[[], object]:
        rows = [*ONE_OF_EACH, *(row for kind in kinds for row in annotated(kind, size))]
        quads = [Quad(*(Term(Compared(term)) for term in row)) for row in rows]
        return lambda: method.decode(quads, NAMING, on_error=lambda _: None)

    grows_no_faster(decoding, 100)


def index_of(size: int) -> FactIndex:
    """An index of consecutive versions of one fact."""
    index = FactIndex("subject-predicate")
    facts = [
        Fact(quad("t1", "platform", f'"{n}"'), Interval(NOON + n * SECOND, NOON + (n + 1) * SECOND))
        for n in range(size)
    ]
    now = to_micros(NOON)
    effects = plan(index, checked(facts, now, accept_past=True, key=index.key), now)
    record = Record(1, now, effects.added, effects.removed, [], [], index.floor, [])
    index.apply(record, lambda *_: None)
    return index


@pytest.mark.parametrize("value", ["its own", "others", "all"])
def test_withdrawals_cost_no_more_than_they_are_long(value: str) -> None:
    def withdrawing(size: int) -> Callable[[], object]:
        index = index_of(size)
        third, now = SECOND / 3, to_micros(NOON)
        gone, said = [], []
        for n in range(size):
            start = NOON + n * SECOND
            if value == "all":
                # Nothing stands any more between what comes.
                within = Interval(NOON, NOON + (size + 1) * SECOND)
                said.append(Fact(quad("t1", "platform", '"x"'), Interval(start, start + third)))
            else:
                within = Interval(start + third, start + 2 * third)
            text = f'"other {n}"' if value == "others" else f'"{n}"'
            gone.append(Fact(quad("t1", "platform", text), within))
        groups = checked(said, now, accept_past=True, key=index.key)
        withdrawals = spans(gone, now, index.key)
        return lambda: plan(index, groups, now, withdrawals)

    grows_no_faster(withdrawing, 50)


def test_transactions_cost_no_more_than_they_are_long() -> None:
    def patching(size: int) -> Callable[[], object]:
        lines = [f"TX .\nA <urn:s> <urn:p> <urn:{n}> .\nT{'CA'[n % 2]} ." for n in range(size)]
        body = "\n".join(lines).encode()
        return lambda: parse_patch(body)

    grows_no_faster(patching, 200)
    kept = parse_patch(b"TX .\nA <a:a> <a:b> <a:c> .\nA <a:a> <a:b> <a:d> .\nTC .\nTX .\n"
                       b"D <a:a> <a:b> <a:c> .\nA <a:a> <a:b> <a:e> .\nTA .")  # fmt: skip
    assert [each.object for each in kept.added] == ["<a:c>", "<a:d>"]
    assert kept.withdrawn == []


def long_term(kind: str) -> tuple[str, int | None]:
    """A document with a term too long for the parser, and its line."""
    text = "x" * (17 << 20)
    match kind:
        case "application/ld+json":
            return f'{{"@id":"a:a",\n"a:b":"{text}"}}', 2
        case "text/turtle":
            return f'<a:a> <a:b> <a:c> .\n<a:a> <a:b> """{text}""" .', 2
        case "application/trig":
            rows = "\n".join([text[:1_000]] * 18_000)
            return f'<a:a> <a:b> """{rows}""" .', None
    return f'<a:a> <a:b> <a:c> .\n\n<a:a> <a:b> "{text}" .', 3


@pytest.mark.parametrize(
    "kind", ["application/n-quads", "text/turtle", "application/trig", "application/ld+json"]
)
def test_a_term_that_is_too_long_for_the_parser_is_an_error_of_the_document(kind: str) -> None:
    document, line = long_term(kind)
    body = document.encode()
    reason = "a term is too long (Reached the buffer maximal size of 16777216)"
    said = f"line {line}: {reason}" if line else reason
    with pytest.raises(BodyError, match=re.escape(said)):
        parse_body(body, kind)
    if kind in RDF_TYPES:
        with pytest.raises(ElementError, match=re.escape(reason)):
            read_rdf(body, RDF_TYPES[kind], 0)
    with pytest.raises(ParseError, match=re.escape(said)):
        parse_page_body(body, kind, "http://a.test/", math.inf)
    with pytest.raises(ParseError, match=re.escape(said)):
        PageReader().read(body, kind, "http://a.test/")


LONG = "n" * 3_000
CONTEXT = f'"@context":{{"@vocab":"http://{LONG}/"}}'
BASE_AND_NAMESPACE = f'xml:base="http://{LONG}/" xmlns:b="http://{LONG}/"'


@pytest.mark.parametrize(
    ("media_type", "opening", "repeated", "closing"),
    [
        ("application/ld+json", f'{{{CONTEXT},"@id":"a:b"', ',"p{}":1', "}"),
        ("application/rdf+xml", f"<rdf:RDF {RDF} {BASE_AND_NAMESPACE}>",
         '<rdf:Description rdf:ID="i{}"/>', "</rdf:RDF>"),
        ("application/rdf+xml", f'<rdf:RDF {RDF} {BASE_AND_NAMESPACE}><a:b rdf:about="a:b">'
         '<a:p rdf:parseType="Literal">', "<i{}/>", "</a:p></a:b></rdf:RDF>"),
        ("text/turtle", f"@prefix p: <http://{LONG}/> . ", "p:a{} a p:b . ", ""),
        ("application/trig", f"@base <http://{LONG}/> . ", "<a{}> a <b> . ", ""),
    ],
)  # fmt: skip
def test_what_is_declared_once_and_written_out_again_and_again_is_bounded(
    media_type: str, opening: str, repeated: str, closing: str
) -> None:
    """As facts, and as elements of a stream."""

    def body(size: int) -> bytes:
        return (opening + "".join(repeated.format(n) for n in range(size)) + closing).encode()

    parse_body(body(100), media_type)
    with pytest.raises(BodyError):
        parse_body(body(60_000), media_type)
    if media_type in RDF_TYPES:
        with pytest.raises(ElementError):
            read_rdf(body(60_000), RDF_TYPES[media_type], 0)
