"""Cut RDF files into pieces that workers read in parallel, and read a piece.

Only uncompressed N-Triples and N-Quads are cut. Malformed lines, and relative IRIs in JSON-LD, are
rejected one by one; Turtle, TriG and N3 resume at the next statement; RDF/XML and JSON-LD stop at
the first error.
"""

import glob
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

import pyarrow as pa
import pyoxigraph as ox

from annotations.errors import NestingError
from loaders.errors import InputError
from loaders.places import (
    WEB,
    FolderUrl,
    RemoteFile,
    path_in,
    reason,
    reporting,
    scheme_of,
    web_file,
    without_secrets,
)
from loaders.sources.reading import MAX_LINE
from tpf_server.errors import RdfInputError
from tpf_server.store.static.file_systems import Access, access_in, local_path
from tpf_server.store.static.ox_terms import parse_rdf
from tpf_server.store.static.rdf_files import (
    NOWHERE,
    BlankNodeScope,
    QuadTexts,
    check_ending,
    files_in,
    is_rdf_file,
    open_rdf,
    parsed_file,
    quad_texts,
    rdf_format,
    relative_iri,
)

# RDF files at URLs: a file, a folder or a pattern, as on a disk.

_MAGIC: Final = re.compile(r"[*?\[]")


def remote_files(url: str, environment: Mapping[str, str] = os.environ) -> list[RemoteFile]:
    """Return the RDF files at a URL, folder or pattern."""
    with reporting(url):
        if scheme_of(url) not in WEB:
            return _files_at(url, access_in(environment))
        check_ending(path_in(url), without_secrets(url))
        return [web_file(url)]


def _files_at(url: str, access: Access) -> list[RemoteFile]:
    location = FolderUrl(url, access)
    path = location.path
    if location.file is not None:
        check_ending(PurePosixPath(path), url)
        return [location.file]
    magic = _MAGIC.search(path)
    if not location.is_folder and magic is None:
        raise InputError("does not exist", url)
    folder = path
    if not location.is_folder and magic is not None:
        folder = path[: magic.start()].rpartition("/")[0]
    files: list[RemoteFile] = []
    for inner, file in location.files_below(folder):
        rest = inner.relative_to(folder) if location.is_folder else _behind(inner, path)
        if rest == PurePosixPath():
            check_ending(inner, file.url)
        if rest is not None and (rest == PurePosixPath() or is_rdf_file(rest)):
            files.append(file)
    if not files:
        raise InputError("no RDF files there" if location.is_folder else "no file matches", url)
    return files


def _behind(path: PurePosixPath, pattern: str) -> PurePosixPath | None:
    pattern_parts = PurePosixPath(pattern).parts
    for length in range(len(path.parts), 0, -1):
        if _matches(path.parts[:length], pattern_parts):
            return PurePosixPath(*path.parts[length:])
    return None


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    # By how many of the parts the pattern so far may have been met.
    ends = {0}
    for each in pattern:
        if each == "**":
            ends = {more for end in ends for more in _from(parts, end)}
        else:
            ends = {end + 1 for end in ends if end < len(parts) and _fits(parts[end], each)}
    return len(parts) in ends


def _from(parts: Sequence[str], begin: int) -> Iterator[int]:
    """``**`` enters no hidden folder, like ``*``."""
    yield begin
    for end in range(begin, len(parts)):
        if parts[end].startswith("."):
            return
        yield end + 1


def _fits(part: str, pattern: str) -> bool:
    # As on a disk, what is hidden is named as such.
    return fnmatchcase(part, pattern) and (not part.startswith(".") or pattern.startswith("."))


