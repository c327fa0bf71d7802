"""Elements of streams as text."""

import json

import pyoxigraph as ox
import pytest

from annotations.terms import MAX_NESTING
from tpf_server.continuous.runtime.elements.elements import (
    EARLIEST,
    Element,
    date_time_at,
    elements_of,
    instant,
    read_ndjson,
    read_rdf,
    remembered_term,
)
from tpf_server.continuous.runtime.errors import ElementError

TERM = '<<( <urn:x> <urn:y> "18.0" )>>'


def test_triple_terms_are_objects_only() -> None:
    (element,) = elements_of([f"5\t<urn:a>\t<urn:p>\t{TERM}"])
    assert isinstance(element, Element)
    assert element.triples == (("<urn:a>", "<urn:p>", TERM),)
    (same,) = elements_of([f"5\t<urn:a> <urn:p> {TERM} <urn:g> ."])
    assert same == element
    (body,) = read_rdf(f"<urn:a> <urn:p> {TERM} .".encode(), ox.RdfFormat.N_TRIPLES, 5)
    assert body.triples == element.triples
    for wrong in (f"5\t{TERM}\t<urn:p>\t<urn:a>", f"5\t<urn:a>\t{TERM}\t<urn:a>"):
        (error,) = elements_of([wrong])
        assert isinstance(error, ElementError)


def test_years_of_fewer_digits_are_instants() -> None:
    assert date_time_at(EARLIEST)[:3] == (1, 1, 1)


def test_terms_keep_their_letters() -> None:
    byte = '"07"^^<http://www.w3.org/2001/XMLSchema#byte>'
    line = '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", %s]}'
    (element,) = read_ndjson(line % byte.replace('"', '\\"').join('""'))
    assert isinstance(element, Element)
    assert element.triples[0][2] == byte


@pytest.mark.parametrize(
    ("stamp", "at"),
    [(5, 5), ("5", 5), (" -5 ", -5), ("1970-01-01T00:00:01Z", 1000), ("1970-01-01T00:00Z", None),
     (True, None), (1.5, None), (None, None), ("soon", None), ("9" * 19, None), (10**15, None),
     ("\u0663", None), ("9999-12-31T23:59:59.999Z", 253402300799999), (253402300800000, None),
     ("0001-01-01T00:00:00Z", -62135596800000), (-62135596800001, None)],
)  # fmt: skip
def test_timestamps(stamp: object, at: int | None) -> None:
    if at is None:
        with pytest.raises(ElementError, match="not a timestamp"):
            instant(stamp)
    else:
        assert instant(stamp) == at


def test_statements_of_one_graph_and_time_are_one_element() -> None:
    lines = [
        "1\t<urn:a> <urn:p> <urn:b> <urn:g> .",
        "1\t<urn:a> <urn:q> <urn:c> <urn:g> .",
        "1\t<urn:a> <urn:p> <urn:b> <urn:h> .",
        "",
        "2\t<urn:a> <urn:p> <urn:b> <urn:h> .",
        "broken",
        "2\t<urn:a> <urn:q> <urn:d> <urn:h> .",
    ]
    found = list(elements_of(lines))
    sizes = [len(each.triples) if isinstance(each, Element) else str(each) for each in found]
    assert sizes == [2, 1, "line 6: not a timestamp: 'broken'", 2]


def test_a_line_ends_where_a_line_ends() -> None:
    """Not at line separators inside strings."""
    value = "a\u2028b\x85c\x0cd"
    element = {"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", f'"{value}"']}
    lines = [json.dumps(element, ensure_ascii=each) for each in (False, True)]
    assert "\u2028" in lines[0]
    found = list(read_ndjson("\r\n".join(lines)))
    assert [each.triples[0][2] for each in found if isinstance(each, Element)] == [
        remembered_term(f'"{value}"')
    ] * 2


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"timestamp": %s, "triple": ["<urn:a>", "<urn:p>", "<urn:b>"]}' % ("9" * 5000),
        '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", "\\"\\ud800\\""]}',
        '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", "<urn:\\ud800>"]}',
        '{"timestamp": 1, "triple": ["<urn:a>", "<urn:p>", "<urn:b>", "<urn:c>"]}',
        '{"timestamp": 1, "triples": {}}',
        "null",
    ],
)
def test_malformed_lines_have_a_number(line: str) -> None:
    (error,) = read_ndjson(f"\n{line}")
    assert isinstance(error, ElementError)
    assert error.line == 2


def test_a_term_that_is_nested_without_end_is_refused() -> None:
    """The parser of RDF would end the process."""
    for depth, taken in ((MAX_NESTING, True), (MAX_NESTING + 1, False), (30_000, False)):
        term = "<<( <a:s> <a:p> " * depth + '"<<("' + " )>>" * depth
        line = f"1\t<a:s>\t<a:p>\t{term}"
        quad = f"1\t<a:s> <a:p> {term} ."
        lines = [*elements_of([line]), *elements_of([quad])]
        assert [isinstance(each, Element) for each in lines] == [taken, taken], lines
    text = '"' + "<<(" * 200 + '"'
    assert all(isinstance(each, Element) for each in elements_of([f"1\t<a:s>\t<a:p>\t{text}"]))
