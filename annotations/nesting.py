"""Documents that nest without end, or that grow when they are read.

Parsers of RDF take a document in one go. Triple terms, or objects of JSON-LD, that are nested some
thousand times end the process; XML takes time that grows with the square of its depth and of the
attributes of an element; and an entity of XML that repeats another one ten times, and so on, takes
all memory that there is. So a document is looked over before it is parsed, in time that grows with
its length.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from xml.parsers import expat

from annotations.errors import NestingError
from annotations.terms import MAX_NESTING

MAX_ATTRIBUTES: Final = 1_000
"""How many attributes an element of XML may have."""
MAX_ENTITY: Final = 1_000
"""How many characters an entity of XML may stand for, where entities are read at all."""


def check_nesting(pieces: Iterable[bytes], media_type: str, *, entities: bool = False) -> None:
    """See to it that a document can be parsed without harm.

    Args:
        pieces: the document; iterated over twice where it holds many triple terms.
        media_type: its format; what is neither JSON nor XML is taken for a format of the Turtle
            family.
        entities: whether XML may declare entities, as files with ontologies do; otherwise its
            elements and attributes are counted as well.

    Raises:
        NestingError: it is nested deeper than `MAX_NESTING`, or it is XML that has too many
            attributes or entities that are too long; or malformed, as far as it was looked at.
    """
    if media_type == "application/rdf+xml":
        _check_xml(pieces, entities=entities)
    elif media_type == "application/ld+json":
        _check(pieces, _JSON)
    elif _opens_often(pieces):
        _check(pieces, _TURTLE)


def _opens_often(pieces: Iterable[bytes]) -> bool:
    """Whether there are triple terms enough to nest too deep; most documents have none at all."""
    count, end = 0, b""
    for piece in pieces:
        count += piece.count(b"<<(") + (end + piece[:2]).count(b"<<(")
        end = (end + piece)[-2:]
        if count > MAX_NESTING:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Syntax:
    """What is to be known of a syntax to follow its brackets.

    No expression here can fail after it has read much, so each character is read once or twice.

    Args:
        plain: what is of no interest.
        opening: brackets, all of one depth.
        closing: brackets.
        quotes: what begins a part in which there are no brackets, longest first: what it goes on
            with, and its end.
        longest: of the marks above, in bytes.
    """

    plain: "re.Pattern[bytes]"
    opening: tuple[bytes, ...]
    closing: tuple[bytes, ...]
    quotes: Mapping[bytes, tuple["re.Pattern[bytes]", bytes]]
    longest: int


def _inside(expression: bytes) -> "re.Pattern[bytes]":
    return re.compile(b"(?:" + expression + b")*+", re.DOTALL)


_JSON: Final = _Syntax(
    # Strings that end are of no interest.
    plain=_inside(rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'),
    opening=(b"{", b"["),
    closing=(b"}", b"]"),
    quotes={b'"': (_inside(rb'[^"\\]++|\\.'), b'"')},
    longest=1,
)
_TURTLE: Final = _Syntax(
    plain=_inside(rb"""[^"'<#)]++"""),
    opening=(b"<<(",),
    closing=(b")>>",),
    quotes={
        # A quotation mark belongs to a long string if what follows is there and is not its end.
        b'"""': (_inside(rb'[^"\\]++|\\.|"(?!"")(?=..)'), b'"""'),
        b"'''": (_inside(rb"[^'\\]++|\\.|'(?!'')(?=..)"), b"'''"),
        b'"': (_inside(rb'[^"\\\n]++|\\.'), b'"'),
        b"'": (_inside(rb"[^'\\\n]++|\\."), b"'"),
        b"#": (_inside(rb"[^\n]++"), b"\n"),
        b"<": (_inside(rb"[^<>\s]++"), b">"),
    },
    longest=3,
)


def _check(pieces: Iterable[bytes], syntax: _Syntax) -> None:
    rest = b""
    depth = lines = 0
    quote: tuple[re.Pattern[bytes], bytes] | None = None
    for piece in pieces:
        text, position = rest + piece, 0
        while True:
            expression = syntax.plain if quote is None else quote[0]
            found = expression.match(text, position)
            assert found is not None
            position = found.end()
            if len(text) - position < syntax.longest:
                break
            if quote is not None:
                # A quoted part that breaks off is for the parser to find.
                position += len(quote[1]) if text.startswith(quote[1], position) else 0
                quote = None
            elif text.startswith(syntax.opening, position):
                depth += 1
                if depth > MAX_NESTING:
                    line = lines + text.count(b"\n", 0, position) + 1
                    raise NestingError(f"nested more than {MAX_NESTING} deep", line)
                position += syntax.longest
            elif text.startswith(syntax.closing, position):
                depth -= 1
                position += syntax.longest
            else:
                mark = next(
                    (each for each in syntax.quotes if text.startswith(each, position)), b""
                )
                quote = syntax.quotes.get(mark)
                position += len(mark) or 1
        rest = text[position:]
        lines += text.count(b"\n", 0, position)


class _PrologEnd(Exception):  # noqa: N818 - nothing failed
    """There can be no more declarations."""


def _check_xml(pieces: Iterable[bytes], *, entities: bool) -> None:
    parser = expat.ParserCreate()
    depth = 0
    lengths: dict[str, int] = {}

    def start(_: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth
        if entities:
            raise _PrologEnd
        depth += 1
        if depth > MAX_NESTING:
            raise NestingError(f"nested more than {MAX_NESTING} deep", parser.CurrentLineNumber)
        if len(attributes) > MAX_ATTRIBUTES:
            reason = f"an element with more than {MAX_ATTRIBUTES} attributes"
            raise NestingError(reason, parser.CurrentLineNumber)

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def declare(name: str, _parameter: bool, value: str | None, *_: object) -> None:
        if not entities:
            raise NestingError("entities are not read; write IRIs out", parser.CurrentLineNumber)
        parts = re.split(r"&([^&;]*+);", value or "")
        length = sum(map(len, parts[::2])) + sum(lengths.get(each, 0) for each in parts[1::2])
        lengths.setdefault(name, length)
        if length > MAX_ENTITY:
            reason = f"the entity {name[:50]} stands for more than {MAX_ENTITY} characters"
            raise NestingError(reason, parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = declare
    try:
        for piece in pieces:
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except _PrologEnd:
        pass
    except expat.ExpatError as error:
        raise NestingError(expat.ErrorString(error.code), error.lineno) from None
