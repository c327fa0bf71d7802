"""Read RDF files as quads of canonical N-Triples texts, by the endings of their names.

HDT and all formats of pyoxigraph, also compressed (``.gz``, ``.bz2``, ``.zst``). Blank nodes are
scoped per file: ``_:x`` of file number 3 becomes ``_:f3-x`` in N-Triples and N-Quads; in other
formats they are numbered: ``_:f3n0``.
"""

import bz2
import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import IO, Final, TypeAlias, cast

import pyarrow as pa
import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.nesting import check_nesting, without_versions
from annotations.whole_files import files_below
from tpf_server.errors import RdfInputError
from tpf_server.store.static.hdt_files import open_hdt

QuadTexts: TypeAlias = tuple[str, str, str, str]
"""Subject, predicate, object and graph in canonical N-Triples; graph empty for the default one."""

RDF_FORMATS: Final[Mapping[str, ox.RdfFormat]] = MappingProxyType(
    {
        ".nt": ox.RdfFormat.N_TRIPLES,
        ".nq": ox.RdfFormat.N_QUADS,
        ".ttl": ox.RdfFormat.TURTLE,
        ".trig": ox.RdfFormat.TRIG,
        ".n3": ox.RdfFormat.N3,
        ".rdf": ox.RdfFormat.RDF_XML,
        ".owl": ox.RdfFormat.RDF_XML,
        ".jsonld": ox.RdfFormat.JSON_LD,
        ".hdt": ox.RdfFormat.N_TRIPLES,
    }
)
"""Formats by ending. Endings that mostly mean something else (``.xml``, ``.json``) are not read."""
_COMPRESSIONS: Final = frozenset({".gz", ".bz2", ".zst"})
_LINE_FORMATS: Final = (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
_LONGEST_LINE: Final = 1 << 24
_QUOTED_CHARACTERS: Final = 200
_QUOTED_BYTES: Final = 1 << 12
"""Of a line at a time: it may be as long as the file."""
NOWHERE: Final = "http://relative.invalid/"
"""The base to parse JSON-LD with that has none: without a base, its parser leaves out in silence
what has a relative IRI; with this one, `relative_iri` finds it."""


def rdf_format(path: PurePath) -> ox.RdfFormat | None:
    """Return the format of a file by its name, apart from compression; ``None``: unknown."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
        if suffixes[-1:] == [".hdt"]:
            return None  # it is not read from its beginning to its end
    return RDF_FORMATS.get(suffixes[-1]) if suffixes else None


def rdf_files(inputs: Iterable[Path]) -> list[Path]:
    """Return the RDF files that are named, or lie in a named directory, at any depth, by name."""
    files = [file for path in inputs for file in files_in(path)]
    if not files:
        raise RdfInputError(f"no RDF files in {', '.join(map(str, inputs)) or 'nothing'}")
    return files


def files_in(path: Path) -> list[Path]:
    """Return the RDF file of this name, or those in this directory; see `rdf_files`."""
    if path.is_dir():
        return sorted(file for file in files_below(path) if is_rdf_file(file.relative_to(path)))
    if not path.exists():
        raise RdfInputError(f"{path} does not exist")
    check_ending(path)
    return [path]


def is_rdf_file(path: PurePath) -> bool:
    """True for a file of a directory with a known ending that is not hidden."""
    return rdf_format(path) is not None and not any(part.startswith(".") for part in path.parts)


def check_ending(path: PurePath, name: str | None = None) -> None:
    """Refuse a file whose ending is not that of an RDF file."""
    if rdf_format(path) is None:
        raise RdfInputError(
            f"{name or path}: {path.suffix!r} is no ending of an RDF file ({' '.join(RDF_FORMATS)},"
            f" each but .hdt also with {' '.join(sorted(_COMPRESSIONS))})"
        )


def open_rdf(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed."""
    match path.suffix.lower():
        case ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        case ".bz2":
            return bz2.open(path, "rb")
        case ".zst":
            # It has no readline of its own.
            return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
        case ".hdt":
            return open_hdt(path)
        case _:
            return path.open("rb")


@contextmanager
def parsed_file(
    path: Path, rdf_format: ox.RdfFormat, base: str | None = None
) -> Iterator[ox.QuadParser]:
    """Parse a file as it is read; for documents in memory, see `ox_terms.parse_rdf`."""
    check_nesting(_Pieces(path), rdf_format.media_type, base=base or "", entities=True)
    with open_rdf(path) as file:
        # All kinds of files that are opened can be looked into.
        if cast("io.BufferedReader", file).peek(3).startswith(BOM_UTF8):
            file.read(3)
        if rdf_format in _LINE_FORMATS:
            file = cast("IO[bytes]", _WithoutVersions(file))
        yield ox.parse(file, rdf_format, base_iri=base)


class _WithoutVersions:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            lines = self._file.read(1 << 16) + self._file.readline(_LONGEST_LINE)
            self._rest = without_versions(lines, ox.RdfFormat.N_QUADS.media_type)
        some, self._rest = self._rest[:size], self._rest[size:]
        return some


class _Pieces:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with open_rdf(self._path) as file:
            while piece := file.read(1 << 20):
                yield piece


class RdfReader:
    """Read one RDF file."""

    def __init__(self, path: Path, number: int, base: str | None = None) -> None:
        check_ending(path)
        result = rdf_format(path)
        assert result is not None
        self._path = path
        self._format = result
        self._number = number
        self._base = base
        self.prefixes: dict[str, str] = {}
        """Prefix to namespace, complete when all quads have been read."""

    def quads(self) -> Iterator[QuadTexts]:
        """Return the quads in the sequence of the file, duplicates included.

        An `RdfInputError` says where the file cannot be parsed or decompressed.
        """
        scope = BlankNodeScope(self._number, keep_labels=self._format in _LINE_FORMATS)
        without_base = self._base is None and self._format == ox.RdfFormat.JSON_LD
        try:
            base = NOWHERE if without_base else self._base
            with parsed_file(self._path, self._format, base) as parser:
                for quad in quad_texts(parser, scope):
                    if without_base and (relative := relative_iri(quad)) is not None:
                        raise RdfInputError(f"{self._path}: a relative IRI: {relative!r}")
                    yield quad
                self.prefixes = dict(parser.prefixes)
        except SyntaxError as error:
            raise self._syntax_error(error) from None
        except NestingError as error:
            raise RdfInputError(f"{self._path}, {error}") from None
        except MemoryError as error:  # of the parser, which takes 16 MiB of a term
            raise RdfInputError(f"{self._path}: {error or 'too large for the memory'}") from None
        except (EOFError, zlib.error, OSError, pa.ArrowException) as error:
            raise RdfInputError(f"{self._path}: {error}") from error

    def _syntax_error(self, error: SyntaxError) -> RdfInputError:
        if error.lineno is None:
            return RdfInputError(f"{self._path}: {error.msg}")
        with open_rdf(self._path) as file:
            number = 1
            while (line := file.readline(_QUOTED_BYTES)) and number < error.lineno:
                number += line.endswith(b"\n")
        text = line.decode("utf-8", "replace").strip()
        if len(text) > _QUOTED_CHARACTERS:
            text = f"{text[:_QUOTED_CHARACTERS]}…"
        return RdfInputError(f"{self._path}, line {error.lineno}: {error.msg}\n    {text}")


class BlankNodeScope:
    """Give the blank nodes of one file labels that no other file has."""

    def __init__(self, number: int, *, keep_labels: bool) -> None:
        self._number = number
        self._keep = keep_labels
        self._texts: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if self._keep:
            return f"_:f{self._number}-{text[2:]}"
        scoped = self._texts.get(text)
        if scoped is None:
            scoped = self._texts[text] = f"_:f{self._number}n{len(self._texts)}"
        return scoped


def quad_texts(quads: Iterable[ox.Quad], scope: BlankNodeScope) -> Iterator[QuadTexts]:
    """Return the texts of parsed quads, with their blank nodes scoped."""
    triple, default_graph = ox.Triple, ox.DefaultGraph
    for subject, predicate, obj, graph in quads:
        s, o = str(subject), str(obj)
        if s[0] == "_":
            s = scope(s)
        if o[0] == "_" or type(obj) is triple:
            o = _object_text(obj, scope)
        if type(graph) is default_graph:
            yield s, str(predicate), o, ""
        else:
            g = str(graph)
            yield s, str(predicate), o, scope(g) if g[0] == "_" else g


def relative_iri(texts: Iterable[str]) -> str | None:
    """Return the first relative IRI among terms that were parsed with the base `NOWHERE`."""
    for text in texts:
        if text.endswith(">"):
            # Of a literal, its datatype.
            iri = text[text.rfind('"^^<') + 3 :] if text[0] == '"' else text
            if iri.startswith(f"<{NOWHERE}"):
                return iri[len(NOWHERE) + 1 : -1]
    return None


def _object_text(term: object, scope: BlankNodeScope) -> str:
    if isinstance(term, ox.Triple):
        parts = (_object_text(part, scope) for part in term)
        return f"<<( {' '.join(parts)} )>>"
    text = str(term)
    return scope(text) if text[0] == "_" else text


def merge_prefixes(all_prefixes: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge the prefixes of files; the first one of a name counts."""
    merged: dict[str, str] = {}
    for prefixes in all_prefixes:
        for prefix, namespace in prefixes.items():
            merged.setdefault(prefix, namespace)
    return merged
