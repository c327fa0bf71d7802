"""Pages line by line: what they say is what the whole page says, and only new lines are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tpf_client.errors import ParseError
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.bodies import parse_page_body
from tpf_client.fragments.lines import KnownLines, read_lines

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
SUBJECTS = ("<a>", "</a>", "<http://ex.org/a>", ":a", "_:l1", "<a><b>", "<http://ex.org/%41>")
PREDICATES = ("<b>", "a", ":b", "e:b", '"1"', "<b> <c>")
OBJECTS = (
    "<a>", "<b>", ":a", "a", '"1"', '"<a> <b>"', '"x"@en', '"x"@EN', '"1"^^<urn:t>', '"1"^^:t', "1",
    '"1"^^<http://www.w3.org/2001/XMLSchema#string>', '"1"^^<t>', '"\\u0041"', '""', "true", "_:l2",
    "</.well-known/genid/1>", "<<( <a> <b> <c> )>>", "<a>,<b>", "<a>;<b> <c>",
)  # fmt: skip
PLAIN = st.builds(
    "{} {} {} .".format, *map(st.sampled_from, (SUBJECTS, PREDICATES, OBJECTS))
)  # fmt: skip


@st.composite
def pages(draw: st.DrawFn) -> list[str]:
    """Pages of graphs with lines, most of them whole."""
    some = draw(st.sampled_from((PLAIN, st.sampled_from(WHOLE), st.sampled_from(WHOLE + ODD))))
    lines = st.lists(st.one_of(PLAIN, some), max_size=6)
    page: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        page += draw(st.lists(st.sampled_from(DIRECTIVES), max_size=2))
        graph = draw(st.sampled_from(("", "<g>", "<http://ex.org/g>", "_:g")))
        page += [*([f"{graph} {{"] if graph else []), *draw(lines), *(["}"] if graph else [])]
    return page


def _whole(body: bytes) -> set[Quad] | None:
    try:
        return set(parse_page_body(body, "application/trig", URL))
    except ParseError:
        return None


@given(st.lists(pages(), min_size=1, max_size=4))
def test_a_page_says_what_it_says_as_a_whole(versions: list[list[str]]) -> None:
    """Whatever was known of earlier versions, and however odd it is."""
    before: KnownLines = {}
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
            kept = {
                quad for _, lines in read.blocks for line in lines for quad in line.of_page(URL)
            }
            assert kept == {kept_quad(quad, URL) for quad in whole}
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


def test_words_are_not_read_again() -> None:
    page = [
        "@base <http://ex.org/> .",
        "<g> {",
        *(f'<s{n}> <p> "{n % 3}" .' for n in range(50)),
        "}",
    ]
    first = read_lines("\n".join(page).encode(), URL, {})
    assert first is not None
    page[2:52] = [f'<s{n}> <p> "{(n + 1) % 3}" .' for n in range(50)]
    second = read_lines("\n".join(page).encode(), URL, first.known)
    assert second is not None
    assert second.parsed == 0
    assert set(second.quads()) == _whole("\n".join(page).encode())
    page[2:52] = [f'<s{n}> <p> "new" .' for n in range(50)]
    second = read_lines("\n".join(page).encode(), URL, first.known)
    assert second is not None
    assert second.parsed == 1
    assert set(second.quads()) == _whole("\n".join(page).encode())
    page[2:12] = [f'<new{n}> <p> "{n % 3}" .' for n in range(10)]
    third = read_lines("\n".join(page).encode(), URL, second.known)
    assert third is not None
    assert third.parsed == 10
    for n in range(100):
        page[2:12] = [f'<new{n}-{m}> <p> "{m % 3}" .' for m in range(10)]
        third = read_lines("\n".join(page).encode(), URL, third.known)
        assert third is not None
        assert set(third.quads()) == _whole("\n".join(page).encode())
    (words,) = [scope.words for scope in third.known.values() if scope.words]
    assert len(words) < 6 * 70


@pytest.mark.parametrize("odd", ODD[:4] + ODD[5:8] + ODD[9:16])
def test_pages_of_another_shape_are_left_to_others(odd: str) -> None:
    assert read_lines(f"<a> <b> <c> .\n{odd}\n".encode(), URL, {}) is None


def test_what_takes_too_much_memory_is_left_to_others() -> None:
    body = b"<a> <b> <c> .\n<a> <b> <d> .\n"
    assert read_lines(body, URL, {}, most=10_000) is not None
    assert read_lines(body, URL, {}, most=500) is None