PIECE_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20
_LINE_FORMATS = (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
_RECOVERING = (ox.RdfFormat.TURTLE, ox.RdfFormat.TRIG, ox.RdfFormat.N3)
_CUT = (".nt", ".nq")
_SHOWN = 200
_MALFORMED = (SyntaxError, NestingError)


@dataclass(frozen=True, slots=True)
class Piece:
    """A file or a part of it.

    `file` scopes its blank nodes; the piece has the lines that begin from `start` to before `end`.
    """

    number: int
    file: int
    place: Path | RemoteFile
    start: int = 0
    end: int | None = None

    @property
    def path(self) -> str:
        return str(self.place)


class Reject(NamedTuple):
    """A part of a file that is not RDF."""

    path: str
    line: int | None
    message: str
    text: str


def input_files(inputs: Iterable[str | Path]) -> list[Path | RemoteFile]:
    """Return the RDF files of names, patterns and directories."""
    files: list[Path | RemoteFile] = []
    for given in inputs:
        path = local_path(given)
        if path is None:
            files += remote_files(str(given))
            continue
        try:
            for each in _matching(path):
                files += files_in(each)
        except RdfInputError as error:
            raise InputError(str(error)) from None
    if not files:
        raise InputError(f"no RDF files in {', '.join(map(str, inputs)) or 'nothing'}")
    return files


def _matching(path: Path) -> list[Path]:
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    matches = sorted(glob.glob(str(path), recursive=True))
    if not matches:
        raise InputError(f"no file matches {path}")
    return [Path(match) for match in matches]


def cut(files: Sequence[Path | RemoteFile], piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """Cut files into pieces, in order."""
    pieces: list[Piece] = []
    for number, given in enumerate(files):
        if isinstance(given, RemoteFile):
            place: Path | RemoteFile = given
            suffix, size = given.path.suffix, given.size if given.parts else 0
        else:
            # Workers may run elsewhere. The name stays that of a link: its ending tells the format.
            place = given.absolute()
            suffix, size = given.suffix, given.stat().st_size
        if suffix.lower() in _CUT and size > piece_bytes:
            for start in range(0, size, piece_bytes):
                end = start + piece_bytes if start + piece_bytes < size else None
                pieces.append(Piece(len(pieces), number, place, start, end))
        else:
            pieces.append(Piece(len(pieces), number, place))
    return pieces


class PieceReader:
    """Reads one piece."""

    def __init__(self, piece: Piece, reject: Callable[[Reject], None]) -> None:
        self._piece = piece
        self._reject = reject
        place = piece.place
        self._name = place.path if isinstance(place, RemoteFile) else place
        result = rdf_format(self._name)
        assert result is not None
        self._format = result
        self._scope = BlankNodeScope(piece.file, keep_labels=result in _LINE_FORMATS)
        self._copy: Path | None = None
        self.prefixes: dict[str, str] = {}
        """Prefix to namespace, complete when all quads have been read."""

    def quads(self) -> Iterator[QuadTexts]:
        try:
            if self._format in _LINE_FORMATS:
                with self._opened() as file:
                    yield from self._lines(file)
            else:
                with self._on_disk() as path:
                    yield from self._document(path)
        except (EOFError, zlib.error, OSError, pa.ArrowException, gzip.BadGzipFile) as error:
            raise InputError(self._message(error), self._piece.path) from error
        except RdfInputError as error:
            raise InputError(self._message(error)) from None

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        place = self._piece.place
        if isinstance(place, RemoteFile) and self._name.suffix.lower() in _CUT:
            with place.opened() as file:
                yield file
        else:
            with self._on_disk() as path, open_rdf(path) as file:
                yield file

    @contextmanager
    def _on_disk(self) -> Iterator[Path]:
        place = self._piece.place
        if isinstance(place, RemoteFile):
            with place.copied() as path:
                self._copy = path
                yield path
        else:
            yield place

    def _message(self, error: Exception) -> str:
        if not isinstance(self._piece.place, RemoteFile):
            return str(error)
        text = reason(error)
        return text if self._copy is None else text.replace(str(self._copy), self._piece.path)

    def _lines(self, file: IO[bytes]) -> Iterator[QuadTexts]:
        first = 1  # the number of the first line of the chunk, within the piece
        for chunk in _chunks(file, self._piece.start, self._piece.end):
            lines = _line_ends(chunk)
            if not chunk.endswith(b"\n") and len(chunk) > MAX_LINE:
                line_number = self._lines_before + first + lines
                raise InputError(
                    f"a line of more than {MAX_LINE} bytes", self._piece.path, line_number
                )
            try:
                quads = self._parsed(chunk)
            except _MALFORMED:
                yield from self._one_by_one(chunk, first)
            else:
                yield from quads
            first += lines

    def _one_by_one(self, chunk: bytes, first: int) -> Iterator[QuadTexts]:
        for number, line in enumerate(chunk.splitlines(), start=first):
            try:
                yield from self._parsed(line)
            except _MALFORMED as error:
                line_number = self._lines_before + number
                self._reject(Reject(self._piece.path, line_number, _message(error), _shown(line)))

    def _parsed(self, lines: bytes) -> list[QuadTexts]:
        return list(quad_texts(parse_rdf(lines, self._format), self._scope))

    @cached_property
    def _lines_before(self) -> int:
        if not self._piece.start:
            return 0
        lines = 0
        with self._opened() as file:
            for chunk in _chunks(file, 0, self._piece.start):
                lines += _line_ends(chunk)
        return lines

    def _document(self, path: Path) -> Iterator[QuadTexts]:
        is_json = self._format == ox.RdfFormat.JSON_LD
        try:
            with parsed_file(path, self._format, NOWHERE if is_json else None) as parser:
                yield from self._statements(parser)
        except NestingError as error:
            message = f"{_message(error)} (the file is not read)"
            self._reject(Reject(self._piece.path, error.line, message, ""))

    def _statements(self, parser: ox.QuadParser) -> Iterator[QuadTexts]:
        is_json = self._format == ox.RdfFormat.JSON_LD
        while True:
            try:
                quads = quad_texts(parser, self._scope)
                yield from filter(self._has_no_relative_iri, quads) if is_json else quads
                break
            # The parser takes 16 MiB of a term, and a MemoryError says that it has more.
            except (SyntaxError, MemoryError) as error:
                message = _message(error)
                recovers = self._format in _RECOVERING and isinstance(error, SyntaxError)
                if not recovers:
                    message += " (the rest of the file is not read)"
                line = error.lineno if isinstance(error, SyntaxError) else None
                self._reject(Reject(self._piece.path, line, message, ""))
                if not recovers:
                    break
        self.prefixes = dict(parser.prefixes)

    def _has_no_relative_iri(self, quad: QuadTexts) -> bool:
        relative = relative_iri(quad)
        if relative is None:
            return True
        self._reject(Reject(self._piece.path, None, "A relative IRI", f"{relative!r}"))
        return False


def _chunks(file: IO[bytes], start: int, end: int | None) -> Iterator[bytes]:
    position = start
    if start:
        # A line that begins exactly at `start` is ours: look at the byte before.
        file.seek(start - 1)
        position = start - 1
        while before := file.readline(_CHUNK_BYTES):
            position += len(before)
            if before.endswith(b"\n"):
                break
    while end is None or position < end:
        size = _CHUNK_BYTES if end is None else min(_CHUNK_BYTES, end - position)
        chunk = file.read(size)
        if not chunk:
            return
        if not chunk.endswith(b"\n"):
            chunk += file.readline(MAX_LINE)
        position += len(chunk)
        yield chunk


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _message(error: SyntaxError | NestingError | MemoryError) -> str:
    if isinstance(error, NestingError):
        return error.reason
    if isinstance(error, MemoryError):
        return str(error) or "Too large for the memory"
    # Its own position counts from the beginning of what was parsed, which may be one line.
    text = str(error.msg)
    _, result, rest = text.partition(": ")
    return rest if result and text.startswith("Parser error") else text


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return f"{text[:_SHOWN]}…" if len(text) > _SHOWN else text
