"""RDF Patch, beside what rdflib makes of the same patch."""

import random
import re
import tracemalloc

import pytest
import rdflib

from annotations.terms import Quad, literal
from tests.support.served import parse
from tpf_server.errors import BodyError
from tpf_server.web.publish import parse_patch

pytestmark = pytest.mark.filterwarnings("ignore:Dataset:DeprecationWarning")
SUBJECTS = ("<http://x/a>", "<http://x/b>")
OBJECTS = ('"x"', '"x \\" . # <y> p:z"@en', '"5"^^<http://x/t>', "<http://x/>", "<http://x/a>")


def random_patch(seed: int) -> tuple[str, str]:
    """A patch without prefixes, as rdflib reads it, and with them."""
    pick = random.Random(seed)
    lines, short = ["H id <urn:uuid:1> .", "TX ."], ['PA "p" <http://x/> .']
    for _ in range(pick.randrange(12)):
        terms = [pick.choice(SUBJECTS), "<http://x/q>", pick.choice(OBJECTS)]
        if pick.random() < 0.3:
            terms.append("<http://x/g>")
        lines.append(f"{pick.choice('AAD')} {' '.join(terms)} .")
    short += [re.sub(r"<http://x/(\w*)>", r"p:\1", line) for line in lines]
    return "\n".join([*lines, "TC ."]), "\n".join([*short, "TC ."])


@pytest.mark.parametrize("seed", range(40))
def test_a_patch_does_to_a_dataset_what_rdflib_does(seed: int) -> None:
    text, short = random_patch(seed)
    before = b"".join(
        f"{s} <http://x/q> {o} .\n".encode()
        for s in ("<http://x/a>", "<http://x/b>")
        for o in ('"x"', "<http://x/a>", '"5"^^<http://x/t>')
    )
    dataset = rdflib.Dataset()
    dataset.parse(data=before, format="nquads")
    dataset.parse(data=text, format="patch")
    expected = set(parse(dataset.serialize(format="nquads").encode(), "application/n-quads"))
    patch = parse_patch(text.encode())
    assert parse_patch(short.encode("utf-8-sig")) == patch
    found = (set(parse(before, "application/n-quads")) - set(patch.withdrawn)) | set(patch.added)
    assert found == expected
    assert not set(patch.added) & set(patch.withdrawn)


def test_a_patch_that_rdflib_writes_is_read() -> None:
    dataset = rdflib.Dataset()
    dataset.add((rdflib.URIRef("http://x/a"), rdflib.URIRef("http://x/q"), rdflib.Literal(5)))
    for operation in ("add", "remove"):
        patch = parse_patch(dataset.serialize(format="patch", operation=operation).encode())
        integer = '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'
        one = [Quad._make(("<http://x/a>", "<http://x/q>", integer, ""))]
        assert (patch.added, patch.withdrawn) == ((one, []) if operation == "add" else ([], one))


def test_what_a_transaction_that_is_aborted_says_is_left_out() -> None:
    patch = parse_patch(b"A <x:a> <x:p> <x:o> .\nTX .\nD <x:a> <x:p> <x:o> .\nTA .\nTX .\nTC .")
    assert (len(patch.added), patch.withdrawn) == (1, [])


def test_namespaces_may_be_strings_as_jena_writes_them() -> None:
    patch = parse_patch(b'TX .\nPA "x" "http://x/" .\nPA "" "http://y/" .\nA x:a :p <x:o> .\nTC .')
    assert [quad[:2] for quad in patch.added] == [("<http://x/a>", "<http://y/p>")]


def test_tabs_separate_as_spaces_do() -> None:
    text = b"H\tid\t<urn:x> .\nTX\t.\nPA\tx\t<x:>\t.\nA\tx:a\t<x:p>\tx:o\t.\nTC\t."
    assert [len(quads) for quads in parse_patch(text)] == [1, 0]


@pytest.mark.parametrize(
    "again", ['<x:a>  <x:p>\t"é" . # gone', '<x:a> <x:p> "\\u00e9".', 'x:a <x:\\u0070> "é" .']
)
def test_the_last_change_of_a_quad_counts_however_it_is_written(again: str) -> None:
    patch = parse_patch(f'PA x <x:> .\nA <x:a> <x:p> "é" .\nD {again}'.encode())
    assert (patch.added, len(patch.withdrawn)) == ([], 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A <x:a> <x:p> .", "line 1"),
        ("\nD <x:a> <x:p> p:o .", "line 2: the prefix p: is not known"),
        ('PA "p" <x:> .\nPD "p" .\nA p:a p:b p:c .', "line 3: the prefix"),
        ("TX .", "in the midst"),
        ("TX .\nTX .", "line 2"),
        ("TC .", "line 1"),
        ("X <x:a> <x:p> <x:o> .", "line 1: not a line"),
        ('A <x:a> <x:p> "x .', "line 1"),
        ("PA p <x:> <y:> .", "line 1"),
        ("A <a> <b> <c> .", "line 1"),
        ("A # nothing", "line 1: not a line"),
        ("A <x:a> <x:p> <x:o> . <x:a> <x:p> <x:q> .", "line 1"),
        ("TX .\n\nA <x:a> <x:p> <x:o>> .\nTC .", "line 3"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, says: str) -> None:
    with pytest.raises(BodyError, match=says):
        parse_patch(text.encode())


def test_a_patch_cannot_grow_without_bound() -> None:
    prefix = f"PA p: <x:{'y' * 60_000}> .\n"
    lines = "".join(f"A p:{n} p:{n} p:{n} .\n" for n in range(600))
    with pytest.raises(BodyError, match="too long"):
        parse_patch((prefix + lines).encode())


def test_a_long_literal_takes_little_more_memory_than_its_text() -> None:
    body = b'A <x:a> <x:p> "%s"@en%s .' % (b"y" * 300_000, b"-x" + b"-a" * 50_000)
    parse_patch(body)
    tracemalloc.start()
    try:
        parse_patch(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(body)


def test_what_is_no_text() -> None:
    with pytest.raises(BodyError, match="UTF-8"):
        parse_patch(b'A <x:a> <x:p> "\xff" .')


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_where_those_of_n_quads_do(end: str) -> None:
    text = "a\u2028\x85\v\f\x1cb"
    lines = [f'A <x:a> <x:p> "{text}" .', "D <x:a> <x:p> <x:o> .", ""]
    patch = parse_patch(end.join(lines).encode())
    assert [quad.object for quad in patch.added] == [literal(text)]
    assert [quad.object for quad in patch.withdrawn] == ["<x:o>"]
