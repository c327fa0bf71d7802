"""Refuse documents that nest without end, or that grow when they are read, in linear time.

Nested triple terms, JSON-LD objects and context terms can end the process; XML's depth, attributes
and entities, and namespaces, bases and prefixes, can take all time or memory.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from xml.parsers import expat

from annotations.errors import NestingError
from annotations.terms import MAX_NESTING

MAX_ATTRIBUTES: Final = 1_000
"""How many attributes an element of XML may have."""
MAX_ENTITY: Final = 1_000
"""How many characters an entity of XML may stand for, where entities are read at all."""
MOST_CHARACTERS: Final = 64 * 2**20
MOST_GROWTH: Final = 8
"""How large a document may become, written out: so many characters, and so many times its bytes."""
_GROWTH_OF_FILES: Final = 200
"""The same of what declarations make of a file, which is parsed while it is read."""
_MOST_COPIED: Final = 50_000_000
"""The most bytes of contexts that a parser of JSON-LD may have to copy: a second's work."""
_LONGEST_KEY: Final = 100
"""Bytes of a text that is kept whole where a piece ends: it may be the key of a context."""
_READ_PER_COPIED: Final = 4
"""How many bytes of a base are read in the time that one of a context takes."""
_LONGEST_TERM: Final = 16 * 2**20
"""Bytes that pyoxigraph takes of a term."""
_LINE_FORMATS: Final = frozenset({"application/n-triples", "application/n-quads"})

_BASE: Final = re.compile(rb"base\s{0,99}+<([^<>\s]*+)", re.IGNORECASE)
_JSON_TOKEN: Final = re.compile(
    rb'(?P<between>[^"{}\[\]]*+)'
    rb'(?:(?P<text>"(?:[^"\\]++|\\.)*+")|(?P<open>[\[{])|(?P<close>[\]}]))',
    re.DOTALL,
)
_IN_TEXT: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)

_VERSION: Final = re.compile(
    rb'(?<![^\r\n])[ \t]*+VERSION[ \t]*+"[^"\\\r\n]*+"(?=[ \t]*+(?:[#\r\n]|\Z))'
)

TextsT = TypeVar("TextsT", bound=Iterable[str])
StatementT = TypeVar("StatementT")


def check_nesting(
    pieces: Iterable[bytes], media_type: str, *, base: str = "", entities: bool = False
) -> None:
    """Refuse a document that could harm its parser.

    `pieces` are iterated over up to four times; `entities`: XML may declare some, as ontologies
    do.
    """
    if media_type == "application/rdf+xml":
        _XmlCheck(len(base), entities=entities).read(pieces)
    elif media_type == "application/ld+json":
        _check_json(pieces, len(base), _GROWTH_OF_FILES if entities else MOST_GROWTH)
    else:
        if _opens_often(pieces):
            _check_triple_terms(pieces)
        if media_type not in _LINE_FORMATS and not entities:
            _check_bases(pieces, len(base))


def most_written(length: int, growth: int = MOST_GROWTH) -> int:
    """Return how many characters a document of so many bytes may expand to."""
    return MOST_CHARACTERS + growth * length


def bounded_statements(statements: Iterable[TextsT], length: int) -> Iterator[TextsT]:
    """Yield statements; `NestingError` if they exceed `most_written`."""
    most = left = most_written(length)
    for statement in statements:
        left -= sum(map(len, statement))
        if left < 0:
            raise NestingError(f"with its prefixes written out, it has more than {most} bytes")
        yield statement


def short_terms(statements: Iterable[StatementT], document: bytes) -> Iterator[StatementT]:
    """Yield statements; `NestingError` if a term is too long for the parser."""
    try:
        yield from statements
    except MemoryError as error:
        reason = f"a term is too long ({error or 'too large for the memory'})"
        raise NestingError(reason, _long_line(document)) from None


def without_versions(document: bytes, media_type: str) -> bytes:
    """Blank ``VERSION "1.2"`` in N-Triples and N-Quads, where pyoxigraph does not take it."""
    if media_type not in _LINE_FORMATS or b"VERSION" not in document:
        return document
    return _VERSION.sub(lambda match: b" " * len(match[0]), document)


def _long_line(document: bytes) -> int | None:
    number, start = 1, 0
    while (end := document.find(b"\n", start)) >= 0:
        if end - start > _LONGEST_TERM:
            return number
        number, start = number + 1, end + 1
    return number if len(document) - start > _LONGEST_TERM else None


