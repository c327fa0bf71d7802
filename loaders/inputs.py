"""Inputs by URL: files in an object store (``s3://``), in HDFS, or at a web server.

They are found once, and read where the work is done: workers share no directory with anybody. What
must be read from its beginning to its end, or twice, is copied to a temporary file there.
"""

import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

from loaders.errors import InputError
from loaders.web_files import WebFile, found_at, open_at
from tpf_server.errors import RdfInputError, SettingsError
from tpf_server.store.static.file_systems import s3_system
from tpf_server.store.static.rdf_files import check_ending, is_rdf_file

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_OBJECTS: Final = ("s3", "s3a")
_WEB: Final = ("http", "https")
_HDFS: Final = "hdfs"
_BUFFER: Final = 4 << 20
_COPY_BLOCK: Final = 1 << 20
_MAGIC: Final = re.compile(r"[*?\[]")

Access = tuple[tuple[str, str], ...]
"""Of the environment, what says where an object store is and who may use it."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL; it is pickled to the workers.

    Args:
        url: of the file.
        size: its bytes, or 0 where nobody says.
        parts: whether it can be read from any place.
        access: how it is reached.
        web: what a web server said of it.
    """

    url: str
    size: int
    parts: bool = True
    access: Access = field(default=(), repr=False)
    web: WebFile | None = None

    def __str__(self) -> str:
        return without_secrets(self.url)

    @cached_property
    def path(self) -> PurePosixPath:
        """The path in its URL: its endings say what it is."""
        path = unquote(urlsplit(self.url).path) if self.web else _location(self.url)
        return PurePosixPath(path)

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The file, to be read.

        Raises:
            OSError: it cannot be read.
        """
        if self.web is not None:
            with open_at(self.url, self.web) as body:
                yield body
            return
        system = _system(self.url, self.access)
        with system.open_input_file(_location(self.url)) as file:
            if file.size() != self.size:
                raise OSError("it has changed while it was read")
            yield io.BufferedReader(cast("Any", file), _BUFFER)

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """A copy of the file on this machine, while the block runs.

        Raises:
            OSError: it cannot be read, or there is no room.
        """
        with TemporaryDirectory(prefix="tpf-load-") as folder:
            copy = Path(folder, self.path.name)
            with self.opened() as file, copy.open("wb") as out:
                shutil.copyfileobj(file, out, _COPY_BLOCK)
            yield copy


def is_remote(given: object) -> bool:
    """Whether an input is a URL, of whatever kind; ``file://`` is a path."""
    scheme, separator, _ = str(given).partition("://")
    return bool(separator) and scheme.isalnum() and scheme.lower() != "file"


def without_secrets(given: str) -> str:
    """An input as it may be written down: a query may be a signature, and what is before ``@``."""
    scheme, _, rest = given.partition("://")
    if scheme.lower() not in _WEB:
        return given
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def remote_files(url: str, environment: Mapping[str, str] = os.environ) -> list[RemoteFile]:
    """The RDF files at a URL: a file; of an object store and HDFS, also a folder or a pattern.

    Raises:
        InputError: there is none, or nobody answers; quotes the URL, without what is secret of it.
    """
    scheme, _, rest = url.partition("://")
    shown = without_secrets(url)
    access = tuple(sorted(item for item in environment.items() if item[0].startswith("AWS_")))
    try:
        match scheme.lower():
            case "s3" | "s3a" | "hdfs":
                return _found(url, access)
            case "http" | "https":
                if "@" in rest.partition("/")[0]:
                    raise InputError("a URL that is loaded has no name and no password", shown)
                check_ending(PurePosixPath(unquote(urlsplit(url).path)), shown)
                web = found_at(url)
                return [RemoteFile(url, web.size or 0, web.parts, (), web)]
    except InputError:
        raise
    except (RdfInputError, SettingsError) as error:
        raise InputError(str(error)) from None
    except (OSError, ValueError) as error:  # that it is no URL, or no path, is a ValueError
        raise InputError(reason(error), shown) from error
    known = ", ".join(f"{each}://" for each in (*_OBJECTS, _HDFS, *_WEB))
    raise InputError(f"{scheme}:// is not read from ({known})", url)


