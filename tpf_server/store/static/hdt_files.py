"""Read HDT files as lines of N-Triples, as hdt-cpp writes them; other kinds are refused.

Source: *Binary RDF Representation for Publication and Exchange (HDT)*, W3C member submission 2011.
The file is mapped; checksums are not verified.
"""

import io
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from annotations.errors import TermError
from annotations.terms import Term, iri, literal
from tpf_server.errors import RdfInputError

_CHUNK = 1 << 16
_KEPT = 1 << 24
"""Bytes of decoded blocks that are kept of a section."""
_LONGEST = 1 << 26
"""Bytes of a block: where each text repeats most of the one before, few bytes mean many."""
_DICTIONARY = "<http://purl.org/HDT/hdt#dictionaryFour>"
_TRIPLES = "<http://purl.org/HDT/hdt#triplesBitmap>"
_SUBJECT_ORDER = "1"


def open_hdt(path: Path) -> IO[bytes]:
    """Open an HDT file as N-Triples; `RdfInputError` for other kinds of files."""
    return cast("IO[bytes]", io.BufferedReader(_Lines(hdt_lines(path)), 1 << 20))


def hdt_lines(path: Path) -> Iterator[bytes]:
    """Return the triples of a file, as lines of N-Triples."""
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise RdfInputError(f"{path}: no HDT (it is empty)") from None
        try:
            yield from _lines(_Bytes(content))
        except (IndexError, KeyError, ValueError, OverflowError) as error:
            raise RdfInputError(f"{path}: no HDT that can be read ({error})") from None


class _Lines(io.RawIOBase):
    def __init__(self, lines: Iterator[bytes]) -> None:
        super().__init__()
        self._source = lines
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        if not self._rest:
            self._rest = next(self._source, b"")
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._source.close()  # type: ignore[attr-defined]
        super().close()


class _Bytes:
    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.offset = 0

    def take(self, count: int) -> int:
        start = self.offset
        if count < 0 or start + count > len(self.content):
            raise ValueError("the file ends early")
        self.offset = start + count
        return start

    def byte(self) -> int:
        return self.content[self.take(1)]

    def number(self) -> int:
        """Read a number in groups of seven bits, the last of which is marked."""
        result, self.offset = _number(self.content, self.offset)
        return result

    def text(self) -> str:
        end = self.content.find(b"\0", self.offset, self.offset + 4096)
        if end < 0:
            raise ValueError("a text without an end")
        result = self.content[self.offset : end].decode("ascii", "replace")
        self.offset = end + 1
        return result


