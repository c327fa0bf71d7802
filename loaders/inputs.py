"""RDF files at URLs: a file, a folder or a pattern, as on a disk."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

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
from tpf_server.store.static.file_systems import Access, access_in
from tpf_server.store.static.rdf_files import check_ending, is_rdf_file

_MAGIC: Final = re.compile(r"[*?\[]")


def remote_files(url: str, environment: Mapping[str, str] = os.environ) -> list[RemoteFile]:
    """The RDF files at a URL: a file; of an object store and HDFS, also a folder or a pattern.

    Raises:
        InputError: there is none, or nobody answers; quotes the URL, without what is secret of it.
    """
    with told_of(url):
        if scheme_of(url) not in WEB:
            return _found(url, access_in(environment))
        check_ending(path_in(url), without_secrets(url))
        return [web_file(url)]


def _found(url: str, access: Access) -> list[RemoteFile]:
    there = look(url, access)
    path = there.path
    if there.file is not None:
        check_ending(PurePosixPath(path), url)
        return [there.file]
    magic = _MAGIC.search(path)
    if not there.is_folder and magic is None:
        raise InputError("does not exist", url)
    folder = path
    if not there.is_folder and magic is not None:
        folder = path[: magic.start()].rpartition("/")[0]
    wanted: list[RemoteFile] = []
    for found, file in there.files_below(folder):
        rest = found.relative_to(folder) if there.is_folder else _behind(found, path)
        if rest == PurePosixPath():
            check_ending(found, file.url)
        if rest is not None and (rest == PurePosixPath() or is_rdf_file(rest)):
            wanted.append(file)
    if not wanted:
        raise InputError("no RDF files there" if there.is_folder else "no file matches", url)
    return wanted


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
