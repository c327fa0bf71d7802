"""N-Quads and N-Triples, read line by line as pyoxigraph does, for browsers."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from annotations.errors import TermError
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    blank_node,
    iri,
    is_triple_term,
    literal,
    literal_parts,
    read_triple_term,
    unescaped,
)

LINE_FORMATS: Final = ("application/n-quads", "application/n-triples")
"""Media types that are read here."""

_NUMBERED: Final = r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_IRI: Final = rf'<(?:[^<>"{{}}|^`\\\x00-\x20]++|{_NUMBERED})*+>'
_BLANK: Final = r"_:(?:[^\x00-\x20<>\".]++|\.++(?=[^\x00-\x20<>\".]))++"
_ESCAPE: Final = rf"""\\[tbnrf"'\\]|{_NUMBERED}"""
_SUFFIX: Final = rf"@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--(?:ltr|rtl))?|\^\^{_IRI}"
_LITERAL: Final = rf'"(?:[^"\\\n\r]++|{_ESCAPE})*+"(?:{_SUFFIX})?'
_LINE: Final = re.compile(
    rf"[ \t]*+({_IRI}|{_BLANK})[ \t]*+({_IRI})[ \t]*+({_IRI}|{_BLANK}|{_LITERAL}|<<\(.*\)>>)"
    rf"[ \t]*+({_IRI}|{_BLANK})?[ \t]*+\.[ \t]*+(?:#.*)?"
)
_NOTHING: Final = re.compile(r"[ \t]*+(?:#.*)?")
_LONGEST: Final = 2**12
"""Characters of a line that is remembered."""
_KEPT: Final = 2**14
"""Lines that are remembered."""


def quads_of_lines(body: bytes, *, triples: bool) -> Iterator[Quad]:
    """Yield the quads of a document; `triples`: lines have no graph."""
    for number, text in enumerate(re.split(r"[\r\n]", body.decode("utf-8"))):
        quad = _known_quad(text) if len(text) <= _LONGEST else _quad(text)
        if quad is None:
            if _NOTHING.fullmatch(text):
                continue
            raise ValueError(f"line {number + 1} is no statement: {text[:100]!a}")
        if triples and quad.graph:
            raise ValueError(f"line {number + 1} has a graph")
        yield quad


def _quad(text: str) -> Quad | None:
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    subject, predicate, object_, graph = match.groups()
    try:
        return Quad(
            _term(subject),
            _term(predicate),
            _term(object_),
            DEFAULT_GRAPH if graph is None else _term(graph),
        )
    except TermError:
        return None


_known_quad: Final = lru_cache(_KEPT)(_quad)


def _term(text: str) -> Term:
    if text.startswith("<"):
        if is_triple_term(text):
            return read_triple_term(text)
        return iri(unescaped(text[1:-1]))
    if text.startswith("_:"):
        return blank_node(text[2:])
    lexical, language, datatype = literal_parts(text)
    return literal(lexical, language, None if language else unescaped(datatype))