def reason(error: BaseException) -> str:
    """Why, in a line: libraries tell more."""
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _found(url: str, access: Access) -> list[RemoteFile]:
    from pyarrow import fs

    system = _system(url, access)
    path = _location(url).rstrip("/")
    beginning = url[: len(url.rstrip("/")) - len(path)]
    if not path.strip("/"):
        raise InputError("names no file and no folder", url)
    info = system.get_file_info(path)
    if info.type is fs.FileType.File:
        check_ending(PurePosixPath(path), url)
        return [RemoteFile(url, info.size, True, access)]
    magic = _MAGIC.search(path)
    if info.type is fs.FileType.NotFound and magic is None:
        raise InputError("does not exist", url)
    is_folder = info.type is fs.FileType.Directory or magic is None
    folder = path if is_folder or magic is None else path[: magic.start()].rpartition("/")[0]
    wanted: list[tuple[PurePosixPath, Any]] = []
    selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
    for each in system.get_file_info(selector):
        if each.type is fs.FileType.File:
            found = PurePosixPath(each.path)
            rest = found.relative_to(folder) if is_folder else _behind(found, path)
            if rest == PurePosixPath():
                check_ending(found, f"{beginning}{each.path}")
            if rest is not None and (rest == PurePosixPath() or is_rdf_file(rest)):
                wanted.append((found, each))
    if not wanted:
        raise InputError("no RDF files there" if is_folder else "no file matches", url)
    return [
        RemoteFile(f"{beginning}{each.path}", each.size, True, access)
        for _, each in sorted(wanted, key=lambda pair: pair[0])
    ]


def _behind(path: PurePosixPath, pattern: str) -> PurePosixPath | None:
    """What of a path lies below what a pattern matches: nothing, where it matches all of it."""
    wanted = PurePosixPath(pattern).parts
    for length in range(len(path.parts), 0, -1):
        if _matches(path.parts[:length], wanted):
            return PurePosixPath(*path.parts[length:])
    return None


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    # By how many of the parts the pattern so far may have been met.
    ends = {0}
    for each in wanted:
        if each == "**":
            ends = {more for end in ends for more in _from(parts, end)}
        else:
            ends = {end + 1 for end in ends if end < len(parts) and _fits(parts[end], each)}
    return len(parts) in ends


def _from(parts: Sequence[str], begin: int) -> Iterator[int]:
    """Where ``**`` may end: like ``*``, it goes into nothing that is hidden."""
    yield begin
    for end in range(begin, len(parts)):
        if parts[end].startswith("."):
            return
        yield end + 1


def _fits(part: str, wanted: str) -> bool:
    # As on a disk, what is hidden is named as such.
    return fnmatchcase(part, wanted) and (not part.startswith(".") or wanted.startswith("."))


def _location(url: str) -> str:
    """The path of a URL within its file system."""
    scheme, _, rest = url.partition("://")
    return rest if scheme.lower() in _OBJECTS else f"/{rest.partition('/')[2]}"


def _system(url: str, access: Access) -> "FileSystem":
    scheme, _, rest = url.partition("://")
    if scheme.lower() in _OBJECTS:
        return _objects(access)
    return _hadoop(rest.partition("/")[0])


@lru_cache(maxsize=4)
def _objects(access: Access) -> "FileSystem":
    return s3_system(dict(access))


@lru_cache(maxsize=4)
def _hadoop(authority: str) -> "FileSystem":
    from pyarrow import fs

    try:
        return fs.HadoopFileSystem.from_uri(f"hdfs://{authority}")
    except OSError as error:
        if "load lib" in str(error):
            raise OSError(f"HDFS needs libhdfs and a Java for pyarrow ({reason(error)})") from None
        raise
