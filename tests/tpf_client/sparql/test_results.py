"""Results beside pyoxigraph's readers of the same formats."""

import csv
import io
import json
from xml.etree import ElementTree

import pyoxigraph as ox
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rdflib import BNode, Literal, URIRef
from rdflib.namespace import XSD

from annotations.terms import Term, Variable, literal
from tests.support.examples import examples
from tests.support.oracle import term_of
from tpf_client.sparql.results import (
    BOOLEAN_WRITERS,
    RESULT_MEDIA_TYPES,
    RESULT_WRITERS,
    ResultError,
    json_binding,
    json_text,
    rdflib_term,
)

NAMES = (Variable("?a"), Variable("?b"))
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=8
) | st.sampled_from(['a"b', "a\\b", "a\tb", "a\nb", "a\rb", "a,b", "<&>", " x "])
terms = st.one_of(
    st.sampled_from([Term("<http://e/a?b&c>"), Term("_:b1"), Term("<http://e/é>")]),
    texts.map(literal),
    texts.map(lambda text: literal(text, language="en-gb")),
    st.sampled_from(["01", "x"]).map(lambda t: literal(t, datatype=str(XSD.integer))),
)
rows = st.lists(st.tuples(terms | st.none(), terms | st.none()), max_size=4)


@pytest.mark.parametrize("form", ["json", "xml", "tsv"])
@examples(60)
@given(data=rows)
def test_another_reader_reads_what_was_written(
    form: str, data: list[tuple[Term | None, Term | None]]
) -> None:
    if form == "xml":
        # pyoxigraph's reader takes blanks at the ends away; the specification does not.
        shown = [str(rdflib_term(term)) for row in data for term in row if term is not None]
        assume(all(text == text.strip() for text in shown))
    text = "".join(RESULT_WRITERS[form](NAMES, data))
    media = ox.QueryResultsFormat.from_media_type(RESULT_MEDIA_TYPES[form])
    read = ox.parse_query_results(text.encode(), format=media)
    assert isinstance(read, ox.QuerySolutions)
    assert [each.value for each in read.variables] == ["a", "b"]
    assert [tuple(t and Term(str(t)) for t in row) for row in read] == data


@given(rows)
def test_csv_has_the_bare_values(data: list[tuple[Term | None, Term | None]]) -> None:
    read = list(csv.reader(io.StringIO("".join(RESULT_WRITERS["csv"](NAMES, data)), newline="")))
    assert read[0] == ["a", "b"]
    assert len(read) == len(data) + 1
    for cells, row in zip(read[1:], data, strict=True):
        for cell, term in zip(cells, row, strict=True):
            if term is None:
                assert cell == ""
            elif term.startswith("<"):
                assert cell == term[1:-1]
            elif term.startswith('"'):
                assert cell == str(rdflib_term(term))


def test_one_empty_column_is_still_a_row() -> None:
    assert "".join(RESULT_WRITERS["csv"](NAMES[:1], [(None,), (None,)])) == "a\r\n\r\n\r\n"


@pytest.mark.parametrize("value", [True, False])
def test_truth_values(value: bool) -> None:
    assert json.loads(BOOLEAN_WRITERS["json"](value)) == {"head": {}, "boolean": value}
    for form, write in BOOLEAN_WRITERS.items():
        media = ox.QueryResultsFormat.from_media_type(RESULT_MEDIA_TYPES[form])
        assert bool(ox.parse_query_results(write(value).encode(), format=media)) == value


def test_xml_is_refused_for_just_the_characters_it_cannot_hold() -> None:
    for code in (*range(0x80), 0xD7FF, 0xE000, *range(0xFFF0, 0x10010)):
        text = RESULT_WRITERS["xml"](NAMES[:1], [(literal(chr(code)),)])
        if code in (9, 10, 13) or (code >= 0x20 and code not in (0xFFFE, 0xFFFF)):
            assert ElementTree.fromstring("".join(text)) is not None
        else:
            with pytest.raises(ResultError, match=f"U\\+{code:04X}"):
                "".join(text)
    with pytest.raises(ResultError, match="U\\+FFFE"):
        "".join(RESULT_WRITERS["xml"](NAMES[:1], [(literal("a", datatype="urn:\ufffe"),)]))


def test_triple_terms() -> None:
    term = Term('<<( <http://e/s> <http://e/p> "o"@ar--rtl )>>')
    for form in ("json", "xml"):
        media = ox.QueryResultsFormat.from_media_type(RESULT_MEDIA_TYPES[form])
        text = "".join(RESULT_WRITERS[form](NAMES[:1], [(term,)]))
        read = ox.parse_query_results(text.encode(), format=media)
        assert isinstance(read, ox.QuerySolutions)
        (row,) = read
        assert term_of(row[0]) == term
    assert str(rdflib_term(term)) == term


def test_rdflib_terms_keep_their_lexical_form() -> None:
    assert rdflib_term(Term("<http://e/a>")) == URIRef("http://e/a")
    assert rdflib_term(Term("_:b")) == BNode("b")
    number = rdflib_term(literal("01", datatype=str(XSD.integer)))
    assert isinstance(number, Literal)
    assert (str(number), number.datatype) == ("01", XSD.integer)
    assert rdflib_term(literal("a", language="en")) == Literal("a", lang="en")
    assert rdflib_term(literal("a")) == Literal("a")


@given(row=rows, long=st.text(min_size=250, max_size=300).map(literal))
def test_the_text_of_a_solution_is_that_of_its_binding(
    row: list[tuple[Term | None, Term | None]], long: Term
) -> None:
    names = (*NAMES, Variable('?"'))
    for one, other in [*row, *row]:
        solution = (one, other, long)
        assert json.loads(json_text(names, solution)) == json_binding(names, solution)
