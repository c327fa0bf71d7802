"""Stores written in parts equal those of one machine, once fetched."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from loaders.errors import OutputError
from loaders.rdf.build import WorkSizes, load_rdf_spark
from loaders.rdf.orders import OrderRanges
from loaders.rdf.parting import PartsPlace, RowsPart, StoreOutput, manifest_of_parts
from loaders.rdf.summary import RdfLoad, RdfSummary
from tests.loaders.rdf.test_build import random_files
from tests.support.object_store import BUCKET, ObjectStore
from tpf_server.errors import CorruptStoreError, NoStoreError, StoreUnreachableError
from tpf_server.store.static import file_systems, layout
from tpf_server.store.static.fetching import fetch_store, has_changed, remote_manifest
from tpf_server.store.static.file_systems import RemoteFolder
from tpf_server.store.static.indexing import KeyCode, index_files
from tpf_server.store.static.manifest import read_manifest
from tpf_server.store.static.parts import PartsManifest, StorePart

URL = f"s3://{BUCKET}/parts/city.store"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = WorkSizes(piece_bytes=30_000, chunk_quads=500, range_rows=400, small=0)


def load(files: list[Path], remote: ObjectStore, sizes: WorkSizes = SIZES) -> RdfSummary:
    """Run the tasks of ``tpf-load rdf --engine spark`` in this process."""
    with StoreOutput(URL, True, CREATED, remote.environment) as place:
        summary = load_rdf_spark(
            files, place.path, None, RdfLoad(CREATED, source="in"), sizes=sizes, parts=place.parts
        )
        place.put(summary)
    return summary


def _refusing(what: str, method: str, path: str) -> bool:
    return method in ("PUT", "POST") and what in path


@pytest.mark.parametrize("graphs", [False, True])
def test_parts_become_the_files_of_one_machine(
    remote: ObjectStore, tmp_path: Path, graphs: bool
) -> None:
    files = random_files(tmp_path / "in", 7, graphs)
    wanted = index_files(files, tmp_path / "reference", created=CREATED, source="in")
    summary = load(files, remote, replace(SIZES, key_bits=64 if graphs else 8))
    manifest = summary.manifest
    assert isinstance(manifest, PartsManifest)
    assert all(len(parts) > 1 for parts in manifest.parts.values())
    assert [path for method, path in remote.requests if method == "PUT"][-1].endswith(
        "/city.store/manifest.json"
    )
    counts = [(each.quads, each.terms, each.graphs, each.orders) for each in (manifest, wanted)]
    assert counts[0] == counts[1]
    assert summary.predicates == 6
    store = fetch_store(URL, tmp_path / "cache", remote.environment)
    found = read_manifest(store)
    assert found == replace(wanted, generation=manifest.generation)
    for name in wanted.files:
        ours = (store / found.generation / name).read_bytes()
        assert ours == (tmp_path / "reference" / wanted.generation / name).read_bytes(), name
    assert not has_changed(URL, tmp_path / "cache", remote.environment)
    # Another one, by the local writer, takes its place; and nothing of the first is left.
    small = load(files[-1:], remote, replace(SIZES, small=10_000))
    assert not isinstance(small.manifest, PartsManifest)
    assert has_changed(URL, tmp_path / "cache", remote.environment)
    assert read_manifest(fetch_store(URL, tmp_path / "cache", remote.environment)).quads == 0
    assert list(RemoteFolder(URL, remote.environment).folders()) == [small.manifest.generation]


def test_of_parts_nothing_half_written_is_fetched(
    remote: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "_ATTEMPTS", 2)
    files = random_files(tmp_path / "in", 8, True)
    folder = RemoteFolder(URL, remote.environment)
    for refused in ("/posg-00001-", "/terms-00000-", "/manifest.json"):
        remote.fails = partial(_refusing, refused)
        with pytest.raises(OutputError, match=rf"^{URL}(/generation-\w+)?{refused}"):
            load(files, remote)
        remote.fails = lambda _method, _path: False
        with pytest.raises(NoStoreError):
            fetch_store(URL, tmp_path / "cache", remote.environment)
        assert not folder.folders()
    load(files, remote)
    store = fetch_store(URL, tmp_path / "cache", remote.environment)
    before = read_manifest(store)
    load(files[1:], remote)
    manifest = remote_manifest(folder)
    assert isinstance(manifest, PartsManifest)
    part = random.Random(1).choice(manifest.parts["gpos"])
    name = f"{manifest.generation}/{part.name}"
    whole = folder.read(name)
    for damaged in (whole[:-1], whole[:-1] + b"?"):
        folder.write(name, [damaged])
        with pytest.raises(CorruptStoreError, match=r"gpos-\d+-\w+\.arrow is corrupt"):
            fetch_store(URL, tmp_path / "cache", remote.environment)
    folder.remove(manifest.generation)
    with pytest.raises(CorruptStoreError, match=r"terms-00000-\w+\.arrow is missing"):
        fetch_store(URL, tmp_path / "cache", remote.environment)
    assert read_manifest(store) == before
    text = folder.read("manifest.json").decode()
    for altered in (text.replace('"quads": ', '"quads": 1'), text[:300]):
        folder.write("manifest.json", [altered.encode()])
        with pytest.raises(CorruptStoreError, match=r"manifest\.json is corrupt"):
            fetch_store(URL, tmp_path / "cache", remote.environment)


def test_parts_stay_where_their_manifest_came_although_nobody_said_so(
    remote: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = random_files(tmp_path / "in", 8, True)
    load(files[1:], remote)
    write = RemoteFolder.write

    def lost(folder: RemoteFolder, name: str, blocks: Iterable[bytes]) -> None:
        write(folder, name, blocks)
        if name == layout.MANIFEST:
            raise StoreUnreachableError(f"{folder.url}/{name}: no answer")

    with monkeypatch.context() as patched:
        patched.setattr(RemoteFolder, "write", lost)
        with pytest.raises(OutputError, match="no answer"):
            load(files, remote)
    found = remote_manifest(RemoteFolder(URL, remote.environment))
    store = fetch_store(URL, tmp_path / "cache", remote.environment)
    assert read_manifest(store).generation == found.generation


def test_parts_that_are_no_store_are_refused() -> None:
    """Nondeterministic workers are found out."""
    sizes = dict.fromkeys("spo", 9)
    orders = {
        name: OrderRanges(KeyCode(name, sizes), 2 * k, np.zeros(1, dtype=np.uint64))
        for k, name in enumerate(layout.TRIPLE_ORDERS)
    }
    rows = [
        RowsPart(
            2 * k + half, StorePart(f"{name}-{half}", 1, "?"), 2, 1, (half, 1, 1), (half, 1, 2),
            dict.fromkeys("spo", half),
        )
        for k, name in enumerate(orders)
        for half in range(2)
    ]  # fmt: skip

    def manifest(rows: list[RowsPart]) -> PartsManifest:
        folder = RemoteFolder(URL, {})
        return manifest_of_parts(
            PartsPlace(folder, "generation-0"), [], rows, orders, 9, RdfLoad(CREATED)
        )[0]

    assert manifest(random.Random(1).sample(rows, len(rows))) == manifest(rows)
    assert manifest(rows).quads == 4
    with pytest.raises(OutputError, match="do not hold the same quads"):
        manifest(rows[:-1])
    with pytest.raises(OutputError, match="order spo do not ascend"):
        manifest([rows[1]._replace(number=0), rows[0]._replace(number=1), *rows[2:]])