def _opens_often(pieces: Iterable[bytes]) -> bool:
    count, end = 0, b""
    for piece in pieces:
        count += piece.count(b"<<(") + (end + piece[:2]).count(b"<<(")
        end = (end + piece)[-2:]
        if count > MAX_NESTING:
            return True
    return False


def _inside(expression: bytes) -> "re.Pattern[bytes]":
    return re.compile(b"(?:" + expression + b")*+", re.DOTALL)


# The lexical rules of Turtle, to follow its triple terms in linear time.
_PLAIN: Final = _inside(rb"""[^"'<#)]++""")
_OPENING: Final = b"<<("
_CLOSING: Final = b")>>"
_QUOTES: Final = {
    # A quotation mark belongs to a long string if what follows is there and is not its end.
    b'"""': (_inside(rb'[^"\\]++|\\.|"(?!"")(?=..)'), b'"""'),
    b"'''": (_inside(rb"[^'\\]++|\\.|'(?!'')(?=..)"), b"'''"),
    b'"': (_inside(rb'[^"\\\n]++|\\.'), b'"'),
    b"'": (_inside(rb"[^'\\\n]++|\\."), b"'"),
    b"#": (_inside(rb"[^\n]++"), b"\n"),
    b"<": (_inside(rb"[^<>\s]++"), b">"),
}


def _check_triple_terms(pieces: Iterable[bytes]) -> None:
    rest = b""
    depth = lines = 0
    quote: tuple[re.Pattern[bytes], bytes] | None = None
    for piece in pieces:
        text, position = rest + piece, 0
        while True:
            expression = _PLAIN if quote is None else quote[0]
            match = expression.match(text, position)
            assert match is not None
            position = match.end()
            if len(text) - position < len(_OPENING):
                break
            if quote is not None:
                # A quoted part that breaks off is for the parser to find.
                position += len(quote[1]) if text.startswith(quote[1], position) else 0
                quote = None
            elif text.startswith(_OPENING, position):
                depth += 1
                if depth > MAX_NESTING:
                    line = lines + text.count(b"\n", 0, position) + 1
                    raise NestingError(f"nested more than {MAX_NESTING} deep", line)
                position += len(_OPENING)
            elif text.startswith(_CLOSING, position):
                depth -= 1
                position += len(_CLOSING)
            else:
                mark = next((each for each in _QUOTES if text.startswith(each, position)), b"")
                quote = _QUOTES.get(mark)
                position += len(mark) or 1
        rest = text[position:]
        lines += text.count(b"\n", 0, position)


def _check_bases(pieces: Iterable[bytes], base: int) -> None:
    sizes = [(len(piece), piece.count(b"<")) for piece in pieces]
    if (base + sum(size for size, _ in sizes)) * sum(count for _, count in sizes) < _MOST_COPIED:
        return
    bases, iris, length, rest = base, 0, 0, b""
    for piece in pieces:
        length += len(piece)
        iris += piece.count(b"<")
        text = rest + piece
        end = cut = 0
        for entry in _BASE.finditer(text):
            end = entry.end()
            if end < len(text):
                bases += len(entry[1])
                cut = end
        # The last base may go on in the next piece, or the word before it.
        rest = text[cut if cut < end else max(cut, len(text) - _LONGEST_KEY - len("base")) :]
        if bases * iris > _READ_PER_COPIED * _MOST_COPIED + MOST_GROWTH * length:
            raise NestingError("its bases are too long, or too many")


