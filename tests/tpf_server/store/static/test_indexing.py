"""RDF files become stores with exactly pyoxigraph's quads."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyoxigraph as ox
import pytest

from annotations.terms import DEFAULT_GRAPH, XSD_STRING, Quad, QuadPattern, Term, variable
from tests.support.stores import CREATED
from tpf_server.errors import RdfInputError
from tpf_server.store.static.columnar import ColumnarStore, open_store
from tpf_server.store.static.indexing import index_files

W3C = Path(__file__).parents[5] / "shared/data/w3c-sparql11"
ANYTHING = QuadPattern(variable("s"), variable("p"), variable("o"), variable("g"))


def index(store: Path, *inputs: Path, base: str | None = None) -> ColumnarStore:
    index_files(inputs, store, created=CREATED, base=base)
    return open_store(store)


def content(store: ColumnarStore) -> list[Quad]:
    return list(store.quads(ANYTHING, 0, store.count(ANYTHING)))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


RDF_XML = """\
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">
  <rdf:Description rdf:about="http://e/s"><e:p>é 😀</e:p></rdf:Description>
</rdf:RDF>
"""
QUAD = Quad(Term("<http://e/s>"), Term("<http://e/p>"), Term('"é 😀"'))
IN_GRAPH = QUAD._replace(graph=Term("<http://e/g>"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.nt", f'<http://e/s> <http://e/p> "\\u00E9 \\U0001F600"^^<{XSD_STRING}> .', QUAD),
        ("a.nq", '<http://e/s> <http://e/p> "é 😀" <http://e/g> .', IN_GRAPH),
        ("a.ttl", '@prefix e: <http://e/> . e:s e:p """é 😀""" .', QUAD),
        ("a.trig", 'PREFIX e: <http://e/> e:g { e:s e:p "é 😀" }', IN_GRAPH),
        ("a.rdf", RDF_XML, QUAD),
        ("a.jsonld", '{"@id": "http://e/s", "http://e/p": "é 😀"}', QUAD),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compression", ["", ".gz", ".bz2", ".zst"])
def test_formats_and_compressions(
    tmp_path: Path, name: str, text: str, expected: Quad, compression: str
) -> None:
    data = text.encode()
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": lambda raw: pa.compress(raw, "zstd", asbytes=True),
    }
    path = tmp_path / f"{name}{compression}"
    path.write_bytes(compressions[compression](data))
    with index(tmp_path / "s", path) as store:
        assert content(store) == [expected]


def test_canonical_terms(tmp_path: Path) -> None:
    text = (
        "@prefix e: <http://e/> . e:s e:p 1, 1.0, 1e0, true, 'x'@EN-gb, 'ltr'@en--ltr,"
        " <<( e:a e:b <<( e:c e:d 'deep' )>> )>>, 'tab\\t \\u0007 \\\\ \\\"' ."
    )
    path = write(tmp_path / "a.ttl", text)
    expected = set()
    for quad in ox.parse(path=str(path)):
        term = quad.object
        expected.add(f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term))
    with index(tmp_path / "s", path) as store:
        assert {quad.object for quad in content(store)} == expected
        assert len(expected) == 8


def test_prefixes_are_kept_and_the_first_counts(tmp_path: Path) -> None:
    one = write(tmp_path / "1.ttl", "@prefix a: <http://a/> . a:x a:x a:x .")
    two = write(
        tmp_path / "2.trig", "@prefix a: <http://b/> . @prefix c: <http://c/> . a:x a:x c:x ."
    )
    with index(tmp_path / "s", one, two) as store:
        assert store.prefixes == {"a": "http://a/", "c": "http://c/"}


def test_blank_nodes_are_scoped_per_file(tmp_path: Path) -> None:
    one = write(tmp_path / "1.nt", "_:x <http://e/p> _:x .\n_:y <http://e/p> _:x .\n")
    two = write(tmp_path / "2.nq", "_:x <http://e/p> _:x _:x .\n")
    three = write(tmp_path / "3.ttl", "_:x <http://e/p> [], <<( _:x <http://e/p> _:x )>> .")
    with index(tmp_path / "s", one, two, three) as store:
        p = Term("<http://e/p>")
        assert {tuple(quad) for quad in content(store)} == {
            ("_:f0-x", p, "_:f0-x", DEFAULT_GRAPH),
            ("_:f0-y", p, "_:f0-x", DEFAULT_GRAPH),
            ("_:f1-x", p, "_:f1-x", "_:f1-x"),
            ("_:f2n0", p, "_:f2n1", DEFAULT_GRAPH),
            ("_:f2n0", p, f"<<( _:f2n0 {p} _:f2n0 )>>", DEFAULT_GRAPH),
        }


def test_same_input_gives_the_same_version(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ttl", "[] <http://e/p> [ <http://e/q> 1 ] .")
    with index(tmp_path / "s", path) as one, index(tmp_path / "t", path) as two:
        assert one.version == two.version
    write(path, "[] <http://e/p> [ <http://e/q> 2 ] .")
    with index(tmp_path / "u", path) as three:
        assert three.version != one.version


def test_directory_gives_its_rdf_files_at_any_depth(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    write(folder / "deep/a.nt", "<http://e/1> <http://e/p> <http://e/o> .")
    write(folder / "b.ttl", "<http://e/2> <http://e/p> <http://e/o> .")
    write(folder / "README.md", "not RDF")
    write(folder / ".hidden.nt", "not RDF")
    with index(tmp_path / "s", folder) as store:
        assert {quad.subject for quad in content(store)} == {"<http://e/1>", "<http://e/2>"}


def test_relative_iris_need_a_base(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ttl", "<#s> <p> <> .")
    with pytest.raises(RdfInputError, match="line 1"):
        index(tmp_path / "s", path)
    with index(tmp_path / "s", path, base="http://b/d") as store:
        assert content(store) == [
            Quad(*map(Term, ("<http://b/d#s>", "<http://b/p>", "<http://b/d>")))
        ]


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_malformed_input_names_file_line_and_text(tmp_path: Path, compression: str) -> None:
    text = "<http://e/s> <http://e/p> 'good' .\n<http://e/s> <http://e/p> bad\u2028 .\n"
    path = tmp_path / f"a.nt{compression}"
    path.write_bytes(gzip.compress(text.encode()) if compression else text.encode())
    text = text.replace("'good'", '"good"')
    path.write_bytes(gzip.compress(text.encode()) if compression else text.encode())
    with pytest.raises(RdfInputError) as caught:
        index(tmp_path / "s", path)
    message = str(caught.value)
    assert str(path) in message
    assert "line 2" in message
    assert "<http://e/s> <http://e/p> bad" in message
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.nt.gz", b"no gzip", "gzip"),
        ("a.nt.gz", gzip.compress(b"<http://e/s> <http://e/p> 1 .", mtime=0)[:20], "ended"),
        ("a.nt.bz2", b"no bzip2", "Invalid data"),
        ("a.nt.zst", b"no zstd", "ZSTD|zstd"),
        ("a.txt", b"", "no ending of an RDF file"),
        ("a.rdf", b"<rdf:RDF", "a.rdf"),
        ("a.jsonld", b"{", "a.jsonld"),
        ("a.jsonld", b'{"@id": "x", "http://e/p": "y"}', "a relative IRI: 'x'"),
        ("a.nt", b'<http://e/s> <http://e/p> "\xff" .', "line 1"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(RdfInputError, match=reason) as caught:
        index(tmp_path / "s", path)
    assert name in str(caught.value)


def test_nothing_to_index(tmp_path: Path) -> None:
    with pytest.raises(RdfInputError, match="does not exist"):
        index(tmp_path / "s", tmp_path / "missing.nt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RdfInputError, match="no RDF files"):
        index(tmp_path / "s", tmp_path / "empty")


@pytest.mark.skipif(not W3C.is_dir(), reason="the W3C test data are not beside the project")
def test_w3c_data_as_pyoxigraph_reads_them(tmp_path: Path) -> None:
    base = "http://example.org/base"
    checked = 0
    for path in sorted(W3C.rglob("*.ttl")):
        try:
            # A dataset keeps lexical forms; pyoxigraph's store would make "1.0" of "1.00".
            oracle = ox.Dataset(ox.parse(path=str(path), base_iri=base))
        except SyntaxError:
            with pytest.raises(RdfInputError):
                index(tmp_path / "s", path, base=base)
            continue
        with index(tmp_path / "s", path, base=base) as store:
            assert store.count(ANYTHING) == len(oracle), path
            for predicate in {quad.predicate for quad in oracle}:
                expected = sum(quad.predicate == predicate for quad in oracle)
                pattern = ANYTHING._replace(predicate=Term(str(predicate)))
                assert store.count(pattern) == expected
            ours = {" ".join(quad[:3]) for quad in content(store)}
            theirs = {str(quad.triple) for quad in oracle}
            assert {text for text in ours if "_:" not in text} == {
                text for text in theirs if "_:" not in text
            }
        checked += 1
    assert checked > 50
