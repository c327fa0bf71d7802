"""Files at URLs: in an object store (``s3://``), in HDFS, or at a web server.

They are found once, and read where the work is done: workers share no directory with anybody.
"""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

import requests

from loaders.errors import InputError
from loaders.fetching import host_parts
from tpf_server.errors import RdfInputError, SettingsError
from tpf_server.store.static.file_systems import (
    HADOOP,
    OBJECTS,
    Access,
    location_of,
    system_of,
)
from tpf_server.store.static.http_files import ChangedError, asked_again, http_answer, open_http

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

WEB: Final = ("http", "https")
_BUFFER: Final = 4 << 20
_BLOCK: Final = 1 << 20
_READ: Final = frozenset({200, 206, 416})
"""The statuses that a request for a file, or for a part of it, may have."""


class WebFile(NamedTuple):
    """The answer of a web server about a file.

    Args:
        size: its bytes; ``None``: it does not say.
        parts: whether it gives parts of it.
        tag: changes when the file does; ``None``: it does not say.
    """

    size: int | None
    parts: bool
    tag: str | None


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL; it is pickled to the workers.

    Args:
        url: of the file.
        size: its bytes, or 0 where nobody says.
        parts: whether it can be read from any place.
        access: how it is reached.
        web: what a web server said of it.
        written: when, in seconds since 1970, where a file system says so.
    """

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
        """The path in its URL: its endings say what it is."""
        return path_in(self.url)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file, to be read; when the block ends, it is still the one that was found.

        Raises:
            OSError: it cannot be read, or it is another one.
        """
        if self.web is not None:
            with open_http(partial(_asked, self.url, self.web), *self.web[:2]) as body:
                yield body
            return
        system, location = _system(self.url, self.access), location_of(self.url)
        with system.open_input_file(location) as file:
            before = self._version(system, location, file)
            yield io.BufferedReader(cast("Any", file), _BUFFER)
        # It is asked for part by part: what was read may be of the one and of the other.
        with system.open_input_file(location) as file:
            if self._version(system, location, file) != before:
                raise ChangedError

    def _version(self, system: "FileSystem", location: str, file: Any) -> bytes | None:
        """What tells the content of the file that is opened from another one, if anything does.

        Raises:
            OSError: it is not the file that was found.
        """
        if file.size() != self.size:
            raise ChangedError
        said = file.metadata() or {}
        # Who tells this together with the content is not asked for it.
        if modified := said.get("Last-Modified"):
            at: int | None = int(datetime.fromisoformat(modified.decode()).timestamp())
        else:
            at = written_at(system.get_file_info(location))
        if self.written is not None and self.written != at:
            raise ChangedError
        found: bytes | None = said.get("VersionId") or said.get("ETag")
        return found

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """A copy of the file on this machine, while the block runs.

        Raises:
            OSError: it cannot be read, or there is no room.
        """
        with TemporaryDirectory(prefix="tpf-load-") as folder:
            copy = Path(folder, self.path.name or "file")
            with copy.open("wb") as out:
                self.copy_to(out)
            yield copy

    def copy_to(self, out: IO[bytes]) -> None:
        """Write all of it into an open file.

        Raises:
            OSError: it cannot be read, or there is no room.
        """
        with self.opened() as file:
            shutil.copyfileobj(file, out, _BLOCK)


class Looked(NamedTuple):
    """What is at a URL in a file system.

    Args:
        file: the file; ``None``: there is none.
        is_folder: whether there is a folder.
        path: in the file system.
        beginning: of URLs, what is before the path.
    """

    file: RemoteFile | None
    is_folder: bool
    path: str
    beginning: str
    access: Access
    system: "FileSystem"

    def files_below(self, folder: str) -> list[tuple[PurePosixPath, RemoteFile]]:
        """All files below a folder with their paths in the file system, in order of these."""
        from pyarrow import fs

        selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
        found = [
            (PurePosixPath(each.path), self._file(f"{self.beginning}{each.path}", each))
            for each in self.system.get_file_info(selector)
            if each.type is fs.FileType.File
        ]
        return sorted(found, key=lambda pair: pair[0])

    def _file(self, url: str, info: "FileInfo") -> RemoteFile:
        return RemoteFile(url, info.size, True, self.access, written=written_at(info))


def look(url: str, access: Access) -> Looked:
    """What an object store or HDFS has at a URL.

    Raises:
        InputError: it names nothing.
        OSError: nobody answers.
    """
    from pyarrow import fs

    system = _system(url, access)
    path = location_of(url).rstrip("/")
    beginning = url[: len(url.rstrip("/")) - len(path)]
    if not path.strip("/"):
        raise InputError("names no file and no folder", url)
    looked = Looked(None, False, path, beginning, access, system)
    info = system.get_file_info(path)
    if info.type is fs.FileType.File:
        return looked._replace(file=looked._file(url, info))
    return looked._replace(is_folder=info.type is fs.FileType.Directory)


def web_file(url: str) -> RemoteFile:
    """The file at a URL of a web server.

    Raises:
        InputError: the URL has a name and a password.
        OSError: the server does not answer, or has no such file.
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
    """The answer with a file from a byte on.

    Raises:
        ChangedError: it is not of the file that was looked up.
        OSError: the server does not answer, or refuses.
    """
    headers = {"Range": f"bytes={start}-"} if start else {}
    answer = http_answer("GET", url, _READ, headers=headers)
    size = str(web.size)
    if start:
        place, _, whole = answer.headers.get("Content-Range", "").partition("/")
        fits = place.startswith(f"bytes {start}-") and whole in (size, "*")
    else:
        fits = web.size is None or answer.headers.get("Content-Length", size) == size
    if fits and answer.status_code == (206 if start else 200) and _tag(answer) == web.tag:
        return answer
    answer.close()
    raise ChangedError


def _tag(answer: requests.Response) -> str | None:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified")


def scheme_of(url: str) -> str:
    """The scheme of a URL that inputs may have, in small letters.

    Raises:
        InputError: it is another one.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in (*OBJECTS, *HADOOP, *WEB):
        known = ", ".join(f"{each}://" for each in (*OBJECTS, *HADOOP, *WEB))
        raise InputError(f"{scheme}:// is not read from ({known})", without_secrets(url))
    return scheme


def without_secrets(given: str) -> str:
    """An input as it may be written down: a query may be a signature, and what is before ``@``."""
    scheme, _, rest = given.partition("://")
    if scheme.lower() not in WEB:
        return given
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


@contextmanager
def told_of(url: str) -> Iterator[None]:
    """What goes wrong in this block, at this URL, is told in a line.

    Raises:
        InputError: quotes the URL, without what is secret of it.
    """
    try:
        yield
    except InputError:
        raise
    except (RdfInputError, SettingsError) as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:  # that it is no URL, or no path, is a ValueError
        raise InputError(reason(error), without_secrets(url)) from error


def reason(error: BaseException) -> str:
    """Why, in a line: libraries tell more."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def path_in(url: str) -> PurePosixPath:
    """The path in a URL.

    Raises:
        InputError: it is none.
    """
    if url.partition("://")[0].lower() not in WEB:
        return PurePosixPath(location_of(url))
    parts = host_parts(url)
    if parts is None:
        raise InputError("no URL that can be asked", without_secrets(url))
    return PurePosixPath(unquote(parts.path))


def written_at(info: "FileInfo") -> int | None:
    """When a file was written; object stores tell parts of a second in lists, but not of files."""
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
