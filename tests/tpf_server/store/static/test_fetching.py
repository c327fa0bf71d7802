"""Stores in an object store: fetched complete or not at all."""

import json
from pathlib import Path

import pytest
import requests

from tests.support.eventually import eventually
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.running_server import RunningServer
from tests.support.stores import CREATED
from tpf_client import commands
from tpf_server.errors import (
    CorruptStoreError,
    NoStoreError,
    SettingsError,
    StoreUnreachableError,
)
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.sources import static_store
from tpf_server.store.static.fetching import fetch_store, has_changed
from tpf_server.store.static.file_systems import RemoteFolder, is_store_url
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import read_manifest

URL = f"s3://{BUCKET}/city/trains.store"


def write_lines(folder: Path, lines: int) -> Path:
    source = folder / "trains.nt"
    source.write_text("".join(f"<x:t{n}> <x:stop> <x:s> .\n" for n in range(lines)))
    return source


def load(source: Path, *arguments: str) -> int:
    """``tpf-load rdf``, in this process; its exit status."""
    words = ["rdf", str(source), "-o", URL, "--engine", "local", "--quiet", *arguments]
    return commands.run("tpf-load", words)


def files_of(store: Path) -> dict[str, bytes]:
    manifest = read_manifest(store)
    return {name: (store / manifest.generation / name).read_bytes() for name in manifest.files}


def test_what_was_loaded_is_fetched_once_and_again_when_it_changes(
    remote: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path, 100)
    index_files([source], tmp_path / "reference", created=CREATED)
    assert load(source) == 0
    assert [path for method, path in remote.requests if method == "PUT"][-1].endswith(
        "/trains.store/manifest.json"
    )
    store = fetch_store(URL, tmp_path / "cache", remote.environment)
    assert files_of(store) == files_of(tmp_path / "reference")
    first = read_manifest(store)
    assert not has_changed(URL, tmp_path / "cache", remote.environment)

    remote.requests.clear()
    assert fetch_store(URL.replace("s3:", "s3a:") + "/", tmp_path / "c", remote.environment)
    again = len(remote.requests)
    remote.requests.clear()
    assert fetch_store(URL, tmp_path / "cache", remote.environment) == store
    assert len(remote.requests) < 4 < again  # nothing but the manifest

    assert load(source) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"tpf-load: {URL} is a store already; --replace writes it anew"
    assert load(write_lines(tmp_path, 7), "--replace") == 0
    assert has_changed(URL, tmp_path / "cache", remote.environment)
    assert read_manifest(fetch_store(URL, tmp_path / "cache", remote.environment)).quads == 7
    # Neither here nor there is anything left of the first.
    (there,) = RemoteFolder(URL, remote.environment).folders()
    assert there != first.generation
    assert not (store / first.generation).exists()


