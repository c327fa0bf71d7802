import bz2
import gzip
import json
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import InputError
from loaders.rdf import pieces
from loaders.rdf.pieces import PieceReader, Reject, cut, input_files
from tpf_server.errors import RdfInputError
from tpf_server.store.static.rdf_files import QuadTexts, RdfReader, open_rdf

GOOD = [
    '<http://e/s> <http://e/p> "a\\u00e9\\n\\"" .',
    '_:b <http://e/p> "ü🚂"@EN-us .',
    "<http://e/s> <http://e/p> _:c . # a comment",
    '<http://e/s> <http://e/p> "1"^^<http://www.w3.org/2001/XMLSchema#string> .',
    "<http://e/s> <http://e/p> <<( <http://e/s> <http://e/p> _:b )>> .",
    "# only a comment",
    "",
    'VERSION "1.2" # of RDF',
    '<http://e/s> <http://e/p> "VERSION \\"1.2\\"" .',
]
BAD = [
    "nonsense",
    '<relative> <http://e/p> "x" .',
    '<http://e/s> <http://e/p> "unfinished .',
    '<http://e/s> <http://e/p> "x"',
    '"x" <http://e/p> <http://e/o> .',
    'VERSION "1.2" "1.2"',
]


def write_compressed(file: Path, text: bytes) -> None:
    match file.suffix:
        case ".gz":
            file.write_bytes(gzip.compress(text))
        case ".bz2":
            file.write_bytes(bz2.compress(text))
        case ".zst":
            with pa.output_stream(file, compression="zstd") as out:
                out.write(text)
        case _:
            file.write_bytes(text)


def read(files: list[Path], piece_bytes: int) -> tuple[list[QuadTexts], list[Reject]]:
    rejects: list[Reject] = []
    quads: list[QuadTexts] = []
    for piece in cut(files, piece_bytes):
        quads.extend(PieceReader(piece, rejects.append).quads())
    return quads, rejects


@given(
    st.lists(st.sampled_from(GOOD + BAD), max_size=30),
    st.integers(1, 400),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_pieces_read_what_the_lines_say(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    piece_bytes: int,
    end: str,
    last_end: bool,
) -> None:
    directory = tmp_path_factory.mktemp("pieces")
    file, good = directory / "all.nt", directory / "good.nt"
    file.write_bytes((end.join(lines) + (end if last_end else "")).encode())
    good.write_text("\n".join(line for line in lines if line in GOOD))
    quads, rejects = read([file], piece_bytes)
    # The reader of the local writer reads the good lines alone, in one go.
    assert quads == list(RdfReader(good, 0).quads())
    expected = [(number, line) for number, line in enumerate(lines, 1) if line in BAD]
    assert [(reject.line, reject.text) for reject in rejects] == expected
    assert all(reject.message for reject in rejects)


def test_the_lines_before_a_piece_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.nt"
    file.write_text(f"{GOOD[0]}\n" * 40 + f"{BAD[0]}\n" * 40)
    opened: list[Path] = []

    def open_noted(path: Path) -> IO[bytes]:
        opened.append(path)
        return open_rdf(path)

    monkeypatch.setattr(pieces, "open_rdf", open_noted)
    quads, rejects = read([file], 1800)
    assert (len(quads), [each.line for each in rejects]) == (40, list(range(41, 81)))
    # Two pieces, and what is before the second.
    assert len(opened) == 3


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".zst"])
def test_a_mark_of_the_encoding_is_no_text(tmp_path: Path, ending: str) -> None:
    turtle = "@prefix e: <http://e/> .\ne:s e:p e:o .\ne:s e:p e:o .\n"
    trig = f"{turtle}e:g {{ e:s e:p e:o }}\n"
    texts = {".nt": f"{GOOD[0]}\n\ufeff{GOOD[0]}\n", ".ttl": turtle, ".trig": trig}
    texts |= {".nq": GOOD[0], ".n3": turtle, ".jsonld": '{"@id": "http://e/s", "http://e/p": 1}'}
    for format_, text in texts.items():
        marked, plain = tmp_path / f"b{format_}{ending}", tmp_path / f"a{format_}{ending}"
        write_compressed(marked, f"\ufeff{text}".encode())
        write_compressed(plain, text.replace("\ufeff", "").encode())
        result = read([marked], 10)
        assert result == read([plain], 10)
        assert not result[1]
        if format_ != ".nt":
            assert list(RdfReader(marked, 0).quads()) == result[0]


