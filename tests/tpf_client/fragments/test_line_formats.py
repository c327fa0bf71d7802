"""N-Quads and N-Triples, read as pyoxigraph reads them."""

import codecs
from itertools import chain

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tests.support.oracle import quad_of
from tpf_client.fragments.page_reader import quads_of_body, quads_of_lines

TOKENS = [
    "<urn:a>", "<http://ex.org/\\u00e9>", "<urn:a b>", "<a>", "_:b.c", "_:d", "_:", '"x"',
    '"a\\nb\\u00e9\\t\\""', '"x"@EN-us', '"x"@ar--rtl', '"x"@en-abcdefghij', '"1"^^<urn:d>',
    '"1"^^<http://www.w3.org/2001/XMLSchema#string>', '"\\uD800"', '"\\U0001F600"', '"x\\q"',
    '"a\x7f"', "<<( <urn:s> <urn:p> \"o\"@en )>>", "<<( <urn:s> <urn:p> _:o )>>", ".", " ", "\t",
    "# said", "é", "",
]  # fmt: skip
lines = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=6).map(" ".join)
terms = st.sampled_from(TOKENS[:20])
statements = st.tuples(terms, terms, terms, st.sampled_from([*TOKENS[:6], "", ""])).map(
    lambda parts: f"{' '.join(parts)} ."
)


def _by_pyoxigraph(body: bytes) -> list[Quad] | None:
    try:
        return [
            quad_of(each)
            for each in ox.parse(body.removeprefix(codecs.BOM_UTF8), ox.RdfFormat.N_QUADS)
        ]
    except (SyntaxError, ValueError):
        return None


def _by_us(body: bytes) -> list[Quad] | None:
    try:
        return list(quads_of_lines(body, triples=False))
    except ValueError:
        return None


@given(st.lists(st.one_of(lines, statements), max_size=3).map("\n".join))
def test_what_is_read_is_what_pyoxigraph_reads(text: str) -> None:
    body = text.encode()
    assert _by_us(body) == _by_pyoxigraph(body)


@pytest.mark.parametrize("token", TOKENS)
def test_each_object(token: str) -> None:
    body = f"<urn:a><urn:b>{token}<urn:g>.\r\n".encode()
    assert _by_us(body) == _by_pyoxigraph(body)


def test_a_byte_order_mark_is_no_part_of_a_document() -> None:
    body = b"<urn:a> <urn:b> <urn:c> <urn:g> .\n"
    assert _by_us(codecs.BOM_UTF8 + body) == _by_pyoxigraph(body)


@pytest.mark.parametrize("version", ['VERSION "1.2"', ' VERSION\t"1.2-basic" # of RDF'])
def test_a_version_is_no_statement(version: str) -> None:
    line = '<urn:a> <urn:b> "VERSION" <urn:g> .'
    body = f"{line}\n{version}\r{line}\r\n{version}".encode()
    quads = _by_pyoxigraph(f"{line}\n{line}".encode())
    assert quads is not None
    assert _by_us(body) == quads
    assert [*chain(*quads_of_body(body, ox.RdfFormat.N_QUADS, "urn:x"))] == quads


def test_errors_name_the_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(quads_of_lines(b"<urn:a> <urn:b> <urn:c> .\r\nnothing\r\n", triples=False))
    with pytest.raises(ValueError, match="line 3"):
        list(quads_of_lines(b"<urn:a> <urn:b> <urn:c> .\n\nnothing\n", triples=False))
    with pytest.raises(ValueError, match="has a graph"):
        list(quads_of_lines(b"<urn:a> <urn:b> <urn:c> <urn:g> .", triples=True))
