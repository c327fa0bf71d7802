import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fcntl import flock
from pathlib import Path
from typing import IO, Any

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import InputError, OutputError
from loaders.rdf import flow
from loaders.rdf.build import WorkSizes, load_rdf_local, load_rdf_spark, staging
from loaders.rdf.summary import RdfLoad, RdfSummary
from tests.support.examples import examples
from tpf_server.errors import RdfInputError
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import Manifest, read_manifest
from tpf_server.store.static.parts import PartsManifest
from tpf_server.store.static.rdf_files import RdfReader, rdf_files

PROJECT = Path(__file__).parents[3]
W3C = PROJECT.parent / "shared" / "data" / "w3c-sparql11"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
# Every step in several tasks.
SMALL = WorkSizes(piece_bytes=30_000, chunk_quads=500, range_rows=500, small=0)


def content(manifest: Manifest | PartsManifest) -> tuple[object, ...]:
    """The content of a store: its version is a hash of every byte."""
    assert isinstance(manifest, Manifest)
    return (
        manifest.version, manifest.quads, manifest.terms, manifest.graphs, manifest.orders,
        dict(manifest.prefixes),
    )  # fmt: skip


def reference(files: list[Path], tmp_path: Path) -> tuple[object, ...]:
    """The store that the server's own writer makes."""
    return content(index_files(files, tmp_path / "reference", created=CREATED))


def random_files(directory: Path, seed: int, graphs: bool) -> list[Path]:
    """Files with repetitions, blank nodes, awkward literals, and several formats."""
    pick = random.Random(seed)
    directory.mkdir()

    def node() -> str:
        return pick.choice([f"<http://e/{pick.randrange(30)}>", f"_:b{pick.randrange(5)}"])

    def value() -> str:
        text = pick.choice(['"a"', '"\\u00e9\\t"@EN', '"1"^^<http://e/d>', '"🚂"', '"\\uFFFD"'])
        return pick.choice([node(), text, f'"{pick.randrange(99)}"'])

    def graph() -> str:
        return pick.choice(["", f" <http://g/{pick.randrange(3)}>", " _:g"]) if graphs else ""

    def line() -> str:
        return f"{node()} <http://p/{pick.randrange(4)}> {value()}{graph()} .\n"

    suffix = "nq" if graphs else "nt"
    (directory / f"a.{suffix}").write_text("".join(line() for _ in range(2000)))
    packed = gzip.compress("".join(line() for _ in range(300)).encode())
    (directory / f"b.{suffix}.gz").write_bytes(packed)
    (directory / "c.ttl").write_text("@prefix e: <http://e/> . e:1 e:p [ e:q 1, 2.5, true ] .")
    (directory / "d.ttl").write_text("@prefix e: <http://other/> . @prefix f: <http://f/> .")
    return rdf_files([directory])


@pytest.mark.parametrize("graphs", [False, True])
def test_one_process_writes_the_same_store(tmp_path: Path, graphs: bool) -> None:
    files = random_files(tmp_path / "in", 1, graphs)
    summary = load_rdf_local(files, tmp_path / "store", RdfLoad(CREATED))
    assert content(summary.manifest) == reference(files, tmp_path)
    assert (summary.rejects, summary.predicates) == (0, 6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "reference", "store"]


NODES = st.one_of(
    st.integers(0, 6).map("<http://e/{}>".format),
    st.sampled_from(["_:a", "_:b", "<http://e/\u00e9>", "<http://e/🚂>", "<urn:x>"]),
)
VALUES = st.one_of(
    NODES,
    st.text(st.characters(codec="utf-8"), max_size=4).map(
        lambda text: str(pyoxigraph.Literal(text))
    ),
    st.sampled_from(['"x"@EN-gb', '"1"^^<http://e/d>', "<<( <http://e/1> <http://e/p> _:a )>>"]),
)
LINES = st.builds(
    "{} <http://p/{}> {} {} .".format, NODES, st.integers(0, 3), VALUES,
    st.sampled_from(["", "<http://g/1>", "<http://g/2>", "_:g"]),
)  # fmt: skip


