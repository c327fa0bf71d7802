"""Inputs at paths and URLs: in an object store (``s3://``), in HDFS, or at a web server.

Workers read exactly the version that was looked up once, or fail.
"""

import io
import json
import mmap
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote

import requests

from annotations.whole_files import files_below
from loaders.errors import InputError
from loaders.fetching import host_parts
from tpf_server.errors import RdfInputError, SettingsError
from tpf_server.store.static.file_systems import (
    HADOOP,
    OBJECTS,
    Access,
    access_in,
    local_path,
    location_of,
    system_of,
)
from tpf_server.store.static.http_files import (
    ChangedError,
    MissingError,
    asked_again,
    http_answer,
    open_http,
)

if TYPE_CHECKING:
    from pyarrow import Buffer
    from pyarrow.fs import FileInfo, FileSystem

WEB: Final = ("http", "https")
_BUFFER: Final = 4 << 20
_BLOCK: Final = 1 << 20
_READ: Final = frozenset({200, 206, 416})
"""The statuses that a request for a file, or for a part of it, may have."""


class WebFile(NamedTuple):
    """A web server's size, range support, and entity tag or date of a file."""

    size: int | None
    parts: bool
    tag: str | None


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL, for workers, too; `size` 0 is unknown, `written` in seconds since 1970."""

    url: str
    size: int
    parts: bool = True
    access: Access = field(default=(), repr=False)
    web: WebFile | None = None
    written: int | None = None

    def __str__(self) -> str:
        return without_secrets(self.url)

    @cached_property
    def path(self) -> PurePosixPath:
        return path_in(self.url)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file; raise an `OSError` if it has changed since the look-up."""
        if self.web is not None:
            with open_http(partial(_asked, self.url, self.web), *self.web[:2]) as body:
                yield body
            return
        system, location = _system(self.url, self.access), location_of(self.url)
        with system.open_input_file(location) as file:
            before = self._version(system, location, file)
            yield io.BufferedReader(cast("Any", file), _BUFFER)
        # It is requested in parts, which may be of different versions.
        with system.open_input_file(location) as file:
            if self._version(system, location, file) != before:
                raise ChangedError

    def _version(self, system: "FileSystem", location: str, file: Any) -> bytes | None:
        if file.size() != self.size:
            raise ChangedError
        metadata = file.metadata() or {}
        # Object stores send this with the content.
        if modified := metadata.get("Last-Modified"):
            at: int | None = int(datetime.fromisoformat(modified.decode()).timestamp())
        else:
            at = written_at(system.get_file_info(location))
        if self.written is not None and self.written != at:
            raise ChangedError
        version: bytes | None = metadata.get("VersionId") or metadata.get("ETag")
        return version

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Copy the file to this machine during the block."""
        with TemporaryDirectory(prefix="tpf-load-") as folder:
            copy = Path(folder, self.path.name or "file")
            with copy.open("wb") as out:
                self.copy_to(out)
            yield copy

    def copy_to(self, out: IO[bytes]) -> None:
        """Write its content into an open file."""
        with self.opened() as file:
            shutil.copyfileobj(file, out, _BLOCK)


class FolderUrl:
    """A URL of a file, folder or pattern in an object store or HDFS."""

    def __init__(self, url: str, access: Access) -> None:
        from pyarrow import fs

        self.path = location_of(url).rstrip("/")
        self._beginning = url[: len(url.rstrip("/")) - len(self.path)]
        if not self.path.strip("/"):
            raise InputError("names no file and no folder", url)
        self._access = access
        self._system = _system(url, access)
        info = self._system.get_file_info(self.path)
        self.is_folder = info.type is fs.FileType.Directory
        self.file = self._file(url, info) if info.type is fs.FileType.File else None

    def files_below(self, folder: str) -> list[tuple[PurePosixPath, RemoteFile]]:
        from pyarrow import fs

        selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
        files = [
            (PurePosixPath(each.path), self._file(f"{self._beginning}{each.path}", each))
            for each in self._system.get_file_info(selector)
            if each.type is fs.FileType.File
        ]
        return sorted(files, key=lambda pair: pair[0])

    def _file(self, url: str, info: "FileInfo") -> RemoteFile:
        return RemoteFile(url, info.size, True, self._access, written=written_at(info))


def web_file(url: str) -> RemoteFile:
    """Look up a file at a web server.

    Raises:
        InputError: the URL has credentials.
        OSError: there is no such file or answer.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InputError("a URL that is loaded has no name and no password", without_secrets(url))
    headers = {"Range": "bytes=0-0"}
    with asked_again(lambda: http_answer("GET", url, _READ, headers=headers)) as answer:
        # Of an empty file there is no first byte (416).
        parts = answer.status_code != 200
        given = answer.headers.get("Content-Range" if parts else "Content-Length", "")
        size = given.rpartition("/")[2]
        is_known = size.isdecimal()
        web = WebFile(int(size) if is_known else None, parts and is_known, _tag(answer))
    return RemoteFile(url, web.size or 0, web.parts, (), web)


