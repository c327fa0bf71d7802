"""HDT files of hdt-cpp: ``example.hdt``, and others where it can be built."""

import random
import subprocess
from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.terms import QuadPattern, Variable
from experiments.harness import peers
from tests.loaders.test_cli import run
from tpf_server.errors import RdfInputError
from tpf_server.store.static.columnar import open_dataset, open_store
from tpf_server.store.static.hdt_files import hdt_lines, open_hdt
from tpf_server.store.static.rdf_files import rdf_files

EXAMPLE = Path(__file__).with_name("example.hdt")
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
TEXT = r"""
<http://e/a> <http://e/p> <http://e/b> .
<http://e/a> <http://e/p> <http://e/c> .
<http://e/a> <http://e/q> "plain" .
<http://e/a> <http://e/q> "a \"quoted\" \\ text\nin two lines" .
<http://e/a> <http://e/q> "caf\u00E9"@fr-be .
<http://e/b> <http://e/p> <http://e/a> .
<http://e/b> <http://e/r> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://e/b> <http://e/r> "" .
_:x <http://e/p> _:y .
_:y <http://e/q> "x"@en .
<http://e/c> <http://e/p> _:x .
<http://e/only-subject> <http://e/q> "@" .
<http://e/only-subject> <http://e/q> "\"^^<http://e/dt>" .
""" + "".join(
    f'<http://e/many/{n}> <http://e/count> "{n % 7}"^^<{INTEGER}> .\n' for n in range(1, 61)
)


def triples(content: bytes | str) -> set[str]:
    return {str(each) for each in ox.parse(content, ox.RdfFormat.N_TRIPLES)}


def test_what_is_in_a_file() -> None:
    with open_hdt(EXAMPLE) as file:
        assert triples(file.read()) == triples(TEXT)
    with open_hdt(EXAMPLE) as file:
        lines = list(file)
    assert len(lines) == 73
    assert all(line.endswith(b" .\n") for line in lines)


def test_a_file_is_loaded_and_is_a_source_of_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = QuadPattern(*map(Variable, ("?s", "?p", "?o", "?g")))
    loaded = tmp_path / "loaded"
    assert run("load", "rdf", EXAMPLE, "-o", loaded) == 0, capsys.readouterr().err
    with open_store(loaded) as opened, open_dataset(EXAMPLE, tmp_path / "cache") as indexed:
        assert opened.count(everything) == indexed.count(everything) == 73


def test_a_compressed_one_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "a.hdt.gz").write_bytes(b"")
    with pytest.raises(RdfInputError, match="is no ending of an RDF file"):
        rdf_files([tmp_path / "a.hdt.gz"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"<http://e/a> <http://e/p> <http://e/b> .\n", "does not begin where it should"),
        (EXAMPLE.read_bytes()[:-2000], "no HDT that can be read"),
        (EXAMPLE.read_bytes().replace(b"dictionaryFour", b"dictionaryFive"), "dictionaryFive"),
        (EXAMPLE.read_bytes().replace(b"order=1", b"order=3"), "in order 3"),
    ],
)
def test_what_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    file = tmp_path / "a.hdt"
    file.write_bytes(content)
    with pytest.raises(RdfInputError, match=reason):
        list(hdt_lines(file))
    assert run("load", "rdf", file, "-o", tmp_path / "store") == 1
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    file, good, choose = tmp_path / "a.hdt", EXAMPLE.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(200):
        damaged = bytearray(good)
        if choose.random() < 0.3:
            del damaged[choose.randrange(len(good)) :]
        else:
            damaged[choose.randrange(len(good))] = choose.randrange(256)
        file.write_bytes(damaged)
        try:
            list(hdt_lines(file))
        except RdfInputError:
            refused += 1
    assert refused > 20


@pytest.mark.peers
def test_random_files_of_another_writer(tmp_path: Path) -> None:
    converter = peers.hdt_converter()
    if converter is None:
        pytest.skip("the npm package hdt is not here, or no C++ compiler")
    choose = random.Random(7)

    def line() -> str:
        subject = f"{choose.choice(['<http://e/n', '<urn:s:'])}{choose.randrange(900)}>"
        values = (
            f"<http://e/n{choose.randrange(900)}>",
            f'"v{choose.randrange(9000)}"',
            f'"é{choose.randrange(50)}"@fr',
        )
        return f"{subject} <http://e/p{choose.randrange(37)}> {choose.choice(values)} ."

    lines = [line() for _ in range(9000)]
    source, target = tmp_path / "a.nt", tmp_path / "a.hdt"
    source.write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
    subprocess.run([converter, source, target], check=True, capture_output=True, timeout=300)
    with open_hdt(target) as file:
        assert triples(file.read()) == triples(source.read_bytes())