def test_compressed_files(tmp_path: Path) -> None:
    text = "\n".join(GOOD[:3]).encode()
    (tmp_path / "a.nt").write_bytes(text)
    (tmp_path / "a.nt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.nt.bz2").write_bytes(bz2.compress(text))
    with pa.output_stream(str(tmp_path / "a.nt.zst"), compression="zstd") as stream:
        stream.write(text)
    plain, _ = read([tmp_path / "a.nt"], 10)
    assert len(plain) == 3
    for ending in (".gz", ".bz2", ".zst"):
        assert read([tmp_path / f"a.nt{ending}"], 10) == (plain, [])
    (tmp_path / "cut.nt.gz").write_bytes(gzip.compress(text * 50)[:-20])
    with pytest.raises(InputError, match=r"cut\.nt\.gz"):
        read([tmp_path / "cut.nt.gz"], 10)


def test_turtle_goes_on_behind_what_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "a.ttl"
    file.write_text(
        "@prefix : <http://e/> .\n:a :b :c .\n:a nope:b :c .\n:a :b :d ; :e [ :f 1 ] .\n"
    )
    rejects: list[Reject] = []
    (piece,) = cut([file])
    reader = PieceReader(piece, rejects.append)
    quads = list(reader.quads())
    assert len(quads) == 4
    assert [(reject.line, "nope" in reject.message) for reject in rejects] == [(3, True)]
    assert reader.prefixes == {"": "http://e/"}
    # Blank nodes are numbered through, also behind the mistake.
    assert {q[2] for q in quads if q[2].startswith("_:")} == {"_:f0n0"}


def test_documents_that_cannot_be_read_on(tmp_path: Path) -> None:
    file = tmp_path / "a.rdf"
    file.write_text(
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        '<rdf:Description rdf:about="http://e/s"><e:p>x</e:p></rdf:Description>'
        '<rdf:Description rdf:about="relative"><e:p>x</e:p></rdf:Description>'
        '<rdf:Description rdf:about="http://e/t"><e:p>x</e:p></rdf:Description></rdf:RDF>'
    )
    quads, rejects = read([file], 10)
    assert [quad[0] for quad in quads] == ["<http://e/s>"]
    assert len(rejects) == 1
    assert rejects[0].message.endswith("(the rest of the file is not read)")


def test_relative_iris_in_json_are_rejected_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonld"
    file.write_text(
        json.dumps(
            {
                "@id": "http://e/s",
                "http://e/p": [{"@id": "there"}, {"@id": "http://e/o"}, {"@id": "#here"}],
                "http://e/q": [{"@value": "x", "@type": "kind"}, "<http://relative.invalid/y>"],
            }
        )
    )
    quads, rejects = read([file], 10)
    assert {quad[2] for quad in quads} == {"<http://e/o>", '"<http://relative.invalid/y>"'}
    assert {(reject.message, reject.text) for reject in rejects} == {
        ("A relative IRI", text) for text in ("'there'", "'#here'", "'kind'")
    }
    # What has a base of its own has no relative ones.
    file.write_text(json.dumps({"@context": {"@base": "http://b/"}, "@id": "s", "http://e/p": 1}))
    quads, rejects = read([file], 10)
    assert [quad[0] for quad in quads] == ["<http://b/s>"]
    assert not rejects


