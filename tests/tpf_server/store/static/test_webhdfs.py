"""Stores in HDFS by its REST interface."""

import io
import random
from contextlib import suppress
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from loaders.errors import OutputError
from loaders.rdf.build import WorkSizes, load_rdf_spark
from loaders.rdf.parting import StoreOutput
from loaders.rdf.summary import RdfLoad
from tests.loaders.rdf.test_build import random_files
from tests.support.stores import CREATED
from tests.support.webhdfs import FileServer, files_served
from tpf_client import commands
from tpf_server.errors import NoStoreError, SettingsError, StoreUnreachableError
from tpf_server.store.static import file_systems, http_files
from tpf_server.store.static.fetching import fetch_store, has_changed
from tpf_server.store.static.file_systems import RemoteFolder, is_store_url, system_of
from tpf_server.store.static.indexing import index_files
from tpf_server.store.static.manifest import read_manifest
from tpf_server.store.static.parts import PartsManifest

SIZES = WorkSizes(piece_bytes=30_000, chunk_quads=500, range_rows=400, small=0)


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An HDFS without faults, with its files in the folder of the test."""
    monkeypatch.setattr(http_files, "_PAUSE", 0.001)
    (tmp_path / "hdfs").mkdir()
    with files_served(tmp_path / "hdfs") as server:
        yield server


def test_files_are_what_they_are_on_a_disk(hdfs: FileServer, tmp_path: Path) -> None:
    system = system_of(hdfs.url, ())
    folder = tmp_path / "hdfs"
    content = random.Random(1).randbytes(3_000_000)
    for name, text in (("a/b c#?.bin", content), ("a/empty", b""), ("é/x", b"x")):
        (folder / name).parent.mkdir(exist_ok=True)
        with system.open_output_stream(f"/{name}") as out:
            for start in range(0, len(text), 999_999):
                out.write(text[start : start + 999_999])
            assert not (folder / name).exists()
        assert (folder / name).read_bytes() == text
        with system.open_input_stream(f"/{name}") as stream:
            assert stream.read() == text
    with system.open_input_file("/a/b c#?.bin") as file:
        assert (file.size(), file.metadata() or {}) == (len(content), {})
        assert file.read_at(7, 2_000_000) == content[2_000_000:2_000_007]
        file.seek(-3, io.SEEK_END)
        assert file.read() == content[-3:]
    info = [system.get_file_info(path) for path in ("/a", "/a/empty", "/none")]
    assert [each.type for each in info] == [
        fs.FileType.Directory, fs.FileType.File, fs.FileType.NotFound,
    ]  # fmt: skip
    written = (folder / "a" / "empty").stat().st_mtime
    assert info[1].mtime.timestamp() == pytest.approx(written, abs=0.002)
    listed = system.get_file_info(fs.FileSelector("/", recursive=True))
    assert sorted(each.path for each in listed) == [
        "/a", "/a/b c#?.bin", "/a/empty", "/é", "/é/x",
    ]  # fmt: skip
    assert system.get_file_info(fs.FileSelector("/none", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        system.get_file_info(fs.FileSelector("/none"))
    with pytest.raises(FileNotFoundError):
        system.open_input_file("/none")
    system.move("/é/x", "/a/empty")
    assert (folder / "a" / "empty").read_bytes() == b"x"
    system.delete_dir("/a")
    assert [each.name for each in folder.iterdir()] == ["é"]
    with pytest.raises(FileNotFoundError):
        system.delete_file("/a/x")


def test_a_failure_without_a_text_is_called_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: str) -> None:
        raise TimeoutError

    folder = RemoteFolder("webhdfs://none.test:9870/x", {})
    monkeypatch.setattr(folder._system, "open_input_stream", fail)
    with pytest.raises(StoreUnreachableError, match=r"/x/y: TimeoutError$"):
        folder.read("y")


@pytest.mark.parametrize("seed", range(4))
def test_reading_from_any_byte_is_as_from_memory(
    hdfs: FileServer, tmp_path: Path, seed: int
) -> None:
    pick = random.Random(seed)
    content = pick.randbytes(2_500_000)
    (tmp_path / "hdfs" / "x").write_bytes(content)
    system = system_of(hdfs.url, ())
    with system.open_input_file("/x") as file:
        assert file.read() == content
    # One request of the name node and one of the data node, however large the file is.
    assert [operation for operation, _ in hdfs.requests] == ["GETFILESTATUS", "OPEN", "OPEN"]
    expected = io.BytesIO(content)
    # Of five attempts four fail at most: a content that breaks off, and three refusals.
    failures = cycle([False, False, seed > 0, False, seed > 0, seed > 0, False, False, False])
    hdfs.fails = lambda _operation, _path: next(failures)
    hdfs.cut = 400_000 if seed > 1 else 0
    whences = [io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]
    with system.open_input_file("/x") as file:
        for _ in range(40):
            if pick.random() < 0.5:
                start, whence = pick.randrange(len(content)), pick.choice(whences)
                offset = start - {
                    io.SEEK_SET: 0, io.SEEK_CUR: expected.tell(), io.SEEK_END: len(content),
                }[whence]  # fmt: skip
                assert file.seek(offset, whence) == expected.seek(start)
            size = pick.choice([1, 1000, 70_000, 1_200_000])
            assert file.read(size) == expected.read(size)


def test_what_fails_is_tried_again_and_then_told(hdfs: FileServer) -> None:
    folder = RemoteFolder(f"{hdfs.url}/x", {"HADOOP_USER_NAME": "me", "OTHER": "secret"})
    assert "secret" not in repr(folder.__reduce__())
    some = iter([True, False, True, True, False, False, True])
    hdfs.fails = lambda _operation, _path: next(some, False)
    folder.write("y/a", [b"1", b"2"])
    assert folder.read("y/a") == b"12"
    # No name tells that it is not whole, and nothing is left of what could not be written.
    hdfs.fails = lambda operation, _path: operation == "RENAME"
    with pytest.raises(StoreUnreachableError, match=rf"^{hdfs.url}/x/y/a: HTTP 500"):
        folder.write("y/a", [b"3"])
    hdfs.fails = lambda _operation, _path: False

    def broken() -> Any:
        yield b"4"
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        folder.write("y/b", broken())
    system = system_of(hdfs.url, ())
    assert [e.path for e in system.get_file_info(fs.FileSelector("/x/y"))] == ["/x/y/a"]
    assert set(folder.folders()) == {"y"}
    folder.remove("y")
    folder.remove("y")
    with pytest.raises(FileNotFoundError):
        folder.read("y/a")
    hdfs.fails = lambda _operation, _path: True
    with pytest.raises(StoreUnreachableError, match=rf"^{hdfs.url}/x/y/a: HTTP 500"):
        folder.read("y/a")


ANSWERS = (
    b"", b"{}", b"[]", b"null", b"5", b"nonsense", b"\xff\xfe", b"[" * 60_000, b'{"a":' * 60_000,
    b'{"RemoteException": 5}', b'{"RemoteException": {"exception": ["a\\nb"], "message": 2}}',
    b'{"RemoteException": {"exception": "A\\nB", "message": "c\\nd"}}',
    b'{"RemoteException": {"exception": "A", "message": "\\n"}}' + b" " * (1 << 18),
    b'{"FileStatuses": {"FileStatus": [5]}}', b'{"FileStatus": {}}', b'{"FileStatuses": []}',
    b'{"FileStatus": {"type": "FILE", "length": "x", "modificationTime": 1e300}}',
    b'{"FileStatus": {"type": "FILE", "length": -1, "modificationTime": 9e99}}',
    b'{"FileStatuses": {"FileStatus": [{"type": "FILE", "length": 1, "modificationTime": 1}]}}',
)  # fmt: skip


@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_that_is_not_of_webhdfs_is_one_line(hdfs: FileServer, status: int) -> None:
    folder = RemoteFolder(f"{hdfs.url}/x", {})
    uses: list[Any] = [lambda: folder.read("a"), folder.folders, lambda: folder.remove("a")]
    for body, use in product(ANSWERS, uses):
        hdfs.body = (status, body)
        # Where no answer is needed, or an empty one is as good, nothing fails.
        with suppress(FileNotFoundError):
            try:
                use()
            except StoreUnreachableError as error:
                (line,) = str(error).splitlines()
                assert line.startswith(f"{hdfs.url}/x/")
                assert len(line) < 200


def test_libhdfs_replaces_no_store(hdfs: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{hdfs.url}/city.store"
    system = system_of(hdfs.url, ())
    monkeypatch.setattr(file_systems, "_hadoop", lambda *_: system)
    RemoteFolder(url, {}).write("manifest.json", [b"a store"])
    with pytest.raises(OutputError, match=r"is a store already; libhdfs replaces no file in one s"):
        StoreOutput(url.replace("webhdfs:", "hdfs:"), True, CREATED, {})
    assert RemoteFolder(url, {}).read("manifest.json") == b"a store"


def test_what_is_a_folder_in_hdfs(hdfs: FileServer) -> None:
    assert all(map(is_store_url, ["hdfs://n:8020/a", "webhdfs://n/a", "SWEBHDFS://n/a"]))
    for url in ("webhdfs://n", "webhdfs://n:9870/", "webhdfs:///a", "webhdfs://u@n/a"):
        with pytest.raises(SettingsError, match=r"is no folder in HDFS: webhdfs://HOST:PORT/FO"):
            RemoteFolder(url, {})
    with pytest.raises(StoreUnreachableError, match=r"HDFS needs libhdfs .*webhdfs:// needs nei"):
        RemoteFolder("hdfs://n:8020/a", {})
    nobody = hdfs.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(StoreUnreachableError, match=r"/a/b: connection refused$"):
        RemoteFolder(f"{nobody}/a", {}).read("b")


def test_a_store_goes_there_as_a_whole_and_comes_back(
    hdfs: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{hdfs.url}/stores/city.store"
    cache = tmp_path / "cache"
    files = random_files(tmp_path / "in", 7, False)
    words = ["rdf", *map(str, files), "-o", url, "--engine", "local", "--quiet"]
    with pytest.raises(NoStoreError):
        fetch_store(url, cache, {})
    assert commands.run("tpf-load", words) == 0
    created = [path for operation, path in hdfs.requests if operation == "RENAME"]
    assert created[-1].startswith("/stores/city.store/.manifest.json.")
    store = fetch_store(url, cache, {})
    first = read_manifest(store)
    assert commands.run("tpf-load", words) == 1
    assert "is a store already" in capsys.readouterr().err
    # It fails before the end: the old one counts, and of the new one nothing is left.
    hdfs.fails = lambda operation, path: operation == "RENAME" and "manifest" in path
    assert commands.run("tpf-load", [*words, "--replace"]) == 1
    assert capsys.readouterr().err.startswith(f"tpf-load: {url}/manifest.json: HTTP 500")
    hdfs.fails = lambda _operation, _path: False
    assert not has_changed(url, cache, {})
    assert list(RemoteFolder(url, {}).folders()) == [first.generation]
    # In parts, by workers.
    wanted = index_files(files, tmp_path / "reference", created=CREATED, source="in")
    with StoreOutput(url, True, CREATED, {}) as place:
        summary = load_rdf_spark(
            files, place.path, None, RdfLoad(CREATED, source="in"), sizes=SIZES, parts=place.parts
        )
        place.put(summary)
    assert isinstance(summary.manifest, PartsManifest)
    assert has_changed(url, cache, {})
    found = read_manifest(fetch_store(url, cache, {}))
    assert found == replace(wanted, generation=summary.manifest.generation)
    for name in wanted.files:
        ours = (store / found.generation / name).read_bytes()
        assert ours == (tmp_path / "reference" / wanted.generation / name).read_bytes(), name
    assert list(RemoteFolder(url, {}).folders()) == [found.generation]