def _asked(url: str, web: WebFile, start: int) -> requests.Response:
    headers = {"Range": f"bytes={start}-"} if start else {}
    answer = http_answer("GET", url, _READ, headers=headers)
    size = str(web.size)
    if start:
        sent_range, _, whole = answer.headers.get("Content-Range", "").partition("/")
        fits = sent_range.startswith(f"bytes {start}-") and whole in (size, "*")
    else:
        fits = web.size is None or answer.headers.get("Content-Length", size) == size
    if fits and answer.status_code == (206 if start else 200) and _tag(answer) == web.tag:
        return answer
    answer.close()
    raise ChangedError


def _tag(answer: requests.Response) -> str | None:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified")


def scheme_of(url: str) -> str:
    """Return a URL's scheme in lower case."""
    scheme = url.partition("://")[0].lower()
    if scheme not in (*OBJECTS, *HADOOP, *WEB):
        schemes = ", ".join(f"{each}://" for each in (*OBJECTS, *HADOOP, *WEB))
        raise InputError(f"{scheme}:// is not read from ({schemes})", without_secrets(url))
    return scheme


def without_secrets(given: str) -> str:
    """Strip query and credentials from an input."""
    scheme, _, rest = given.partition("://")
    if scheme.lower() not in WEB:
        return given
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


@contextmanager
def reporting(url: str) -> Iterator[None]:
    """Raise errors as `InputError` with the URL, without secrets."""
    try:
        yield
    except InputError:
        raise
    except (RdfInputError, SettingsError) as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:  # that it is no URL, or no path, is a ValueError
        raise InputError(reason(error), without_secrets(url)) from error


def reason(error: BaseException) -> str:
    """Return the cause of an error in one line."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def path_in(url: str) -> PurePosixPath:
    """Return the path in a URL."""
    if url.partition("://")[0].lower() not in WEB:
        return PurePosixPath(location_of(url))
    parts = host_parts(url)
    if parts is None:
        raise InputError("no URL that can be asked", without_secrets(url))
    return PurePosixPath(unquote(parts.path))


def written_at(info: "FileInfo") -> int | None:
    """Return a file's time in whole seconds, as lists may."""
    return None if info.mtime_ns is None else int(info.mtime_ns // 1_000_000_000)


def _system(url: str, access: Access) -> "FileSystem":
    # All buckets are in one file system; each name node has its own.
    scheme, _, rest = url.partition("://")
    return _opened(
        "s3://" if scheme.lower() in OBJECTS else f"{scheme}://{rest.partition('/')[0]}", access
    )


@lru_cache(maxsize=4)
def _opened(origin: str, access: Access) -> "FileSystem":
    return system_of(origin, access)


_COPIES: Final = 16
"""How many files a process keeps that it does not read any more."""


@lru_cache(maxsize=_COPIES)
def _copy_of(file: RemoteFile) -> "Buffer":
    import pyarrow as pa

    with TemporaryFile() as copy, reporting(file.url):
        file.copy_to(copy)
        copy.flush()
        is_empty = not copy.tell()
        return pa.py_buffer(
            b"" if is_empty else mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)
        )


_ITSELF: Final = PurePosixPath()