def test_inputs_are_files_directories_and_patterns(tmp_path: Path) -> None:
    for name in ("b.nt", "a.nq", "c/d.ttl.gz", "note.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert input_files([tmp_path]) == [tmp_path / n for n in ("a.nq", "b.nt", "c/d.ttl.gz")]
    assert input_files([tmp_path / "*.n?"]) == [tmp_path / n for n in ("a.nq", "b.nt")]
    assert input_files([tmp_path / "b.nt", tmp_path / "c"]) == [
        tmp_path / "b.nt", tmp_path / "c/d.ttl.gz",
    ]  # fmt: skip
    with pytest.raises(InputError, match="no ending of an RDF file"):
        input_files([tmp_path / "note.txt"])
    with pytest.raises(InputError, match="does not exist"):
        input_files([tmp_path / "absent.nt"])
    with pytest.raises(InputError, match="no file matches"):
        input_files([tmp_path / "*.trig"])


DEEP = "<http://e/s> <http://e/p> " + "<<( <http://e/s> <http://e/p> " * 30_000 + "<a:o>"
DEEP += " )>>" * 30_000 + " ."


@pytest.mark.parametrize("suffix", [".nt", ".ttl", ".ttl.gz"])
def test_what_is_nested_without_end_does_not_end_the_process(tmp_path: Path, suffix: str) -> None:
    """A line is left out; a document is refused."""
    file = tmp_path / f"a{suffix}"
    text = f"{GOOD[0]}\n{DEEP}\n{GOOD[0]}\n".encode()
    file.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    quads, rejects = read([file], 10_000_000)
    assert [reject.line for reject in rejects] == [2]
    assert "nested more than 100 deep" in rejects[0].message
    assert len(quads) == (2 if suffix == ".nt" else 0)
    with pytest.raises(RdfInputError, match="line 2: nested more than 100 deep"):
        list(RdfReader(file, 0).quads())


@pytest.mark.parametrize("name", ["all.nt", "all.nt.gz", "all.ttl"])
def test_a_link_tells_the_format_by_its_own_name(tmp_path: Path, name: str) -> None:
    blob, link = tmp_path / "blob", tmp_path / name
    text = b"<http://e/s> <http://e/p> <http://e/o> .\n" * 3
    blob.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    link.symlink_to("blob")
    quads, rejects = read([link], 50)
    assert (len(quads), rejects) == (3, [])
    assert len(list(RdfReader(link, 0).quads())) == 3


@pytest.mark.parametrize("suffix", [".nt", ".nq.gz", ".nt.bz2", ".nt.zst"])
def test_a_line_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("loaders.rdf.pieces.MAX_LINE", 1000)
    monkeypatch.setattr("loaders.rdf.pieces._CHUNK_BYTES", 100)
    file = tmp_path / f"long{suffix}"
    good = b"<http://e/s> <http://e/p> <http://e/o> .\n"
    for length, fails in ((900, False), (100_000, True)):
        text = 3 * good + b'<http://e/s> <http://e/p> "' + b"x" * length + b'" .\n' + good
        write_compressed(file, text)
        if fails:
            with pytest.raises(InputError, match=r"line 4: .*a line of more than 1000 bytes"):
                read([file], 10_000_000)
        else:
            assert len(read([file], 10_000_000)[0]) == 5


@pytest.mark.parametrize("suffix", [".nt", ".ttl", ".rdf", ".jsonld"])
def test_a_term_that_the_parser_does_not_take(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"large{suffix}"
    term = "x" * (17 << 20)
    texts = {
        ".rdf": "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns:e='http://e/'>"
        f"<rdf:Description rdf:about='http://e/s'><e:p>{term}</e:p></rdf:Description></rdf:RDF>",
        ".jsonld": f'{{"@id": "http://e/s", "http://e/p": "{term}"}}',
    }
    file.write_text(texts.get(suffix, f'<http://e/s> <http://e/p> "{term}" .\n'))
    quads, rejects = read([file], 100_000_000)
    assert len(quads) + len(rejects) == 1
    if rejects:
        with pytest.raises(RdfInputError, match="large"):
            list(RdfReader(file, 0).quads())
    else:
        assert len(list(RdfReader(file, 0).quads())) == 1


@pytest.mark.parametrize("suffix", [".nt", ".nt.gz", ".nt.bz2", ".nt.zst"])
def test_a_malformed_line_is_quoted_and_not_read_to_its_end(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"bad{suffix}"
    text = b"# a comment\n" + b"x" * 5000 + b"\n# another\n"
    text = b"# " + b"y" * 9000 + b"\n" + text
    write_compressed(file, text)
    with pytest.raises(RdfInputError, match=r"line 3: (?s:.*)\n    x{200}…$"):
        list(RdfReader(file, 0).quads())