@given(
    st.lists(st.lists(LINES, max_size=25), min_size=1, max_size=3),
    st.integers(20, 1500),
    st.integers(3, 30),
    st.integers(3, 30),
    st.sampled_from([1, 9, 64]),
)
@examples(20)
def test_random_graphs_however_the_work_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[list[str]],
    piece_bytes: int,
    chunk_quads: int,
    range_rows: int,
    key_bits: int,
) -> None:
    folder = tmp_path_factory.mktemp("random")
    files = []
    for number, lines in enumerate(contents):
        files.append(folder / f"{number}.nq")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sizes = WorkSizes(piece_bytes, chunk_quads, range_rows, 0, key_bits)
    summary = load_rdf_spark(files, folder / "store", None, RdfLoad(CREATED), sizes=sizes)
    assert summary.rejects == 0
    assert content(summary.manifest) == reference(files, folder)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_workers_that_are_killed_in_every_step(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "killed"
    marks.mkdir()
    of_spark = flow._SparkFlow.map
    steps: list[str] = []

    def killing(itself: Any, function: Any) -> Any:
        mark = str(marks / f"{len(steps)}")
        steps.append(mark)

        def killed_once(value: Any) -> Iterator[Any]:
            for other in function(value):
                yield other
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

        return of_spark(itself, killed_once)

    monkeypatch.setattr(flow._SparkFlow, "map", killing)
    files = random_files(tmp_path / "in", 3, True)
    sizes = replace(SMALL, chunk_quads=1000, range_rows=2000, key_bits=8)
    summary = load_rdf_spark(files, tmp_path / "store", spark, RdfLoad(CREATED), sizes=sizes)
    assert content(summary.manifest) == reference(files, tmp_path)
    assert (summary.rejects, summary.predicates) == (0, 6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "killed", "reference", "store"]
    assert {int(path.name) for path in marks.iterdir()} == set(range(len(steps)))


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_writes_the_same_store_of_the_conformance_data(spark: Any, tmp_path: Path) -> None:
    if not W3C.is_dir():
        pytest.skip("the conformance data are not there")
    files = []
    for file in rdf_files([W3C])[::3]:
        try:
            list(RdfReader(file, 0).quads())
        except RdfInputError:  # relative IRIs, and tests of malformed data
            continue
        files.append(file)
    assert len(files) > 15
    wanted = reference(files, tmp_path)
    summary = load_rdf_spark(files, tmp_path / "store", spark, RdfLoad(CREATED))
    assert content(summary.manifest) == wanted
    local = load_rdf_local(files, tmp_path / "local", RdfLoad(CREATED))
    assert content(local.manifest) == wanted


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_leaves_out_what_is_malformed(spark: Any, tmp_path: Path) -> None:
    lines = [f'<http://e/{n}> <http://e/p> "{n}" .' for n in range(3000)]
    good = tmp_path / "good.nt"
    bad = list(lines)
    places = {0: "x", 700: "<a> <b> .", 1999: '"a" <http://e/p> "b" .', 2999: "end"}
    for place, text in places.items():
        bad.insert(place, text)
    good.write_text("\n".join(lines))
    (tmp_path / "bad.nt").write_text("\n".join(bad))
    rejects = tmp_path / "rejects" / "rejects.ndjson"
    found: list[RdfSummary] = [
        load_rdf_spark(
            [tmp_path / "bad.nt"], tmp_path / "spark", spark, RdfLoad(CREATED, rejects),
            sizes=WorkSizes(piece_bytes=20_000),
        ),
        load_rdf_local([tmp_path / "bad.nt"], tmp_path / "local", RdfLoad(CREATED)),
    ]  # fmt: skip
    wanted = reference([good], tmp_path)
    for summary in found:
        assert content(summary.manifest) == wanted
        assert summary.rejects == 4
        assert {(r.line, r.text) for r in summary.first_rejects} == {
            (place + 1, text) for place, text in places.items()
        }
    assert len(rejects.read_text().splitlines()) == 4
    before = read_manifest(tmp_path / "spark")
    with pytest.raises(InputError, match=r"bad\.nt, line (1|701|2000|3000): "):
        load_rdf_spark(
            [tmp_path / "bad.nt"], tmp_path / "spark", spark, RdfLoad(CREATED, strict=True)
        )
    assert read_manifest(tmp_path / "spark") == before


def test_strict_names_the_first_and_leaves_the_old_store(tmp_path: Path) -> None:
    file = tmp_path / "a.nt"
    file.write_text('<http://e/s> <http://e/p> "x" .\n')
    load_rdf_local([file], tmp_path / "store", RdfLoad(CREATED))
    before = read_manifest(tmp_path / "store")
    file.write_text('<http://e/s> <http://e/p> "y" .\nbad\nworse\n')
    with pytest.raises(InputError, match=r"a\.nt, line 2: .*: bad$"):
        load_rdf_local([file], tmp_path / "store", RdfLoad(CREATED, strict=True))
    assert read_manifest(tmp_path / "store") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nt", "store"]
    summary = load_rdf_local([file], tmp_path / "store", RdfLoad(CREATED))
    assert summary.rejects == 2
    assert content(summary.manifest) != content(before)


def test_files_without_a_triple(tmp_path: Path) -> None:
    file = tmp_path / "a.nt"
    file.write_text("# nothing\n")
    wanted = reference([file], tmp_path)
    local = load_rdf_local([file], tmp_path / "local", RdfLoad(CREATED))
    other = load_rdf_spark([file], tmp_path / "spark", None, RdfLoad(CREATED))
    assert content(local.manifest) == content(other.manifest) == wanted


def test_what_a_killed_load_left_is_removed(tmp_path: Path) -> None:
    locked = tmp_path / ".store.loading"
    locked.mkdir()
    (locked / "lock").touch()
    with staging(tmp_path / "store"):
        with (
            pytest.raises(OutputError, match=r"another load into .* is running"),
            staging(tmp_path / "store"),
        ):
            pass
        assert locked.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_its_holder_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(lock: IO[str], how: int) -> None:
        shutil.rmtree(tmp_path / ".store.loading")
        flock(lock, how)

    monkeypatch.setattr("fcntl.flock", late)
    with pytest.raises(OutputError, match="is running"), staging(tmp_path / "store"):
        pass


def test_outputs_that_are_no_store(tmp_path: Path) -> None:
    file = tmp_path / "a.nt"
    file.write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(OutputError, match="other files"):
        load_rdf_local([file], tmp_path / "other", RdfLoad(CREATED))
    with pytest.raises(OutputError, match="is a directory"):
        load_rdf_local([file], file, RdfLoad(CREATED))


def test_loads_do_not_bring_pandas(tmp_path: Path) -> None:
    # Which each process, and each worker of Spark, would import for half a second.
    example = f"""
import sys
from pathlib import Path
from tests.loaders.rdf.test_build import *
folder = Path({str(tmp_path)!r})
files = random_files(folder / "in", 1, True)
load_rdf_local(files, folder / "one", RdfLoad(CREATED))
load_rdf_spark(files, folder / "many", None, RdfLoad(CREATED), sizes=SMALL)
assert [*flow.joined([each[0].as_py() for each in batch] for batch in flow.pieces_of(7, b"x"))]
assert "pandas" not in sys.modules
"""
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