def _number(content: mmap.mmap, offset: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 63:
        byte = content[offset]
        offset += 1
        result |= (byte & 127) << shift
        if byte & 128:
            return result, offset
        shift += 7
    raise ValueError("a number without an end")


class _Control(NamedTuple):
    format: str
    properties: dict[str, str]


def _control(source: _Bytes, kind: int) -> _Control:
    start = source.take(4)
    if source.content[start : start + 4] != b"$HDT" or source.byte() != kind:
        raise ValueError("a part does not begin where it should")
    form, properties = source.text(), source.text()
    source.take(2)
    pairs = (each.partition("=") for each in properties.split(";") if each)
    return _Control(form, {name: value for name, _, value in pairs})


class _Integers:
    """A sequence of integers; one of marks does not say that they have one bit."""

    def __init__(self, source: _Bytes, bits: int | None = None) -> None:
        if source.byte() != 1:
            raise ValueError("a sequence of an unknown kind")
        self._bits = source.byte() if bits is None else bits
        if self._bits > 64:
            raise ValueError("integers of more than 64 bits")
        self.count = source.number()
        source.take(1)
        size = (self._bits * self.count + 7) // 8
        start = source.take(size)
        source.take(4)
        self._bytes = np.frombuffer(source.content, np.uint8, size, start)

    def part(self, start: int, end: int) -> NDArray[np.int64]:
        bits = self._bits
        if not bits:
            return np.zeros(end - start, np.int64)
        first = start * bits // 8
        taken = self._bytes[first : (end * bits + 7) // 8]
        unpacked = np.unpackbits(taken, bitorder="little")[start * bits - first * 8 :]
        rows = unpacked[: (end - start) * bits].reshape(end - start, bits).astype(np.uint64)
        weights = np.left_shift(np.uint64(1), np.arange(bits, dtype=np.uint64))
        values: NDArray[np.uint64] = (rows * weights).sum(axis=1, dtype=np.uint64)
        return values.astype(np.int64)

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self.count, _CHUNK):
            yield from self.part(start, min(start + _CHUNK, self.count)).tolist()


class _Section:
    """A section of the dictionary: sorted texts in blocks with front coding."""

    def __init__(self, source: _Bytes, term: Callable[[bytes], bytes]) -> None:
        if source.byte() != 2:
            raise ValueError("a section of an unknown kind")
        self.count = source.number()
        size = source.number()
        self._width = source.number()
        source.take(1)
        if self._width < 1:
            raise ValueError("blocks of nothing")
        blocks = _Integers(source)
        if blocks.count > size + 1:
            raise ValueError("more blocks than texts")
        self._blocks = np.fromiter(blocks, np.int64, blocks.count)
        self._start = source.take(size)
        self._end = self._start + size
        source.take(4)
        self._content = source.content
        self._term = term
        self._kept: dict[int, list[bytes]] = {}
        self._kept_bytes = 0

    def __getitem__(self, number: int) -> bytes:
        """Return the term of a number, from one on, as N-Triples."""
        if not 0 < number <= self.count:
            raise ValueError(f"there is no term {number}")
        block, index = divmod(number - 1, self._width)
        entry = self._kept.get(block)
        if entry is None:
            entry = self._decoded(block)
            if self._kept_bytes > _KEPT:
                self._kept.clear()
                self._kept_bytes = 0
            self._kept[block] = entry
            self._kept_bytes += sum(map(len, entry))
        return entry[index]

    def _decoded(self, block: int) -> list[bytes]:
        offset = self._start + int(self._blocks[block])
        many = min(self._width, self.count - block * self._width)
        results: list[bytes] = []
        text = b""
        length = 0
        for number in range(many):
            shared = 0
            if number:
                shared, offset = _number(self._content, offset)
            end = self._content.find(b"\0", offset, self._end)
            if end < 0 or shared > len(text):
                raise ValueError("a damaged section of the dictionary")
            text = text[:shared] + self._content[offset:end]
            offset = end + 1
            length += len(text)
            if length > _LONGEST:
                raise ValueError(f"more than {_LONGEST >> 20} MB in a block of its dictionary")
            results.append(self._term(text))
        return results


def _lines(source: _Bytes) -> Iterator[bytes]:
    _control(source, 1)
    header = _control(source, 2)
    source.take(int(header.properties["length"]))
    kind = _control(source, 3)
    if kind.format != _DICTIONARY:
        raise ValueError(f"its dictionary is {kind.format}, and {_DICTIONARY} is read")
    shared, subjects, predicates, objects = (_Section(source, _term) for _ in range(4))
    kind = _control(source, 4)
    order = kind.properties.get("order", _SUBJECT_ORDER)
    if kind.format != _TRIPLES or order != _SUBJECT_ORDER:
        raise ValueError(f"its triples are {kind.format} in order {order}")
    last_predicate, last_object = _Integers(source, 1), _Integers(source, 1)
    pairs, values = _Integers(source), _Integers(source)
    if last_predicate.count != pairs.count or last_object.count != values.count:
        raise ValueError("its triples are incomplete")
    both = shared.count
    subject = 1
    leaders = zip(pairs, last_predicate, strict=False)
    predicate, last = next(leaders, (0, 0))
    lines: list[bytes] = []
    for value, ends in zip(values, last_object, strict=False):
        begun = shared[subject] if subject <= both else subjects[subject - both]
        object_ = shared[value] if value <= both else objects[value - both]
        lines.append(b"%s %s %s .\n" % (begun, predicates[predicate], object_))
        if len(lines) == 4096:
            yield b"".join(lines)
            lines = []
        if ends:
            subject += last
            predicate, last = next(leaders, (0, 0))
    yield b"".join(lines)


def _term(text: bytes) -> bytes:
    """Return a term of the dictionary, whose literals have no escapes, as N-Triples."""
    lexical = text.decode("utf-8", "surrogateescape")
    try:
        if lexical.startswith("_:"):
            return text
        if not lexical.startswith('"'):
            return _encoded(iri(lexical))
        end = lexical.rfind('"')
        content, rest = lexical[1:end], lexical[end + 1 :]
        if end > 0 and rest.startswith("@"):
            return _encoded(literal(content, language=rest[1:]))
        if end > 0 and rest.startswith("^^<"):
            return _encoded(literal(content, datatype=rest[3:-1]))
        return _encoded(literal(content)) if end > 0 and not rest else text
    except TermError:
        return b"<" + text + b">" if not text.startswith(b'"') else text


def _encoded(term: Term) -> bytes:
    return term.encode("utf-8", "surrogateescape")