class RemotePlace:
    """A file or folder at a URL with the `pathlib.Path` methods in use."""

    def __init__(self, tree: "_Tree", inside: PurePosixPath = _ITSELF) -> None:
        self.tree = tree
        self._inside = inside

    def __str__(self) -> str:
        return without_secrets(self._url)

    def __truediv__(self, name: str | PurePosixPath) -> "RemotePlace":
        return RemotePlace(self.tree, self._inside / name)

    @property
    def _url(self) -> str:
        return _joined(self.tree.url, str(self._inside)) if self._inside.parts else self.tree.url

    @property
    def suffix(self) -> str:
        return path_in(self._url).suffix

    def is_file(self) -> bool:
        return self.tree.file(str(self._inside)) is not None

    def is_dir(self) -> bool:
        """True where there are files below; web servers list none."""
        below = self.tree.below(self._inside) if self.tree.is_listed else ()
        return any(each != self._inside for each in below)

    def names_below(self) -> Iterator[str]:
        """Yield the relative paths of the files in the folder."""
        if not self.tree.is_listed:
            raise InputError("a web server does not list files", str(self))
        for each in self.tree.below(self._inside):
            if each != self._inside:
                yield str(each.relative_to(self._inside))

    def files(self) -> Iterator[RemoteFile]:
        """Return the file, or the folder's files."""
        for each in self.tree.below(self._inside):
            if (file := self.tree.file(str(each))) is not None:
                yield file

    def read_bytes(self) -> bytes:
        """Read the file; `InputError` if it cannot be read, or has changed."""
        file = self._file()
        with reporting(file.url), file.opened() as content:
            return content.read()

    def open(
        self, mode: str = "r", *, encoding: str | None = None, newline: str | None = None
    ) -> Any:
        """Open the file: ``r`` for texts, or ``rb``."""
        from pyarrow import BufferReader

        content = io.BufferedReader(BufferReader(_copy_of(self._file())))
        return content if "b" in mode else io.TextIOWrapper(content, encoding, newline=newline)

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Give the path of a copy during the block."""
        file = self._file()
        with reporting(file.url), file.copied() as path:
            yield path

    def beside(self, name: str) -> "RemotePlace":
        """Return a file of another name in the same folder."""
        return _remote_place(_joined(self._url, f"../{name}"))

    def _file(self) -> RemoteFile:
        file = self.tree.file(str(self._inside))
        if file is None:
            raise InputError("no such file", str(self))
        return file


InputPlace: TypeAlias = Path | RemotePlace


def input_place(given: str | Path | RemotePlace) -> InputPlace:
    """Return an input's path or place; `InputError` if it cannot be found."""
    if isinstance(given, RemotePlace):
        return given
    path = local_path(given)
    return _remote_place(str(given)) if path is None else path


@contextmanager
def on_disk(place: InputPlace) -> Iterator[Path]:
    """Give a path of the file during the block."""
    if isinstance(place, RemotePlace):
        with place.on_disk() as path:
            yield path
    else:
        yield place


def content_of(place: InputPlace, most: int | None = None) -> bytes:
    """Read a file; raise errors as `InputError`."""
    try:
        if most is not None and size_at(place) > most:
            raise InputError(f"more than {most >> 20} MB", str(place))
        return place.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(place)) from error


def json_in(place: InputPlace) -> Any:
    """Read a file of JSON; raise errors as `InputError`."""
    return parsed_json(content_of(place), str(place))


def parsed_json(content: bytes, source: str) -> Any:
    """Parse JSON; raise errors as `InputError`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", source) from None


def size_at(place: InputPlace) -> int:
    """Return the bytes of a file."""
    if isinstance(place, RemotePlace):
        return sum(file.size for file in place.files())
    return place.stat().st_size


def names_below(folder: InputPlace) -> list[str]:
    """Return the relative paths of all files in a folder, in order."""
    if isinstance(folder, RemotePlace):
        names = list(folder.names_below())
    else:
        names = [str(each.relative_to(folder)) for each in files_below(folder)]
    return sorted(names, key=lambda name: PurePosixPath(name).parts)


def beside(place: InputPlace, name: str) -> InputPlace:
    """Return a file of another name in the same folder."""
    return place.beside(name) if isinstance(place, RemotePlace) else place.parent / name


def _remote_place(url: str) -> RemotePlace:
    with reporting(url):
        if scheme_of(url) in WEB:
            return RemotePlace(_Tree(url, None))
        folder = FolderUrl(url, access_in(os.environ))
        if folder.file is not None:
            return RemotePlace(_Tree(url, {".": folder.file}))
        files = {
            str(path.relative_to(folder.path)): file
            for path, file in folder.files_below(folder.path)
        }
        if not folder.is_folder or not files:
            raise InputError("does not exist", url)
        return RemotePlace(_Tree(url.rstrip("/"), files))


class _Tree:
    def __init__(self, url: str, files: Mapping[str, RemoteFile] | None) -> None:
        self.url = url
        self._files: dict[str, RemoteFile | None] = dict(files or {})
        self.is_listed = files is not None

    def file(self, inside: str) -> RemoteFile | None:
        if not self.is_listed and inside not in self._files:
            url = self.url if inside == "." else _joined(self.url, inside)
            with reporting(url):
                try:
                    self._files[inside] = web_file(url)
                except MissingError:
                    self._files[inside] = None
        return self._files.get(inside)

    def below(self, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        for name, file in self._files.items():
            inside = PurePosixPath(name)
            if file is not None and inside.is_relative_to(folder):
                yield inside


def _joined(url: str, inside: str) -> str:
    web = url.partition("://")[0].lower() in WEB
    base, mark, query = url.partition("?") if web else (url, "", "")
    if inside.startswith("../"):
        base, inside = base.rstrip("/").rpartition("/")[0], inside.removeprefix("../")
    return f"{base.rstrip('/')}/{quote(inside) if web else inside}{mark}{query}"
