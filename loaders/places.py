"""Where the files of a source lie: at a path, or at a URL, where they are read as from a path.

What is at a URL is found once. That is what all workers read that a place is pickled to: they ask
for the files by themselves.
"""

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from loaders.errors import InputError
from loaders.remote_files import (
    WEB,
    RemoteFile,
    look,
    path_in,
    scheme_of,
    told_of,
    web_file,
    without_secrets,
)
from tpf_server.store.static.file_systems import access_in, local_path
from tpf_server.store.static.http_files import MissingError

# Copies of files at URLs that this process reads, as often as somebody wants.
#
# They are anonymous temporary files, and so go with the process, however it ends. The last ones
# stay, since tables and archives are read more than once.

_COPIES: Final = 16
"""How many files a process keeps that nobody reads any more."""


def open_copy(file: RemoteFile) -> io.BufferedReader:
    """The bytes of a file, from any place in it.

    Raises:
        InputError: it cannot be read, is not the one that was found, or there is no room.
    """
    return io.BufferedReader(_Reader(_copy_of(file)))


class _Copy:
    """A file without a name."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = TemporaryFile(prefix="tpf-load-")  # noqa: SIM115 - as long as this
        with told_of(file.url):
            file.copy_to(self._file)
            self._file.flush()

    def fileno(self) -> int:
        """Its descriptor."""
        return self._file.fileno()

    def __del__(self) -> None:
        self._file.close()


@lru_cache(maxsize=_COPIES)
def _copy_of(file: RemoteFile) -> _Copy:
    return _Copy(file)


class _Reader(io.RawIOBase):
    """Reads a copy from a place of its own, beside other readers."""

    def __init__(self, copy: _Copy) -> None:
        self._copy = copy
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._copy.fileno(), [buffer], self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        if begin is None:
            begin = os.fstat(self._copy.fileno()).st_size
        self._position = begin + offset
        return self._position


_ITSELF: Final = PurePosixPath()


class RemotePlace:
    """A file or a folder at a URL; has what sources use of `pathlib.Path`.

    Args:
        tree: what is there.
        inside: the path below it; nothing: itself.
    """

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
    def name(self) -> str:
        """The last part of the path."""
        return path_in(self._url).name

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the path; paths are in the order of these."""
        return self._inside.parts

    @property
    def stem(self) -> str:
        """The name without its last ending."""
        return path_in(self._url).stem

    @property
    def suffix(self) -> str:
        """The last ending of the name."""
        return path_in(self._url).suffix

    def is_file(self) -> bool:
        """Whether there is a file.

        Raises:
            InputError: nobody answers.
        """
        return self.tree.file(str(self._inside)) is not None

    def is_dir(self) -> bool:
        """Whether there are files below; a web server does not say, so there are none."""
        below = self.tree.below(self._inside) if self.tree.is_listed else ()
        return any(each != self._inside for each in below)

    def rglob(self, pattern: str) -> Iterator["RemotePlace"]:
        """The files below whose names match a pattern, in order.

        Raises:
            InputError: it is at a web server, which does not list files.
        """
        if not self.tree.is_listed:
            raise InputError("a web server does not list files", str(self))
        for each in self.tree.below(self._inside):
            if each != self._inside and fnmatchcase(each.name, pattern):
                yield RemotePlace(self.tree, each)

    def glob(self, pattern: str) -> Iterator["RemotePlace"]:
        """Those of `rglob` that lie in no folder below."""
        return (each for each in self.rglob(pattern) if each._inside.parent == self._inside)

    def relative_to(self, other: "RemotePlace") -> PurePosixPath:
        """The path from there."""
        return self._inside.relative_to(other._inside)

    def files(self) -> Iterator[RemoteFile]:
        """The file, or those of the folder, as far as they are known."""
        for each in self.tree.below(self._inside):
            if (file := self.tree.file(str(each))) is not None:
                yield file

    def read_bytes(self) -> bytes:
        """What the file holds.

        Raises:
            InputError: it cannot be read, or is not the one that was found.
        """
        file = self._file()
        with told_of(file.url), file.opened() as content:
            return content.read()

    def open(
        self, mode: str = "r", *, encoding: str | None = None, newline: str | None = None
    ) -> Any:
        """The file, to be read as often as somebody wants: ``r`` for texts, or ``rb``.

        Raises:
            InputError: see `read_bytes`.
        """
        content = open_copy(self._file())
        return content if "b" in mode else io.TextIOWrapper(content, encoding, newline=newline)

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """A copy that has a path, while the block runs.

        Raises:
            InputError: see `read_bytes`.
        """
        file = self._file()
        with told_of(file.url), file.copied() as path:
            yield path

    def beside(self, name: str) -> "RemotePlace":
        """What has another name in the same folder.

        Raises:
            InputError: see `input_place`.
        """
        return _remote_place(_joined(self._url, f"../{name}"))

    def _file(self) -> RemoteFile:
        file = self.tree.file(str(self._inside))
        if file is None:
            raise InputError("no such file", str(self))
        return file


