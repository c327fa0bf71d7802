"""RDF files at URLs are found, cut and read as on a disk."""

import dataclasses
import errno
import gzip
import os
import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from loaders import places as module
from loaders.errors import InputError
from loaders.places import RemoteFile, web_file
from loaders.rdf.pieces import PieceReader, Reject, cut, input_files, remote_files
from tests.support.file_servers import put, web
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.webhdfs import files_served
from tpf_client import commands
from tpf_server.store.static import file_systems, http_files
from tpf_server.store.static.file_systems import local_path, s3_system
from tpf_server.store.static.http_files import AgainError
from tpf_server.store.static.manifest import read_manifest
from tpf_server.store.static.rdf_files import QuadTexts

FOLDER = f"s3://{BUCKET}/in"
PATTERNS = ("", "/", "/c", "/c/*", "/*/*.ttl", "/**/*.nt*", "/[a-c]*", "/a.nt", "/?[!o]*")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Files of many kinds, in folders."""
    pick = random.Random(5)
    text = "".join(
        f'<x:s{pick.randrange(99)}> <x:p> "{"é" * pick.randrange(40)}" .\n' for _ in range(700)
    ).encode()
    lines = text + b"nonsense\n" + text
    files = {
        "in/a.nt": lines, "in/b.nq.gz": gzip.compress(text), "in/c/d.ttl": b"<x:a> <x:b> _:c .",
        "in/c/e/f g.nt.zst": zstd(text), "in/c/.hidden.nt": text, "in/note.txt": b"dear",
        "in/.d/a.nt": text,
        "in/c/g.jsonld": b'{"@id": "x:a", "x:b": {"@id": "x:c"}}', "in/h#1?.nt": text,
    }  # fmt: skip
    for name, content in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "in"


@pytest.mark.parametrize("closed", ["c", ".d"])
def test_a_folder_that_cannot_be_read_is_named(
    disk: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    scandir = os.scandir

    def refusing(path: str | os.PathLike[str]) -> Any:
        if Path(path).name == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    for names in (lambda: input_files([disk]), lambda: module.names_below(disk)):
        if closed == ".d":
            assert names()
            continue
        with pytest.raises(PermissionError, match=r"in/c'"):
            names()


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


@pytest.fixture
def there(disk: Path, remote: ObjectStore) -> Path:
    """The same files in an object store, too."""
    put(disk, remote)
    return disk


def read(files: list[Path | RemoteFile], piece: int) -> tuple[list[QuadTexts], list[Reject]]:
    rejects: list[Reject] = []
    quads: list[QuadTexts] = []
    for each in pickle.loads(pickle.dumps(cut(files, piece))):
        quads += PieceReader(each, rejects.append).quads()
    return quads, rejects


def test_what_lies_in_an_object_store_is_read_as_from_a_disk(
    there: Path, remote: ObjectStore
) -> None:
    for given in PATTERNS:
        local = input_files([f"{there}{given}"])
        names = [str(file).replace(str(there), FOLDER) for file in local]
        assert list(map(str, input_files([f"{FOLDER}{given}"]))) == names, given
    with pytest.raises(InputError, match=r"^s3://stores/in/note\.txt: '\.txt' is no ending"):
        input_files([f"{FOLDER}/*"])
    here, far = input_files([there]), input_files([FOLDER.replace("s3:", "S3A:")])
    assert len(far) == 6
    for piece in (3000, 1 << 30):
        quads, rejects = read(here, piece)
        wanted = [each._replace(path=f"{FOLDER.replace('s3:', 'S3A:')}/a.nt") for each in rejects]
        assert read(far, piece) == (quads, wanted)
        assert [(each.line, each.text) for each in rejects] == [(701, "nonsense")]
    assert len(cut(far, 3000)) > 20
    system = s3_system(remote.environment)
    with system.open_output_stream(f"{BUCKET}/in/a.nt", compression=None) as out:
        out.write(b"\n")
    with pytest.raises(InputError, match=r"in/a\.nt: it has changed while it was read"):
        read(far, 3000)
    assert not any(word in repr(far) for word in ("somebody", "something"))


def test_so_it_is_in_hdfs(disk: Path) -> None:
    with files_served(disk.parent) as hdfs:
        folder = f"{hdfs.url}/in"
        for given in PATTERNS:
            local = input_files([f"{disk}{given}"])
            names = [str(file).replace(str(disk), folder) for file in local]
            assert list(map(str, input_files([f"{folder}{given}"]))) == names, given
        far = input_files([folder])
        assert read(far, 3000)[0] == read(input_files([disk]), 3000)[0]
        with pytest.raises(InputError, match=rf"^{folder}/absent\.nt: does not exist$"):
            input_files([f"{folder}/absent.nt"])
        hour_ago = (disk / "a.nt").stat().st_mtime - 3600
        os.utime(disk / "a.nt", (hour_ago, hour_ago))
        with pytest.raises(InputError, match=rf"^{folder}/a\.nt: it has changed while it was rea"):
            read(far, 3000)


def test_a_file_that_is_replaced_by_one_of_equal_size_ends_the_load(
    there: Path, remote: ObjectStore
) -> None:
    (found,) = remote_files(f"{FOLDER}/a.nt")
    content = (there / "a.nt").read_bytes()
    system = s3_system(remote.environment)
    replacing = iter([True])

    def replaced(method: str, path: str) -> bool:
        if method == "GET" and path.endswith("/a.nt") and next(replacing, False):
            with system.open_output_stream(f"{BUCKET}/in/a.nt", compression=None) as out:
                out.write(content.swapcase())
        return False

    # Between two parts of one reading.
    remote.fails = replaced
    with pytest.raises(OSError, match="it has changed while it was read"), found.opened() as file:
        file.read()
    # Between two readings, each by another worker; and since it was found.
    remote.fails = lambda _method, _path: False
    assert found.written is not None
    (again,) = remote_files(f"{FOLDER}/a.nt")
    with again.opened() as file:
        assert file.read() == content.swapcase()
    earlier = dataclasses.replace(again, written=found.written - 1)
    with pytest.raises(InputError, match=rf"^{FOLDER}/a\.nt: it has changed while it was read$"):
        read([earlier], 3000)


def test_an_object_store_that_answers_late_is_asked_again(
    there: Path, remote: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "_REQUEST_SECONDS", 1)
    module._opened.cache_clear()
    released = threading.Event()
    late = iter([True])

    def wait(method: str, path: str) -> bool:
        if method == "GET" and path.endswith("/a.nt") and next(late, False):
            released.wait(60)
        return False

    remote.fails = wait
    far = input_files([f"{FOLDER}/a.nt"])
    remote.requests.clear()
    quads, _ = read(far, 1 << 30)
    released.set()
    module._opened.cache_clear()
    assert len(quads) == len(read(input_files([there / "a.nt"]), 1 << 30)[0])
    assert len(remote.requests) >= 2


def test_what_is_not_there_or_not_to_be_had_is_told_in_a_line(
    there: Path,
    remote: ObjectStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(given: str) -> str:
        words = ["rdf", given, "-o", str(tmp_path / "store"), "--engine", "local", "--quiet"]
        assert commands.run("tpf-load", words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("tpf-load: ")
        assert not (tmp_path / "store").exists()
        return line.removeprefix("tpf-load: ")

    assert said(f"{FOLDER}/absent.nt") == f"{FOLDER}/absent.nt: does not exist"
    assert said("s3://absent/a.nt") == "s3://absent/a.nt: does not exist"
    assert said("s3://") == "s3://: names no file and no folder"
    assert said(f"{FOLDER}/*.trig") == f"{FOLDER}/*.trig: no file matches"
    assert said("ftp://e/a.nt").startswith("ftp://e/a.nt: ftp:// is not read from (s3://, ")
    assert said("hdfs://node:8020/a.nt").startswith("hdfs://node:8020/a.nt: HDFS needs libhdfs")
    assert said("https://me:secret@e/a.nt").startswith("https://e/a.nt: a URL that is loaded has ")
    assert said(f"{FOLDER}//a.nt").startswith(f"{FOLDER}//a.nt: Empty path component")
    assert said("http://[::1/a.nt") == "http://[::1/a.nt: no URL that can be asked"
    # It fails now and then; while a file is read; and from the beginning.
    some = iter([True, False, True])
    remote.fails = lambda _method, _path: next(some, False)
    words = ["rdf", FOLDER, "-o", str(tmp_path / "other"), "--engine", "local", "--quiet"]
    assert commands.run("tpf-load", words) == 0
    assert read_manifest(tmp_path / "other").source == FOLDER
    monkeypatch.setattr(file_systems, "_ATTEMPTS", 2)
    module._opened.cache_clear()
    remote.fails = lambda method, path: method == "GET" and path.endswith("/a.nt")
    assert said(FOLDER).startswith(f"{FOLDER}/a.nt: ")
    remote.fails = lambda _method, _path: True
    assert said(FOLDER).startswith(f"{FOLDER}: ")
    module._opened.cache_clear()


def test_files_at_a_web_server(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_files, "_PAUSE", 0.001)
    with web(disk) as (url, files):
        names = ["a.nt", "b.nq.gz", "c/d.ttl", "c/e/f g.nt.zst"]
        far = input_files([f"{url}/{name.replace(' ', '%20')}?signature=x" for name in names])
        quads, rejects = read(input_files([disk / name for name in names]), 3000)
        for failures, cut_at in ([], 0), ([503, 0, 429, 500], 0), ([], 1500):
            files.failures, files.cut = iter(failures), cut_at
            found, others = read(far, 3000)
            assert found == quads
            assert [each.line for each in others] == [each.line for each in rejects]
            assert {each.path for each in others} == {f"{url}/a.nt"}
        files.cut = 0
        assert len(cut(far, 3000)) > 20
        files.failures = iter([500] * 5)
        with pytest.raises(InputError, match=rf"^{url}/a\.nt: HTTP 500 "):
            read(far, 3000)
        files.failures = iter([204])
        with pytest.raises(InputError, match=rf"^{url}/a\.nt: HTTP 204 "):
            remote_files(f"{url}/a.nt")
        files.failures = iter(())
        files.tag = '"2"'
        with pytest.raises(InputError, match="changed while it was read"):
            read(far, 3000)
        # A server that does not say when a file changes tells its size.
        files.tag = ""
        far = [*remote_files(f"{url}/a.nt")]
        text = (disk / "a.nt").read_bytes()
        (disk / "a.nt").write_bytes(text + b"\n")
        with pytest.raises(InputError, match="changed while it was read"):
            read(far, 3000)
        (disk / "a.nt").write_bytes(text)
        # Without parts, as one piece; and a break is the end, for nobody can go on behind it.
        files.parts = False
        (plain,) = cut(remote_files(f"{url}/a.nt"), 3000)
        assert list(PieceReader(plain, rejects.append).quads()) == read([disk / "a.nt"], 3000)[0]
        files.cut = 1500
        with pytest.raises(InputError, match=r"a\.nt: an answer that is cut short"):
            list(PieceReader(plain, rejects.append).quads())
        files.cut = 0
        (disk / "a.nt").write_bytes(b"")
        files.parts = True
        (empty,) = remote_files(f"{url}/a.nt")
        assert (empty.size, read([empty], 3000)) == (0, ([], []))
        for name, message in (("x.nt", "HTTP 404 "), ("note.txt", "no ending")):
            with pytest.raises(InputError, match=rf"^{url}/{name}.*: .*{message}"):
                input_files([f"{url}/{name}"])
    with pytest.raises(InputError, match=rf"^{url}/a\.nt: connection refused"):
        input_files([f"{url}/a.nt"])


def test_what_is_a_url() -> None:
    urls = ["s3://b/a", "HTTP://e/a", "ftp://e", "svn+ssh://e/a", "git+https://e/a", "x-y.z1://e"]
    assert [local_path(each) for each in urls] == [None] * len(urls)
    for path in ("a.nt", "a/://b", Path("s3:/a"), "c:a", "1a://b", "é://b", "://b"):
        assert local_path(path) == Path(path)
    for scheme in ("file", "FILE", "File"):
        assert local_path(f"{scheme}:///a/b.nt") == Path("/a/b.nt")
        assert local_path(f"{scheme}://LocalHost/a/b%20c.nt") == Path("/a/b c.nt")
        assert local_path(f"{scheme}:///100%.nt") == Path("/100%.nt")
        assert local_path(f"{scheme}://elsewhere/a/b.nt") is None


def test_a_text_that_is_no_url_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it is asked again"))
    for wrong in ("http://[x/", "http://h:x/"):
        with pytest.raises(OSError, match="no URL that can be asked") as caught:
            web_file(wrong)
        assert not isinstance(caught.value, AgainError)