def _json_tokens(pieces: Iterable[bytes]) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield kind, preceding bytes and text of JSON tokens; long texts come in parts."""
    rest, inside = b"", False
    for piece in pieces:
        text, position = rest + piece, 0
        while True:
            if inside:
                match = _IN_TEXT.match(text, position)
                assert match is not None
                ends = text[match.end() : match.end() + 1] == b'"'
                yield "part", b"", text[position : match.end() + ends]
                position, inside = match.end() + ends, not ends
            token = None if inside else _JSON_TOKEN.match(text, position)
            if token is not None:
                kind = token.lastgroup or ""
                yield kind, token["between"], token[kind]
                position = token.end()
                continue
            if inside or len(text) - position <= _LONGEST_KEY:
                break
            opening = text.find(b'"', position)
            inside = opening >= 0
            end = opening if inside else len(text)
            yield "part", text[position:end], text[end : end + 1]
            position = end + inside
            if not inside:
                break
        rest = text[position:]


def _check_json(pieces: Iterable[bytes], base: int, growth: int) -> None:
    """Check nesting; count what contexts declare for every object or name it is copied to."""
    reach = [(0, 0)]
    """Of each object around: bytes of the contexts that it has and inherits, and how much their
    vocabularies and bases put before a name."""
    terms = _Terms(base)
    contexts = names = objects = anything = length = lines = depth = 0
    key, gap = False, b""
    context: list[bytes] = []
    for kind, between, token in _json_tokens(pieces):
        length += len(between) + len(token)
        lines += between.count(b"\n")
        names += kind != "close"
        if not context:
            anything += reach[-1][0] if kind in ("open", "text") else 0
            gap += between.strip()
            if kind == "open" and key and gap == b":":
                context, depth = [token], 1
            elif kind == "open":
                objects += reach[-1][0]
                reach.append(reach[-1])
            elif kind == "close" and len(reach) > 1:
                reach.pop()
            if token:
                key, gap = kind == "text" and _is_context(token), b""
        else:
            context += between, token
            depth += (kind == "open") - (kind == "close")
            if depth == 0:
                contexts += 1
                text, context = b"".join(context), []
                copied, put_before = reach[-1]
                reach[-1] = copied + len(text), terms.read(text, put_before, lines + 1)
        if len(reach) - 1 + depth > MAX_NESTING:
            raise NestingError(f"nested more than {MAX_NESTING} deep", lines + 1)
        copied = anything if terms.scoped else objects if contexts > 1 else 0
        most_copied = _MOST_COPIED + (growth - MOST_GROWTH) * length
        if copied > most_copied or terms.longest * names > most_written(length, growth):
            raise NestingError("its contexts are too large", lines + 1)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, because names may repeat."""


class _Terms:
    def __init__(self, base: int) -> None:
        self.longest = base
        self.scoped = False
        self._lengths: dict[str, int] = {}

    def read(self, content: bytes, put_before: int, line: int) -> int:
        """Read a context, which ends in a line; return the prefix length of names."""
        try:
            definitions = json.loads(
                content.decode(), object_pairs_hook=_Pairs, strict=False,
                parse_int=str, parse_float=str, parse_constant=str,
            )  # fmt: skip
        except ValueError:
            raise NestingError("a malformed context", line) from None
        depth, put_before = self._context(definitions, put_before, line)
        if depth > MAX_NESTING:
            reason = f"the terms of a context are nested more than {MAX_NESTING} deep"
            raise NestingError(reason, line)
        return put_before

    def _context(self, definitions: object, put_before: int, line: int) -> tuple[int, int]:
        """Return the nesting of definitions, and the prefix length of names."""
        if not isinstance(definitions, _Pairs):
            depth = 0
            for each in definitions if isinstance(definitions, list) else ():
                inner, put_before = self._context(each, put_before, line)
                depth = max(depth, inner)
            return depth, put_before
        texts: dict[str, list[str]] = {}
        within: dict[str, int] = {}
        for name, value in definitions:
            texts.setdefault(name, [name]).extend(_references(value))
            for key, scoped in value if isinstance(value, _Pairs) else ():
                if key == "@context":
                    self.scoped = True
                    inner, _ = self._context(scoped, put_before, line)
                    within[name] = max(inner, within.get(name, 0))
        used = {
            name: {each for text in of_name for each in _names_in(text) if each != name}
            for name, of_name in texts.items()
        }
        depths: dict[str, int] = {}
        for name in _in_order({name: refs & used.keys() for name, refs in used.items()}, line):
            local = used[name] & used.keys()
            depths[name] = 1 + within.get(name, 0) + max((depths[x] for x in local), default=0)
            before = max((self._lengths.get(each, 0) for each in used[name]), default=0)
            own = max(map(len, texts[name])) + max(before, put_before)
            self._lengths[name] = max(own, self._lengths.get(name, 0))
            self.longest = max(self.longest, own)
        for name in ("@vocab", "@base"):
            if name in texts:
                put_before = self._lengths[name]
        return max(depths.values(), default=0), put_before


