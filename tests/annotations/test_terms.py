"""Terms are the texts that pyoxigraph prints."""

import re
from collections.abc import Callable

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import TermError
from annotations.terms import (
    Quad,
    Term,
    Triple,
    blank_node,
    iri,
    iri_value,
    is_blank_node,
    is_iri,
    is_literal,
    is_triple_term,
    is_variable,
    literal,
    literal_parts,
    triple_of_term,
    triple_term,
    variable,
)
from tests.support.facts import IRIS, OBJECTS_12, SUBJECTS, TEXT

TAGS = st.sampled_from(["e", "EN", "en-GB", "de-AT-1996", "Abcdefgh-x9-12345678"])


@given(text=TEXT, tag=st.sampled_from(["en", "EN-gb", "de-AT-1996"]), datatype=IRIS)
def test_literals_are_written_as_pyoxigraph_does(text: str, tag: str, datatype: Term) -> None:
    assert literal(text) == str(ox.Literal(text))
    assert literal(text, language=tag) == str(ox.Literal(text, language=tag))
    kind = iri_value(datatype)
    assert literal(text, datatype=kind) == str(ox.Literal(text, datatype=ox.NamedNode(kind)))


@given(text=TEXT, tag=TAGS, datatype=IRIS)
def test_the_parts_of_a_literal_are_read_back(text: str, tag: str, datatype: Term) -> None:
    assert literal_parts(literal(text)).lexical == text
    assert literal_parts(literal(text, language=tag))[:2] == (text, tag.lower())
    kind = iri_value(datatype)
    assert literal_parts(literal(text, datatype=kind)) == (text, None, kind)


def test_parts_name_the_datatype_always() -> None:
    assert literal_parts('"x"').datatype == "http://www.w3.org/2001/XMLSchema#string"
    assert literal_parts('"x"@en').datatype.endswith("#langString")
    assert literal_parts('"x"@ar--rtl').datatype.endswith("#dirLangString")
    assert literal_parts('"\\u00E9\\U0001F600"').lexical == "é😀"


def test_a_string_is_plain() -> None:
    assert literal("x", datatype="http://www.w3.org/2001/XMLSchema#string") == '"x"'


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (iri, ["", "relative", "/path", "http://a b", "http://<", "1a:b"]),
        (blank_node, ["", ".x", "x.", "a b", "<"]),
        (variable, ["", "a-b", "?x", "a b"]),
    ],
)
def test_no_term(make: Callable[[str], object], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(TermError):
            make(text)


@given(st.text("aZ09_:-.\u00b7\u00e9\u0300\u00d7 ", min_size=1, max_size=6))
def test_labels_of_blank_nodes_are_those_of_the_grammar(label: str) -> None:
    starts = set("aZ09_:\u00e9")
    within = starts | set("-\u00b7\u0300")
    right = label[0] in starts and label[-1] in within and set(label) <= within | {"."}
    try:
        assert blank_node(label) == f"_:{label}"
    except TermError:
        assert not right
    else:
        assert right


def test_no_literal() -> None:
    with pytest.raises(TermError, match="both"):
        literal("x", language="en", datatype="http://example.org/d")
    with pytest.raises(TermError, match="language tag"):
        literal("x", language="e n")
    for term in ("<http://example.org/>", '"x"^^y', '"x"y'):
        with pytest.raises(TermError):
            literal_parts(term)


@given(st.text(st.sampled_from("aé😀\n\ud800\udbff\udc00\udfff")))
def test_terms_are_of_characters(text: str) -> None:
    for make, value in ((literal, text), (iri, f"urn:{text}")):
        try:
            make(value).encode()
        except TermError:
            assert re.search("[\ud800-\udfff\n]", text)


def test_kinds() -> None:
    assert is_iri("<http://example.org/>")
    assert not is_iri("<<( <a:s> <a:p> <a:o> )>>")
    assert is_triple_term("<<( <a:s> <a:p> <a:o> )>>")
    assert is_literal('"x"')
    assert is_blank_node("_:b")
    assert is_variable(variable("x"))
    assert variable("x") == "?x"
    with pytest.raises(TermError):
        iri_value('"x"')


@given(subject=SUBJECTS, predicate=IRIS, value=OBJECTS_12)
def test_a_triple_term_is_read_back(subject: Term, predicate: Term, value: Term) -> None:
    triple = Triple(subject, predicate, value)
    assert triple_of_term(triple_term(triple)) == triple
    assert Quad(*triple).triple == triple


@pytest.mark.parametrize(
    "term",
    [
        "<a:s>",
        "<<( <a:s> <a:p> )>>",
        "<<( <a:s> <a:p> <a:o> <a:g> )>>",
        "<<( <a:s> <a:p> <a:o> )>> <a:x>",
        "<<( <a:s> <a:p> <a:o>",
        "<<( <a:s> <a:p> ?o )>>",
    ],
)
def test_no_triple_term(term: str) -> None:
    with pytest.raises(TermError):
        triple_of_term(term)
