"""Pages line by line: what they say is what the whole page says, and only new lines are parsed."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tpf_client.errors import ParseError
from tpf_client.fragments.bodies import parse_body
from tpf_client.fragments.lines import SaidLine, read_lines

URL = "http://ex.org/d?p=x"
DIRECTIVES = (
    "@prefix : <http://ex.org/> .", "@base <http://other.example/x/> .", "BASE <http://ex.org/>",
    "PREFIX e: <http://e.example/>", "@prefix : <urn:other:> .",
)  # fmt: skip
WHOLE = (
    "<a> <b> <c> .", '</a> </b> "1","2";</c> "3"@en .', "_:l1 <b> _:l2 .", "_:l1 <c> <d> .",
    '<a> <b> "x . y"^^<urn:t> .', "<a> <b> <<( <c> <d> <e> )>> .", "<a> <b> <c> . <d> <e> <f> .",
    '<a> <b> "{ } [ ] # ;" .', "<http://ex.org/%41> <b> <\\u0063> .", "<a> <b> <c> . # . .",
)  # fmt: skip
ODD = (
    "<a> <b> <c>", "<a> <b> <c> ;", "<p> <q> .", "# a comment", "", '<a> <b> """', '""" .',
    '<a> <b> """ .', "<a> <b> [ <c> <d> ] .", "<a> <b> <c> . } <g> { <d> <e> <f> .", "}",
    "<a> <b> <c> . } { <d> <e> <f> .", "<a> <b> . {", "<a>, <b> {", "GRAPH <g> {", "<a> <b> ?c .",
    "<urn:line:0> { <a> <b> <c> .", "<a> <b> <c> . } <urn:line:0> { <d> <e> <f> .", "<a> <b> ] .",
    "@prefix : <http://ex.org/", "@prefix : <u:> . <a> <b> <c> .", ":a <b> <c> .", "<a> :b <c> .",
)  # fmt: skip


@st.composite
def pages(draw: st.DrawFn) -> list[str]:
    """Pages of graphs with lines, most of them whole."""
    lines = st.lists(st.one_of(st.sampled_from(WHOLE), st.sampled_from(WHOLE + ODD)), max_size=6)
    page: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        page += draw(st.lists(st.sampled_from(DIRECTIVES), max_size=2))
        graph = draw(st.sampled_from(("", "<g>", "<http://ex.org/g>", "_:g")))
        page += [*([f"{graph} {{"] if graph else []), *draw(lines), *(["}"] if graph else [])]
    return page


def _whole(body: bytes) -> set[Quad] | None:
    try:
        return set(parse_body(body, "application/trig", URL))
    except ParseError:
        return None


@given(st.lists(pages(), min_size=1, max_size=4))
def test_a_page_says_what_it_says_as_a_whole(versions: list[list[str]]) -> None:
    """Whatever was known of earlier versions, and however odd it is."""
    before: Mapping[bytes, Mapping[bytes, SaidLine]] = {}
    for version in versions:
        body = "\n".join(version).encode()
        read = read_lines(body, URL, before)
        if read is None:
            continue
        before = read.known
        whole = _whole(body)
        assert whole is not None
        if b"[" not in body:
            # Elsewhere blank nodes have other names each time.
            assert set(read.quads()) == whole
        assert {quad.graph for quad in read.quads()} <= {graph for graph, _ in read.blocks}


def test_only_new_lines_are_parsed() -> None:
    page = ["@base <http://ex.org/> .", "<g> {", *(f"<s{n}> <p> <o> ." for n in range(100)), "}"]
    first = read_lines("\n".join(page).encode(), URL, {})
    assert first is not None
    assert first.parsed == 101
    page[5], page[7] = "<s3> <p> <changed> .", page[8]
    second = read_lines("\n".join(page).encode(), URL, first.known)
    assert second is not None
    assert second.parsed == 1
    assert set(second.quads()) == _whole("\n".join(page).encode())
    # What a line says depends on the directives before it, and on its graph.
    for place, line in ((0, "@base <http://ex.net/> ."), (1, "<h> {")):
        other = [*page[:place], line, *page[place + 1 :]]
        third = read_lines("\n".join(other).encode(), URL, second.known)
        assert third is not None
        assert third.parsed == 100
        assert set(third.quads()) == _whole("\n".join(other).encode())


@pytest.mark.parametrize("odd", ODD[:4] + ODD[5:8] + ODD[9:16])
def test_pages_of_another_shape_are_left_to_others(odd: str) -> None:
    assert read_lines(f"<a> <b> <c> .\n{odd}\n".encode(), URL, {}) is None


def test_what_takes_too_much_memory_is_left_to_others() -> None:
    body = b"<a> <b> <c> .\n<a> <b> <d> .\n"
    assert read_lines(body, URL, {}, most=10_000) is not None
    assert read_lines(body, URL, {}, most=500) is None