def _references(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for name, reference in value if isinstance(value, _Pairs) else ():
        if isinstance(reference, str) and name not in ("@language", "@direction", "@container"):
            yield reference


def _names_in(text: str) -> Iterator[str]:
    yield text
    colon = text.find(":", 1)
    if colon > 0 and not text.startswith("//", colon + 1):
        yield text[:colon]


def _in_order(used: Mapping[str, Iterable[str]], line: int) -> Iterator[str]:
    done: set[str] = set()
    for root in used:
        waiting, begun = [root], set[str]()
        while waiting:
            name = waiting[-1]
            missing = [] if name in done else [each for each in used[name] if each not in done]
            if missing and name in begun:
                raise NestingError(f"the term {name[:50]} is defined by itself", line)
            if missing:
                begun.add(name)
                waiting += missing
                continue
            waiting.pop()
            if name not in done:
                done.add(name)
                yield name


def _is_context(text: bytes) -> bool:
    if b"\\u" in text and len(text) <= len(rb"\u0040") * len('"@context"'):
        try:
            return bool(json.loads(text) == "@context")
        except ValueError:
            return False
    return text == b'"@context"'


@dataclass(slots=True)
class _Element:
    namespaces: int = 0
    base: int = 0
    literal: bool = False


class _XmlCheck:
    def __init__(self, base: int, *, entities: bool) -> None:
        self._entities = entities
        self._growth = _GROWTH_OF_FILES if entities else MOST_GROWTH
        self._around = [_Element(base=base)]
        self._lengths: dict[str, int] = {}
        self._length = self._written = 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._declare

    def read(self, pieces: Iterable[bytes]) -> None:
        try:
            for piece in pieces:
                self._length += len(piece)
                self._parser.Parse(piece, False)
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            # What a file says before its first error is read.
            if not self._entities or len(self._around) == 1 or error.code == _AMPLIFIED:
                raise self._error(expat.ErrorString(error.code)) from None

    def _error(self, reason: str) -> NestingError:
        return NestingError(reason, self._parser.CurrentLineNumber)

    def _start(self, _: str, attributes: Mapping[str, str]) -> None:
        around = self._around[-1]
        if not self._entities and len(self._around) > MAX_NESTING:
            raise self._error(f"nested more than {MAX_NESTING} deep")
        if not self._entities and len(attributes) > MAX_ATTRIBUTES:
            raise self._error(f"an element with more than {MAX_ATTRIBUTES} attributes")
        element = _Element(around.namespaces, around.base, around.literal)
        resolved = False
        for name, value in attributes.items():
            prefix, _, local = name.rpartition(":")
            if name == "xmlns" or prefix == "xmlns":
                element.namespaces += len(name) + len(value)
            elif name == "xml:base":
                element.base = len(value) + (0 if ":" in value else around.base)
            elif local == "parseType":
                element.literal |= value not in ("Resource", "Collection")
            else:
                resolved = resolved or local in _RESOLVED
            self._written += len(value) if self._lengths else 0
        self._around.append(element)
        # Each element of a literal is written with all namespaces. What has a base before it may
        # be kept, or be in no quad.
        self._write(element.namespaces * around.literal + element.base * resolved)

    def _read_text(self, text: str) -> None:
        self._write(len(text))

    def _write(self, characters: int) -> None:
        self._written += characters
        if self._written > most_written(self._length, self._growth):
            raise self._error("its namespaces or bases are too long, or too many")

    def _end(self, _: str) -> None:
        self._around.pop()

    def _declare(self, name: str, _parameter: bool, value: str | None, *_: object) -> None:
        if not self._entities:
            raise self._error("entities are not read; write IRIs out")
        parts = re.split(r"&([^&;]*+);", value or "")
        length = sum(map(len, parts[::2]))
        length += sum(self._lengths.get(each, 0) for each in parts[1::2])
        self._lengths.setdefault(name, length)
        self._parser.CharacterDataHandler = self._read_text
        if length > MAX_ENTITY:
            reason = f"the entity {name[:50]} stands for more than {MAX_ENTITY} characters"
            raise self._error(reason)


_AMPLIFIED: Final = 43
"""The code of XML_ERROR_AMPLIFICATION_LIMIT_BREACH: its entities stand for too much."""
_RESOLVED: Final = frozenset({"ID", "about", "aboutEach", "bagID", "datatype", "resource"})
