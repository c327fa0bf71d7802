"""Documents that would harm whoever parses them: found, whatever their pieces; others are not."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.errors import NestingError
from annotations.nesting import MAX_ATTRIBUTES, check_nesting
from annotations.terms import MAX_NESTING

RDF = b'xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:a="a:"'
FORMATS = [
    pyoxigraph.RdfFormat.N_TRIPLES, pyoxigraph.RdfFormat.N_QUADS, pyoxigraph.RdfFormat.TURTLE,
    pyoxigraph.RdfFormat.TRIG, pyoxigraph.RdfFormat.N3,
]  # fmt: skip
TURTLE, JSON, XML = "text/turtle", "application/ld+json", "application/rdf+xml"


def triple_terms(depth: int) -> bytes:
    return b"<a:s> <a:p> " + b"<<( <a:s> <a:p> " * depth + b"<a:o>" + b" )>>" * depth + b" ."


def json_ld(depth: int) -> bytes:
    return b'{"a:p":' * depth + b'"x"' + b"}" * depth


def rdf_xml(inside: bytes, declared: bytes = b"") -> bytes:
    return b"<!DOCTYPE r:RDF [" + declared + b"]><r:RDF " + RDF + b">" + inside + b"</r:RDF>"


def nested(depth: int) -> bytes:
    nodes = (depth - 1) // 2
    return rdf_xml(b"<a:x><a:p>" * nodes + b"</a:p></a:x>" * nodes)


def attributes(count: int) -> bytes:
    each = b" ".join(b'a:b%d="x"' % number for number in range(count))
    return rdf_xml(b"<a:c " + each + b"/>")


# What holds brackets that do not nest anything.
BESIDE = [
    b'"<<( \\" <<("', b"'<<('", b'"""<<( " "" <<( \\"""" ', b"'''<<( '\n'''", b'""', b"''",
    b"<a:<b", b"<a:b>", b"#<<( \"\n", b"(", b")", b"))>", b"\\", b'"\\', b"\n", b" ",
]  # fmt: skip


def pieces(document: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(document), *(cut % (len(document) + 1) for cut in cuts)})
    return [document[start:end] for start, end in pairwise(places)]


def refused(document: bytes, media_type: str, cuts: list[int], **options: bool) -> bool:
    try:
        check_nesting(pieces(document, cuts), media_type, **options)
    except NestingError:
        return True
    return False


cuts = st.lists(st.integers(0, 10**6), max_size=30)


@pytest.mark.parametrize(
    ("make", "media_type"), [(triple_terms, TURTLE), (json_ld, JSON), (nested, XML)]
)
@settings(max_examples=40)
@given(cuts=cuts, more=st.sampled_from([0, 2, 40]))
def test_depth_is_found_wherever_it_is_cut(
    make: Callable[[int], bytes], media_type: str, cuts: list[int], more: int
) -> None:
    assert refused(make(MAX_NESTING + more), media_type, cuts) == (more > 0)


@settings(max_examples=40)
@given(cuts=cuts, beside=st.lists(st.sampled_from(BESIDE[:-6]), max_size=30))
def test_what_stands_in_texts_names_and_comments_does_not_count(
    cuts: list[int], beside: list[bytes]
) -> None:
    plenty = triple_terms(1) * (MAX_NESTING + 1)
    before = b"".join(each + b" " for each in beside) * 20
    assert not refused(before + plenty, TURTLE, cuts)
    assert refused(before + triple_terms(MAX_NESTING + 1), TURTLE, cuts)
    text = b'{"a:p":"' + b'[{\\"' * 300 + b'"}'
    assert not refused(text, JSON, cuts)


@settings(max_examples=40)
@given(parts=st.lists(st.sampled_from([*BESIDE, b"<<(", b")>>"]), max_size=60), cuts=cuts)
def test_pieces_do_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    document = b"".join(parts) * 40
    assert refused(document, TURTLE, []) == refused(document, TURTLE, cuts)
    braces = document.replace(b"<<(", b"{").replace(b")>>", b"}")
    assert refused(braces, JSON, []) == refused(braces, JSON, cuts)


@pytest.mark.parametrize("rdf_format", FORMATS)
@settings(max_examples=40)
@given(
    parts=st.lists(st.sampled_from([*BESIDE, b"<<(", b")>>", b" <a:s> <a:p> ", b" . "]), max_size=8)
)
def test_what_passes_is_not_nested_for_the_parser(
    rdf_format: pyoxigraph.RdfFormat, parts: list[bytes]
) -> None:
    """Nor where it goes on after an error."""
    document = b"".join(parts) + b"\n" + triple_terms(MAX_NESTING + 1)
    if refused(document, TURTLE, []):
        return
    parser = pyoxigraph.parse(document, rdf_format)
    for _ in range(100):
        try:
            for quad in parser:
                assert str(quad.object).count("<<(") <= MAX_NESTING
            break
        except SyntaxError:
            pass


ENTITY = b'<!ENTITY owl "http://www.w3.org/2002/07/owl#">'
GROWING = b'<!ENTITY e0 "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY e%d "%s">' % (each, b"&e%d;" % (each - 1) * 10) for each in range(1, 10)
)


@pytest.mark.parametrize(
    ("document", "page", "file"),
    [
        (rdf_xml(b"<a:c/>", ENTITY), True, False),
        (rdf_xml(b"<a:c><a:p>&e9;</a:p></a:c>", GROWING), True, True),
        (rdf_xml(b"<a:c/>", b'<!ENTITY long "' + b"x" * 1001 + b'">'), True, True),
        (attributes(MAX_ATTRIBUTES), False, False),
        (attributes(MAX_ATTRIBUTES + 1), True, False),
    ],
)
def test_xml_that_grows(document: bytes, page: bool, file: bool) -> None:
    assert refused(document, XML, [10, 200]) == page
    assert refused(document, XML, [10, 200], entities=True) == file


@pytest.mark.parametrize("media_type", [TURTLE, JSON])
@pytest.mark.parametrize("piece", [b'"', b"'", b'\\"', b'"""', b"'''", b"<", b"#", b"<a", b"{\"",
                                   b"\"\\", b"<<( \"", b"(", b"\"'"])  # fmt: skip
def test_each_byte_is_read_a_few_times_only(
    piece: bytes, media_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of one thing over and over again, which was never closed."""
    document = b"<<( )>> " * 200 + piece * 100_000
    read = 0

    class Counted:
        def __init__(self, pattern: "object") -> None:
            self._pattern = pattern

        def match(self, text: bytes, position: int) -> "object":
            nonlocal read
            found = self._pattern.match(text, position)  # type: ignore[attr-defined]
            read += 1 + found.end() - position
            return found

    from annotations import nesting

    for name in ("_TURTLE", "_JSON"):
        syntax = getattr(nesting, name)
        quotes = {k: (Counted(body), end) for k, (body, end) in syntax.quotes.items()}
        monkeypatch.setattr(
            nesting, name,
            nesting._Syntax(
                cast(Any, Counted(syntax.plain)), syntax.opening, syntax.closing,
                cast(Any, quotes), syntax.longest,
            ),
        )  # fmt: skip
    refused(document, media_type, list(range(0, len(document), 10_000)))
    assert read < 4 * len(document)
