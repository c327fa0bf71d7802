"""Pages read by line equal whole pages, and only new lines are parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from tests.support.examples import examples
from tpf_client.errors import ParseError
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.page import LineMemo
from tpf_client.fragments.page_reader import Lines, parse_page_body, quad_size, read_lines

URL = "http://ex.org/d?p=x"
DIRECTIVES = (
    "@prefix : <http://ex.org/> .", "@base <http://other.example/x/> .", "BASE <http://ex.org/>",
    "PREFIX e: <http://e.example/>", "@prefix : <urn:other:> .", "@base <sub/> .",
    "@prefix : <x/> .",
)  # fmt: skip
WHOLE = (
    "<a> <b> <c> .", '</a> </b> "1","2";</c> "3"@en .', "_:l1 <b> _:l2 .", "_:l1 <c> <d> .",
    '<a> <b> "x . y"^^<urn:t> .', "<a> <b> <<( <c> <d> <e> )>> .", "<a> <b> <c> . <d> <e> <f> .",
    '<a> <b> "{ } [ ] # ;" .', "<http://ex.org/%41> <b> <\\u0063> .", "<a> <b> <c> . # . .",
    "<> <b> </x?a=1>;<c> </y?a=1> .", "<> <b> <>,<x?a=1> .", "<x?a=1> <b> <x?a=1> .",
    "<> <b?p=x> </../x?p=x>,<?p=x> .", '<a> <b> <x?a=1>,"<x?a=1>" .', "<> <b> <x?a=1>,<#y?a=1> .",
    "<> <b> <x?p=x>,<> .", "<> <b> </x?a=1>,</y?a=2> .",
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


def _memo(lines: Lines) -> LineMemo:
    return LineMemo(lines.scopes)


def _whole(body: bytes) -> set[Quad] | None:
    try:
        return set(parse_page_body(body, "application/trig", URL))
    except ParseError:
        return None


TEXTS = st.sampled_from(("1", "2", "x . y", "", "'", "é", "\\n", "a\tb", '" .', '" , "', "<a>"))


QUERIES = st.sampled_from(("a=2", "p=x", "", "%41", "%4", "é", "a=1?b", "a=1#b", "a/../b", "a=1"))


@st.composite
def versions(draw: st.DrawFn) -> list[list[str]]:
    """Consecutive pages; in some only words differ."""
    found = [draw(pages())]
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            found.append(draw(pages()))
            continue
        page = list(found[-1])
        for place in draw(st.lists(st.integers(0, len(page) - 1), max_size=4)) if page else ():
            parts = page[place].split('"')
            if "?" in page[place] and draw(st.integers(0, 3)):
                times = draw(st.sampled_from((1, -1)))
                was, query = draw(st.sampled_from(("a=1", "p=x", "a=2"))), draw(QUERIES)
                page[place] = page[place].replace(f"?{was}", f"?{query}", times)
            elif len(parts) > 1 and draw(st.integers(0, 3)):
                part = draw(st.integers(0, len(parts) - 1)) | 1
                parts[min(part, len(parts) - 1)] = draw(TEXTS)
                page[place] = '"'.join(parts)
            else:
                page[place] = draw(st.one_of(PLAIN, st.sampled_from(WHOLE + ODD)))
        found.append(page)
    return found


@examples(100)
@given(versions())
def test_a_page_says_what_it_says_as_a_whole(versions: list[list[str]]) -> None:
    """Whatever earlier versions were, and however odd it is."""
    before = LineMemo()
    for version in versions:
        body = "\n".join(version).encode()
        read = read_lines(body, URL, before)
        if read is None:
            continue
        before = _memo(read)
        assert {quad.graph for quad in read.named()} == {
            quad.graph for quad in read.quads() if quad.graph
        }
        whole = _whole(body)
        assert whole is not None
        lines = [line for block in read.blocks for line in block.lines]
        if b"[" not in body:
            # Elsewhere blank nodes have other names each time.
            assert set(read.quads()) == whole
            kept = {quad for line in lines for quad in line.of_page(URL)}
            assert kept == {kept_quad(quad, URL) for quad in whole}
        assert all(line.size == sum(map(quad_size, line.quads)) for line in lines)
        assert {quad.graph for quad in read.quads()} <= {block.scope.graph for block in read.blocks}


def _read(page: list[str], before: Lines | None = None) -> Lines:
    """A page that is read by its lines, and says what it says as a whole."""
    body = "\n".join(page).encode()
    read = read_lines(body, URL, LineMemo() if before is None else _memo(before))
    assert read is not None
    assert set(read.quads()) == _whole(body)
    return read


def test_only_new_lines_are_parsed() -> None:
    page = ["@base <http://ex.org/> .", "<g> {", *(f"<s{n}> <p> <o> ." for n in range(100)), "}"]
    first = _read(page)
    # The subjects, the predicate, the object and the graph.
    assert first.parsed == 103
    page[5], page[7] = "<s3> <p> <changed> .", page[8]
    second = _read(page, first)
    assert second.parsed == 1
    # What a line says depends on the directives before it, and on its graph.
    for place, line in ((0, "@base <http://ex.net/> ."), (1, "<h> {")):
        assert _read([*page[:place], line, *page[place + 1 :]], second).parsed == 103


def test_words_are_not_read_again() -> None:
    words = (f'<s{n}> <p> "{n % 3}" .' for n in range(50))
    page = ["@base <http://ex.org/> .", "<g> {", *words, "}"]
    first = _read(page)
    # One more, so that lines are not where they were.
    page[2:52] = [f'<s{n % 50}> <p> "{(n + 1) % 3}" .' for n in range(51)]
    assert _read(page, first).parsed == 0
    page[2:53] = [f'<s{n % 50}> <p> "new{n // 50}" .' for n in range(51)]
    second = _read(page, first)
    assert second.parsed == 2
    page[2:12] = [f'<new{n}> <p> "{n % 3}" .' for n in range(10)]
    third = _read(page, second)
    assert third.parsed == 10
    for n in range(100):
        page[2:12] = [f'<new{n}-{m}> <p> "{m % 3}" .' for m in range(10)]
        third = _read(page, third)
    (kept,) = [scope.words for scope in third.scopes.values() if scope.words]
    assert len(kept) < 6 * 70


@pytest.mark.parametrize(
    "page",
    [
        "@base <sub/> .\n<a> <b> <c{0}> .\n<g> {{\n<a> <b> <c{0}> .\n}}",
        "@prefix : <x/> .\n<a> <b> :c{0} .\n@base <http://other.example/> .\n<a> <b> :c{0} .\n"
        "@base <sub/> .\n<a> <b> <c> .\n<g> {{\n<a> <b> :c{0} .\n<c> <b> <c{0}> .\n}}",
        # A graph may have the name of a word.
        "<g> {{\n<g> <g> <{0}> .\n<g> <b> <g> .\n}}",
    ],
)
def test_each_directive_and_each_graph_is_followed_once(page: str) -> None:
    read = None
    for number in range(3):
        read = _read([page.format(number)], read)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ('<a> <b> 1 . # "1" .', '<a> <b> 1 . # "2" .'),
        ("<a> <b> 'x' . # \"x\" .", "<a> <b> 'x' . # \"y\" ."),
        ("<a> <b> '\"x\"' .", "<a> <b> '\"y\"' ."),
        ('<a> <b> "x" .', '<a> <b> " .'),
        ('<a> <b> "x" .', '<a> <b> "\\u0061" .'),
        ('<a> <b> "x" .', '<a> <b> "x" , "y" .'),
        ('<a> <b> "x"@en .', '<a> <b> "x"@EN .'),
        ('<a> <b> """x""" .', '<a> <b> """y""" .'),
        ('<a> <b> ( "x" "x" ) .', '<a> <b> ( "x" "y" ) .'),
        ('<a> <b> [ <c> "x" ] .', '<a> <b> [ <c> "y" ] .'),
        ("<a> <b> <x?p=x>,<> .", "<a> <b> <x?a=1>,<> ."),
        ("<x?p=x> <b> <> .", "<x?a=1> <b> <> ."),
        ("<a> <x?p=x> <> .", "<a> <x?a=1> <> ."),
        ("<a> <b> <x?a=1>,<y?a=1> .", "<a> <b> <x?a=2>,<y?a=1> ."),
        ("<a> <b> <x?a=1>,<y?a=1> .", "<a> <b> <x?a=2>,<y?a=3> ."),
        ("<a> <b> <x?a=1> . # <?a=1>", "<a> <b> <x?a=1> . # <?a=2>"),
        ("<a> <b> <x?a=1> .", "<a> <b> <x?%4> ."),
    ],
)
def test_what_only_looks_like_another_word(before: str, now: str) -> None:
    first = read_lines(before.encode(), URL, LineMemo())
    read = read_lines(now.encode(), URL, LineMemo() if first is None else _memo(first))
    whole = _whole(now.encode())
    assert whole is not None or read is None
    if read is not None and whole is not None:
        mine, theirs = (
            sorted(quad for quad in quads if "_:" not in "".join(quad))
            for quads in (read.quads(), whole)
        )
        assert mine == theirs


@pytest.mark.parametrize("times", [1, 10])
def test_a_page_cannot_grow_beyond_what_is_taken_at_once(times: int) -> None:
    lines = [f'<s{n}> <p> "{n}" .' for n in range(100)]
    first = read_lines("\n".join(lines).encode(), URL, LineMemo())
    assert first is not None
    limit = sum(line.size for block in first.blocks for line in block.lines)
    for number, line in enumerate((f'<s{{}}> <p> "{"9" * 50}" .', "<s{}> <p> <o>,<p>,<q> .")):
        known = _memo(first)
        said = list(lines)
        for place in range(0, 100, times):
            said[place : place + times] = map(line.format, range(place, place + times))
            body = "\n".join([*said, *([lines[0]] * (place % 7) * number)]).encode()
            most = limit + 20 * 50
            read = read_lines(body, URL, known, most)
            assert (read is None) == (read_lines(body, URL, LineMemo(), most) is None)
            if read is None:
                break
            known = _memo(read)
        else:
            pytest.fail("the page grew without end")
