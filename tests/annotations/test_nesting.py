"""Harmful documents are found, however they are cut; others are not."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations import nesting
from annotations.errors import NestingError
from annotations.nesting import MAX_ATTRIBUTES, check_nesting
from annotations.terms import MAX_NESTING
from tests.support.examples import examples

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


def refused(document: bytes, media_type: str, cuts: list[int], entities: bool = False) -> bool:
    try:
        check_nesting(pieces(document, cuts), media_type, entities=entities)
    except NestingError:
        return True
    return False


cuts = st.lists(st.integers(0, 10**6), max_size=30)


@pytest.mark.parametrize(
    ("make", "media_type"), [(triple_terms, TURTLE), (json_ld, JSON), (nested, XML)]
)
@examples(40)
@given(cuts=cuts, more=st.sampled_from([0, 2, 40]))
def test_depth_is_found_wherever_it_is_cut(
    make: Callable[[int], bytes], media_type: str, cuts: list[int], more: int
) -> None:
    assert refused(make(MAX_NESTING + more), media_type, cuts) == (more > 0)


@examples(40)
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


@examples(40)
@given(parts=st.lists(st.sampled_from([*BESIDE, b"<<(", b")>>"]), max_size=60), cuts=cuts)
def test_pieces_do_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    document = b"".join(parts) * 40
    assert refused(document, TURTLE, []) == refused(document, TURTLE, cuts)
    braces = document.replace(b"<<(", b"{").replace(b")>>", b"}")
    assert refused(braces, JSON, []) == refused(braces, JSON, cuts)


@pytest.mark.parametrize("rdf_format", FORMATS)
@examples(40)
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
    """An unclosed document that repeats one thing."""
    document = b"<<( )>> " * 200 + piece * 20_000
    read = 0

    class Counted:
        def __init__(self, pattern: re.Pattern[bytes]) -> None:
            self._pattern = pattern

        def match(self, text: bytes, position: int) -> re.Match[bytes] | None:
            nonlocal read
            found = self._pattern.match(text, position)
            read += 1 + (len(text) if found is None else found.end()) - position
            return found

    for name in ("_PLAIN", "_JSON_TOKEN", "_IN_TEXT"):
        monkeypatch.setattr(nesting, name, Counted(getattr(nesting, name)))
    quotes = {mark: (Counted(body), end) for mark, (body, end) in nesting._QUOTES.items()}
    monkeypatch.setattr(nesting, "_QUOTES", quotes)
    refused(document, media_type, list(range(0, len(document), 2_000)))
    assert read < 4 * len(document)


def chain(length: int) -> bytes:
    """A document with terms that are defined by the next one."""
    terms = [f'"t{n}":"t{n + 1}:x"' for n in range(length - 1)]
    return (
        '{"@context":{' + ",".join([*terms, f'"t{length - 1}":"a:"']) + '},"t0:y":"z"}'
    ).encode()


@examples(6)
@given(cuts=cuts, more=st.sampled_from([0, 1, 20_000]))
def test_terms_that_are_defined_by_the_next_one(cuts: list[int], more: int) -> None:
    """20,000 of them end the process of whoever parses them."""
    assert refused(chain(MAX_NESTING + more), JSON, cuts) == (more > 0)


def scoped(depth: int, length: int) -> bytes:
    inside = b"{}"
    for level in range(depth):
        terms = [f'"t{level}-{n}":"t{level}-{n + 1}:x",' for n in range(length)]
        last = f'"t{level}-{length}":{{"@id":"a:b","@context":'.encode()
        inside = b"{" + "".join(terms).encode() + last + inside + b"}}"
    return b'{"@context":' + inside + b"}"


@pytest.mark.parametrize(("depth", "length", "refuses"), [(9, 9, False), (11, 9, True)])
def test_contexts_within_definitions_go_on(depth: int, length: int, refuses: bool) -> None:
    assert refused(scoped(depth, length), JSON, []) == refuses


NAMES = st.sampled_from("abcdefg")
TEXTS = st.one_of(NAMES, NAMES.map(lambda name: f"{name}:x"), st.just("http://x/"))
DEFINITIONS = st.one_of(
    TEXTS,
    st.fixed_dictionaries({"@id": TEXTS}),
    st.fixed_dictionaries({"@id": st.just("http://x/"), "@type": TEXTS}),
)


def deepest(context: dict[str, Any], name: str, around: frozenset[str] = frozenset()) -> int:
    """Return the depth of the definition of a name; endless: 100."""
    if name in around:
        return 100
    defined = context[name]
    texts = [defined] if isinstance(defined, str) else list(defined.values())
    named = [text.partition(":")[0] for text in texts]
    used = {each for each in named if each in context and each != name}
    return 1 + max((deepest(context, each, around | {name}) for each in used), default=0)


@examples(150, fixtures=True)
@given(context=st.dictionaries(NAMES, DEFINITIONS))
def test_definitions_are_followed_as_deep_as_they_go(
    context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("annotations.nesting.MAX_NESTING", 3)
        expected = max((deepest(context, name) for name in context), default=0) > 3
        assert refused(json.dumps({"@context": context}).encode(), JSON, []) == expected


LONG = st.sampled_from([0, 5, 400]).map(lambda length: "n" * length)
VOCABULARIES = st.fixed_dictionaries(
    {},
    optional={
        "@vocab": LONG.map(lambda each: f"http://{each}x/"),
        "@base": LONG.map(lambda each: f"http://{each}y/"),
        "p": LONG.map(lambda each: f"http://{each}z/"),
        "q": LONG.map(lambda each: f"p:{each}/"),
    },
)


def node(context: Any, children: list[Any]) -> dict[str, Any]:
    return {
        "@context": context,
        "@id": "r",
        "s": "x",
        "p:t": [{"@id": f"q:{n}"} for n in range(20)],
        "q:u": children,
    }


LD = st.recursive(
    st.builds(node, VOCABULARIES, st.just([])),
    lambda inner: st.builds(node, VOCABULARIES, st.lists(inner, max_size=3)),
)


def xml_node(base: str, namespace: str, children: list[str]) -> str:
    inside = "".join(f"<a:has>{each}</a:has>" for each in children)
    literal = f'<a:p r:parseType="Literal" xmlns:b="{namespace}">{"<b:c/>" * 20}</a:p>'
    about = f'<a:N xml:base="{base}" r:ID="i">'
    return f"{about}{literal}{inside}</a:N>"


XML_NODES = st.recursive(
    st.builds(xml_node, LONG.map("http://{}/".format), LONG.map("n:{}".format), st.just([])),
    lambda inner: st.builds(
        xml_node, LONG.map("http://{}/".format), LONG.map("n:{}".format),
        st.lists(inner, max_size=2),
    ),
)  # fmt: skip


@examples(100, fixtures=True)
@given(most=st.sampled_from([0, 1_000, 5_000, 20_000]), document=st.one_of(
    LD.map(lambda each: (json.dumps(each).encode(), JSON)),
    XML_NODES.map(lambda each: (rdf_xml(each.encode()), XML)),
))  # fmt: skip
def test_what_passes_is_not_much_larger_when_it_is_written_out(
    most: int, document: tuple[bytes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, media_type = document
    with monkeypatch.context() as patch:
        patch.setattr("annotations.nesting.MOST_CHARACTERS", most)
        patch.setattr("annotations.nesting.MOST_GROWTH", 0)
        if refused(content, media_type, []):
            return
    rdf_format = pyoxigraph.RdfFormat.from_media_type(media_type)
    assert rdf_format is not None
    try:
        quads = list(pyoxigraph.parse(content, rdf_format, base_iri="http://x/"))
    except SyntaxError:
        return
    # Of each quad, what no declaration has made longer, and what the last one has.
    written = sum(len(str(each.object)) for each in quads)
    assert written <= most + 2 * len(content) + 80 * len(quads)


def test_a_base_is_seen_wherever_it_is_cut() -> None:
    base = b"@base <http://" + b"b" * 60_000 + b"/> ."
    document = base + b"<a> <b> " + b",".join([b"<c>"] * 4_000) + b" ."
    for cut in (3, 8, 1_000, 59_990, len(base) - 2, len(base) + 1):
        assert refused(document, TURTLE, [cut])
    assert not refused(document.replace(b"b" * 60_000, b"b" * 600), TURTLE, [])


def test_contexts_are_read_in_time_that_grows_with_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    in_order = nesting._in_order

    def counted(used: Any, line: int) -> Any:
        nonlocal looked

        class Counting(dict[str, Any]):
            def __getitem__(self, name: str) -> Any:
                nonlocal looked
                looked += 1 + len(super().__getitem__(name))
                return super().__getitem__(name)

        return in_order(Counting(used), line)

    monkeypatch.setattr(nesting, "_in_order", counted)
    work = []
    for size in (500, 1_000, 2_000):
        looked = 0
        terms = {f"t{n}": f"t{n // 2}:x" for n in range(1, size)} | {"t0": "a:"}
        assert not refused(json.dumps({"@context": terms}).encode(), JSON, [])
        work.append(looked)
    assert work[2] < 2.2 * work[1] < 4.84 * work[0]


def test_rdf_of_others_is_parsed_where_it_is_checked() -> None:
    """Nothing else in the packages calls the parser."""
    root = Path(nesting.__file__).parents[1]
    calls = re.compile(r"\b(?:ox|pyoxigraph)\.parse\(|\.(?:bulk_)?load\(\s*(?:path|input)=")
    packages = ("annotations", "loaders", "tpf_client", "tpf_server")
    files = [file for package in packages for file in sorted((root / package).rglob("*.py"))]
    found = {str(each.relative_to(root)): each.read_text("utf-8") for each in files}
    parsing = {name for name, text in found.items() if calls.search(text)}
    assert parsing == {
        "tpf_client/fragments/page_reader.py",
        "tpf_server/store/static/ox_terms.py",
        "tpf_server/store/static/rdf_files.py",
    }
    for name in parsing:
        calls_of_it = len(calls.findall(found[name]))
        assert len(re.findall(r"\n +check_nesting\(", found[name])) == calls_of_it