def test_nothing_half_written_is_fetched(remote: ObjectStore, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = RemoteFolder(URL, remote.environment)
    with pytest.raises(NoStoreError, match=rf"^{URL} is not a store"):
        fetch_store(URL, cache, remote.environment)
    # A load that ends before its manifest is there removes what it wrote; one that is cut off
    # from then on does not.
    ended: list[str] = []

    def refused(method: str, path: str) -> bool:
        if method == "PUT" and path.endswith("manifest.json"):
            ended.append(path)
            return True
        return False

    def cut_off(method: str, path: str) -> bool:
        return refused(method, path) or bool(ended)

    for fails, left in ((refused, 0), (cut_off, 1)):
        remote.fails = fails
        assert load(write_lines(tmp_path, 3)) == 1
        ended.clear()
        assert len(folder.folders()) == left
    remote.fails = lambda _method, _path: False
    with pytest.raises(NoStoreError):
        fetch_store(URL, cache, remote.environment)

    assert load(write_lines(tmp_path, 4)) == 0
    store = fetch_store(URL, cache, remote.environment)
    assert load(write_lines(tmp_path, 5), "--replace") == 0
    generation = json.loads(folder.read("manifest.json"))["generation"]
    whole = folder.read(f"{generation}/terms.arrow")
    for damaged in (whole[:-1], whole[:-1] + b"?"):
        folder.write(f"{generation}/terms.arrow", [damaged])
        with pytest.raises(CorruptStoreError, match=r"terms\.arrow is corrupt"):
            fetch_store(URL, cache, remote.environment)
        assert read_manifest(store).quads == 4
    text = folder.read("manifest.json").decode()
    for altered in (text.replace('"quads": 5', '"quads": 6'), "{", text[:100]):
        folder.write("manifest.json", [altered.encode()])
        with pytest.raises(CorruptStoreError, match=r"manifest\.json is (corrupt|not)"):
            fetch_store(URL, cache, remote.environment)
    assert read_manifest(store).quads == 4


@pytest.mark.parametrize("damaged", ["manifest.json", "generation-*/terms.arrow"])
def test_a_fetch_that_was_killed_or_is_damaged_is_in_nobodys_way(
    remote: ObjectStore, tmp_path: Path, damaged: str
) -> None:
    assert load(write_lines(tmp_path, 3)) == 0
    store = fetch_store(URL, tmp_path / "cache", remote.environment)
    files = files_of(store)
    for content in (None, b"{"):
        (file,) = store.glob(damaged)
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert fetch_store(URL, tmp_path / "cache", remote.environment) == store
        assert files_of(store) == files


def test_an_object_store_that_fails_is_asked_again_and_then_told_in_a_line(
    remote: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = iter([True, True, False, True])
    remote.fails = lambda _method, _path: next(some, False)
    assert load(write_lines(tmp_path, 3)) == 0
    assert capsys.readouterr().err == ""
    remote.fails = lambda _method, _path: True
    with pytest.raises(StoreUnreachableError, match=rf"^{URL}/manifest\.json: "):
        fetch_store(URL, tmp_path / "cache", remote.environment)
    assert load(write_lines(tmp_path, 3), "--replace") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tpf-load: {URL}/manifest.json: ")


@pytest.mark.parametrize(
    ("url", "environment", "message"),
    [
        ("s3://bucket", {}, "no folder in a bucket"),
        ("s3:///folder", {}, "no folder in a bucket"),
        ("s3://key@bucket/folder", {}, "no folder in a bucket"),
        ("s3://bucket/a//b", {}, "no folder in a bucket"),
        ("s3://bucket/folder#1", {}, "no folder in a bucket"),
        (URL, {"AWS_ENDPOINT_URL": "localhost:9000"}, "'localhost:9000'"),
    ],
)
def test_addresses_that_are_none(url: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RemoteFolder(url, environment)


def test_what_is_a_url() -> None:
    assert is_store_url(URL)
    assert is_store_url("S3A://bucket/folder")
    assert not any(map(is_store_url, ["trains.store", "/s3/x", "s3:/x", "file:///x", Path("s3")]))


def test_a_server_follows_a_store_at_a_url(remote: ObjectStore, tmp_path: Path) -> None:
    assert load(write_lines(tmp_path, 3)) == 0
    config = f'source_interval = 0.1\n[datasets.trains]\nsource = "{URL}"\nlive = false\n'
    with RunningServer(tmp_path, config) as server:

        def lines() -> int:
            answer = requests.get(f"{server.url}trains.nq", timeout=60)
            assert answer.status_code == 200
            return answer.text.count("<x:stop>")

        assert lines() == 3
        assert load(write_lines(tmp_path, 5), "--replace") == 0
        eventually(lambda: lines() == 5)


def test_a_server_begins_with_what_it_has_where_the_object_store_is_away(
    remote: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = DatasetSettings(name="trains", source=URL), Settings(data_dir=str(tmp_path / "data"))
    assert load(write_lines(tmp_path, 5)) == 0
    remote.fails = lambda _method, _path: True
    with pytest.raises(StoreUnreachableError):
        static_store(*here, fetch=True)
    remote.fails = lambda _method, _path: False
    store = static_store(*here, fetch=True)
    capsys.readouterr()
    remote.fails = lambda _method, _path: True
    assert static_store(*here, fetch=True) == store
    assert store is not None
    assert read_manifest(store).quads == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tpf-server: {URL}/manifest.json: ")
    assert line.endswith("; it is served as it was fetched before")
