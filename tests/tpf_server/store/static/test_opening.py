"""Damaged stores are refused with the reason; RDF files are indexed once."""

import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from annotations.terms import Quad, QuadPattern, Term, variable
from tests.support.stores import CREATED, static_store
from tpf_server.errors import (
    CorruptStoreError,
    NoStoreError,
    RdfInputError,
    StoreFormatError,
    StoreVersionError,
)
from tpf_server.store.static import layout
from tpf_server.store.static.checking import is_store
from tpf_server.store.static.columnar import open_dataset, open_store
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import read_manifest

ANYTHING = QuadPattern(variable("s"), variable("p"), variable("o"), variable("g"))
QUADS = [
    Quad(Term(f"<http://e/{n % 5}>"), Term("<http://e/p>"), Term(f'"{n}"'), graph)
    for n in range(40)
    for graph in (Term(""), Term("<http://e/g>"))
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    static_store(tmp_path / "s", QUADS).close()
    return tmp_path / "s"


def files_of(store: Path) -> list[Path]:
    manifest = read_manifest(store)
    return [store / manifest.generation / name for name in manifest.files]


def test_files_with_a_flipped_byte_cut_short_or_missing_are_noticed(store: Path) -> None:
    for path in files_of(store):
        original = path.read_bytes()
        damaged = [original[:keep] for keep in (0, 1, 100)]
        for position in {0, 9, len(original) // 2, len(original) - 1}:
            flipped = bytearray(original)
            flipped[position] ^= 0x10
            damaged.append(bytes(flipped))
        for content in damaged:
            path.write_bytes(content)
            with pytest.raises(CorruptStoreError, match=path.name):
                open_store(store)
        path.unlink()
        with pytest.raises(CorruptStoreError, match=path.name):
            open_store(store)
        path.write_bytes(original)
    with open_store(store) as opened:
        assert opened.count(ANYTHING) == len(QUADS)


def test_a_flip_behind_the_back_of_the_file_system_is_found_without_the_stamp(store: Path) -> None:
    path = files_of(store)[3]
    flipped = bytearray(path.read_bytes())
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    # As if the medium had decayed: the stamp fits the file as it now is.
    folder = path.parent
    stamp = json.loads((folder / layout.VERIFIED).read_text())
    status = path.stat()
    stamp[path.name] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    (folder / layout.VERIFIED).write_text(json.dumps(stamp))
    open_store(store).close()
    (folder / layout.VERIFIED).unlink()
    with pytest.raises(CorruptStoreError, match=path.name):
        open_store(store)


def test_missing_manifest_or_directory(store: Path, tmp_path: Path) -> None:
    (store / layout.MANIFEST).unlink()
    with pytest.raises(NoStoreError, match=layout.MANIFEST):
        open_store(store)
    with pytest.raises(NoStoreError, match=layout.MANIFEST):
        open_dataset(store, tmp_path / "cache")
    with pytest.raises(NoStoreError):
        open_store(tmp_path / "nowhere")


def test_manifest_that_was_changed(store: Path) -> None:
    path = store / layout.MANIFEST
    text = path.read_text()
    for wrong in (
        text.replace('"quads": 80', '"quads": 79'),
        text[: len(text) // 2],
        "[]",
        "{}",
        "[" * 100_000,
        "",
    ):
        path.write_text(wrong)
        with pytest.raises(StoreFormatError):
            open_store(store)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptStoreError):
        open_store(store)


def test_other_version_says_what_to_do(store: Path) -> None:
    path = store / layout.MANIFEST
    body = json.loads(path.read_text())
    body["format_version"] = 999
    path.write_text(json.dumps(body))
    with pytest.raises(StoreVersionError, match=r"999.*write the store again"):
        open_store(store)


def test_a_copy_is_checked_once_and_then_trusted(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    stamp = copy / read_manifest(copy).generation / layout.VERIFIED
    before = stamp.read_text()
    with open_store(copy) as opened:
        assert opened.count(ANYTHING) == len(QUADS)
    assert stamp.read_text() != before


def test_a_store_that_cannot_be_stamped_is_checked_at_every_opening(store: Path) -> None:
    folder = files_of(store)[0].parent
    (folder / layout.VERIFIED).unlink()
    # In the way of the stamp, as on a read-only medium (root may write everywhere).
    (folder / layout.VERIFIED).mkdir()
    before = sorted(folder.iterdir())
    for _ in range(2):
        with open_store(store) as opened:
            assert opened.count(ANYTHING) == len(QUADS)
    assert sorted(folder.iterdir()) == before


def test_replaced_between_manifest_and_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = read_manifest(store)
    static_store(store, QUADS[:2]).close()
    answers = [stale]
    monkeypatch.setattr(
        "tpf_server.store.static.columnar.read_manifest",
        lambda path: answers.pop() if answers else read_manifest(path),
    )
    with open_store(store) as opened:
        assert opened.count(ANYTHING) == 2


def test_is_store_and_version(store: Path, tmp_path: Path) -> None:
    assert is_store(store)
    assert not is_store(tmp_path)
    with open_store(store) as opened:
        assert read_manifest(store).version == opened.version
        assert opened.modified == CREATED
    with open_dataset(store, tmp_path / "cache") as opened:
        assert opened.count(ANYTHING) == len(QUADS)
    assert not (tmp_path / "cache").exists()


def test_dataset_of_rdf_files_is_indexed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed: list[object] = []

    def counted(*args: object, **kwargs: object) -> object:
        indexed.append(args)
        return index_files(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("tpf_server.store.static.indexing.index_files", counted)
    source, cache = tmp_path / "data", tmp_path / "cache"
    source.mkdir()
    (source / "a.ttl").write_text("<http://e/s> <http://e/p> 1, 2 .")
    os.utime(source / "a.ttl", (1_449_570_000, 1_449_570_000))
    for _ in range(2):
        with open_dataset(source, cache) as opened:
            assert opened.count(ANYTHING) == 2
            assert opened.modified == datetime(2015, 12, 8, 10, 20, tzinfo=UTC)
    assert len(indexed) == 1
    (source / "b.nt").write_text("<http://e/s> <http://e/p> <http://e/o> .\n")
    with open_dataset(source, cache) as opened:
        assert opened.count(ANYTHING) == 3
    assert len(indexed) == 2
    # A cached store that is damaged is made again.
    next(cache.glob("data-*/generation-*/terms.arrow")).write_bytes(b"damaged")
    with open_dataset(source, cache) as opened:
        assert opened.count(ANYTHING) == 3
    assert len(indexed) == 3


def test_processes_that_start_together_index_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.nt"
    source.write_text("<http://e/s> <http://e/p> <http://e/o> .\n")
    indexed: list[object] = []
    together = threading.Barrier(4)

    def slow(*args: object, **kwargs: object) -> object:
        indexed.append(args)
        time.sleep(0.1)
        return index_files(*args, **kwargs)  # type: ignore[arg-type]

    def start(_: int) -> int:
        together.wait()
        with open_dataset(source, tmp_path / "cache") as opened:
            return opened.count(ANYTHING)

    monkeypatch.setattr("tpf_server.store.static.indexing.index_files", slow)
    # Threads stand for processes: the lock belongs to the open file, not to the process.
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(start, range(4))) == [1] * 4
    assert len(indexed) == 1


def test_datasets_of_the_same_name_do_not_share_a_cache(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "trains.nt"
        path.write_text(f"<http://e/{name}> <http://e/p> <http://e/o> .\n")
    with (
        open_dataset(tmp_path / "one/trains.nt", tmp_path / "cache") as one,
        open_dataset(tmp_path / "two/trains.nt", tmp_path / "cache") as two,
    ):
        assert one.quads(ANYTHING, 0, 9)[0].subject == "<http://e/one>"
        assert two.quads(ANYTHING, 0, 9)[0].subject == "<http://e/two>"


def test_dataset_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("nonsense\n")
    for path in (tmp_path / "a.nt", tmp_path / "missing.nt"):
        with pytest.raises(RdfInputError, match=path.name):
            open_dataset(path, tmp_path / "cache")