InputPlace: TypeAlias = Path | RemotePlace


def input_place(given: str | Path | RemotePlace) -> InputPlace:
    """Where an input lies.

    Args:
        given: a path, or a URL: ``file://``, or one that `RemoteFile` knows.

    Raises:
        InputError: a URL of another kind, or with nothing there, or nobody answers.
    """
    if isinstance(given, RemotePlace):
        return given
    path = local_path(given)
    return _remote_place(str(given)) if path is None else path


@contextmanager
def on_disk(place: InputPlace) -> Iterator[Path]:
    """A path of the file, while the block runs.

    Raises:
        InputError: it is at a URL and cannot be read.
    """
    if isinstance(place, RemotePlace):
        with place.on_disk() as path:
            yield path
    else:
        yield place


def size_at(place: InputPlace) -> int:
    """The bytes of a file.

    Raises:
        OSError: there is none.
    """
    if isinstance(place, RemotePlace):
        return sum(file.size for file in place.files())
    return place.stat().st_size


def path_parts(place: InputPlace) -> tuple[str, ...]:
    """What paths are put in order by."""
    return place.parts


def names_below(folder: InputPlace) -> list[str]:
    """The paths of all files in a folder, from there.

    Raises:
        OSError: they cannot be listed.
        InputError: so it is at a URL.
    """
    if isinstance(folder, RemotePlace):
        return [str(each.relative_to(folder)) for each in folder.rglob("*")]
    return [str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()]


def beside(place: InputPlace, name: str) -> InputPlace:
    """What has another name in the same folder.

    Raises:
        InputError: it is at a URL, and nobody answers there.
    """
    return place.beside(name) if isinstance(place, RemotePlace) else place.parent / name


def _remote_place(url: str) -> RemotePlace:
    with told_of(url):
        if scheme_of(url) in WEB:
            return RemotePlace(_Tree(url, None))
        there = look(url, access_in(os.environ))
        if there.file is not None:
            return RemotePlace(_Tree(url, {".": there.file}))
        files = {
            str(path.relative_to(there.path)): file for path, file in there.files_below(there.path)
        }
        if not there.is_folder or not files:
            raise InputError("does not exist", url)
        return RemotePlace(_Tree(url.rstrip("/"), files))


class _Tree:
    """What is at a URL.

    Args:
        url: of the file, or of the folder.
        files: by their paths below it; ``None``: it is at a web server, which is asked when
            somebody wants to know.
    """

    def __init__(self, url: str, files: Mapping[str, RemoteFile] | None) -> None:
        self.url = url
        self._files: dict[str, RemoteFile | None] = dict(files or {})
        self.is_listed = files is not None

    def file(self, inside: str) -> RemoteFile | None:
        """The file at a path below."""
        if not self.is_listed and inside not in self._files:
            url = self.url if inside == "." else _joined(self.url, inside)
            with told_of(url):
                try:
                    self._files[inside] = web_file(url)
                except MissingError:
                    self._files[inside] = None
        return self._files.get(inside)

    def below(self, folder: PurePosixPath) -> Iterator[PurePosixPath]:
        """The paths of the files that are known there, in order."""
        for name, file in self._files.items():
            inside = PurePosixPath(name)
            if file is not None and inside.is_relative_to(folder):
                yield inside


def _joined(url: str, inside: str) -> str:
    """The URL of what lies below; what stands behind ``?`` is asked for there, too."""
    web = url.partition("://")[0].lower() in WEB
    place, mark, query = url.partition("?") if web else (url, "", "")
    if inside.startswith("../"):
        place, inside = place.rstrip("/").rpartition("/")[0], inside.removeprefix("../")
    return f"{place.rstrip('/')}/{quote(inside) if web else inside}{mark}{query}"
