"""RDF terms as their canonical N-Triples text (RDF 1.2 N-Triples, sections 2 and 3).

Equal terms are equal strings, as pyoxigraph prints them: ``<iri>``, ``"x"@en``,
``"42"^^<…integer>``, ``_:b``, ``<<( s p o )>>``. A variable is ``?name``.
"""

import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple, NewType, TypeAlias

from annotations.errors import TermError

Term = NewType("Term", str)
"""An RDF term in canonical N-Triples form."""

Variable = NewType("Variable", str)
"""A variable, with its question mark: ``?name``."""

TermOrVariable: TypeAlias = Term | Variable

DEFAULT_GRAPH = Term("")
"""The graph of a quad that lies in no named graph (the name of no term)."""


class Triple(NamedTuple):
    """A statement: subject, predicate, object."""

    subject: Term
    predicate: Term
    object: Term


class Quad(NamedTuple):
    """A triple in a graph; `DEFAULT_GRAPH` for the default graph."""

    subject: Term
    predicate: Term
    object: Term
    graph: Term = DEFAULT_GRAPH

    @property
    def triple(self) -> Triple:
        return Triple(self.subject, self.predicate, self.object)


class TriplePattern(NamedTuple):
    """A triple in which any position may be a variable."""

    subject: TermOrVariable
    predicate: TermOrVariable
    object: TermOrVariable


class QuadPattern(NamedTuple):
    """A quad in which any position may be a variable.

    A variable as graph matches the default graph, too.
    """

    subject: TermOrVariable
    predicate: TermOrVariable
    object: TermOrVariable
    graph: TermOrVariable = DEFAULT_GRAPH


_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}
_TO_ESCAPE = re.compile('[\\x00-\\x1f"\\\\\\x7f\\ud800-\\udfff\\ufffe\\uffff]')
_ESCAPED = re.compile(r"\\(?:([\\\"'nrtbf])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_UNESCAPES = {
    "\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f",
}  # fmt: skip
_NOT_IN_IRI = re.compile('[\\x00-\\x20<>"{}|^`\\\\\\ud800-\\udfff]')
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*+(--(ltr|rtl))?")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_STARTS_NAME = (
    "0-9A-Z_a-z:\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d"
    "\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_IN_NAME = rf"\-{_STARTS_NAME}\u00b7\u0300-\u036f\u203f\u2040"
_BLANK_IN_ASCII = re.compile(r"[0-9A-Z_a-z:](?:[\-0-9A-Z_a-z:.]*[\-0-9A-Z_a-z:])?")
_VARIABLE = re.compile(r"\?\w+", re.UNICODE)

XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def _escape_one(match: re.Match[str]) -> str:
    character = match.group()
    if "\ud800" <= character <= "\udfff":
        raise TermError(f"half of a surrogate pair is no character: {character!r}")
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"


def _unescape_one(match: re.Match[str]) -> str:
    short, four, eight = match.groups()
    if short:
        return _UNESCAPES[short]
    code = int(four or eight, 16)
    if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:
        raise TermError(f"no character: {match[0]}")
    return chr(code)


def unescaped(text: str) -> str:
    """Replace the escapes of N-Triples by what they stand for."""
    return _ESCAPED.sub(_unescape_one, text)


def iri(value: str) -> Term:
    """Return the term of an absolute IRI."""
    if not _ABSOLUTE.match(value):
        raise TermError(f"not an absolute IRI: {value!r}")
    if bad := _NOT_IN_IRI.search(value):
        raise TermError(f"an IRI cannot hold {bad.group()!r}: {value!r}")
    return Term(f"<{value}>")


def literal(lexical: str, language: str | None = None, datatype: str | None = None) -> Term:
    """Return the term of a literal with an IRI as datatype or a BCP 47 tag.

    The tag may have a base direction (``ar--rtl``), and becomes lower case.

    Raises:
        TermError: both a language and a datatype, or one of them malformed.
    """
    quoted = f'"{_TO_ESCAPE.sub(_escape_one, lexical)}"'
    if language is not None:
        if datatype is not None:
            raise TermError(f"a literal has a language or a datatype, not both: {lexical!r}")
        if not _LANGUAGE.fullmatch(language):
            raise TermError(f"not a language tag: {language!r}")
        return Term(f"{quoted}@{language.lower()}")
    if datatype is None or datatype == XSD_STRING:
        return Term(quoted)
    return Term(f"{quoted}^^{iri(datatype)}")


@cache
def _blank_label() -> re.Pattern[str]:
    """Compiled on demand: it takes long, and few labels need it."""
    return re.compile(f"[{_STARTS_NAME}](?:[{_IN_NAME}.]*[{_IN_NAME}])?")


def blank_node(label: str) -> Term:
    """Return the term of a blank node with this label."""
    if not (_BLANK_IN_ASCII.fullmatch(label) or _blank_label().fullmatch(label)):
        raise TermError(f"not a blank node label: {label!r}")
    return Term(f"_:{label}")


def triple_term(triple: Triple) -> Term:
    """Return the RDF 1.2 triple term ``<<( s p o )>>`` of a triple."""
    term = Term(f"<<( {triple.subject} {triple.predicate} {triple.object} )>>")
    # Each level has as many characters; texts may have them, too.
    if triple.object.startswith("<<(") and term.count("<<(") > MAX_NESTING:
        triple_of_term(term)
    return term


def variable(name: str) -> Variable:
    """Return the variable of this name (without question mark)."""
    if not _VARIABLE.fullmatch(f"?{name}"):
        raise TermError(f"not the name of a variable: {name!r}")
    return Variable(f"?{name}")


def is_variable(term: str) -> bool:
    """True for a variable."""
    return term.startswith("?")


def is_iri(term: str) -> bool:
    """True for an IRI."""
    return term.startswith("<") and not term.startswith("<<")


def is_literal(term: str) -> bool:
    """True for a literal."""
    return term.startswith('"')


def is_blank_node(term: str) -> bool:
    """True for a blank node."""
    return term.startswith("_:")


def is_triple_term(term: str) -> bool:
    """True for an RDF 1.2 triple term."""
    return term.startswith("<<(")


def iri_value(term: str) -> str:
    """Return the IRI inside the angle brackets; refuse other terms."""
    if not is_iri(term):
        raise TermError(f"not an IRI: {term}")
    return term[1:-1]


class LiteralParts(NamedTuple):
    """The parts of a literal; `datatype` is always set."""

    lexical: str
    language: str | None
    datatype: str


_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def literal_parts(term: str) -> LiteralParts:
    """Return the unescaped lexical form, language tag and datatype of a literal."""
    if not is_literal(term):
        raise TermError(f"not a literal: {term}")
    end = term.rfind('"')
    lexical = term[1:end]
    if "\\" in lexical:
        lexical = unescaped(lexical)
    suffix = term[end + 1 :]
    if not suffix:
        return LiteralParts(lexical, None, XSD_STRING)
    if suffix.startswith("@"):
        language = suffix[1:]
        kind = "dirLangString" if "--" in language else "langString"
        return LiteralParts(lexical, language, _RDF + kind)
    if suffix.startswith("^^<") and suffix.endswith(">"):
        return LiteralParts(lexical, None, suffix[3:-1])
    raise TermError(f"not a literal: {term}")


MAX_NESTING: Final = 100
"""How deep triple terms may be nested."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<open><<\() | (?P<close>\)>>)
      | (?P<iri><[^<>\x00-\x20]*+>)
      | (?P<literal>"(?:[^"\\]++|\\.)*+"(?:@[A-Za-z0-9-]+|\^\^<[^<>\x00-\x20]*+>)?)
      | (?P<blank>_:[^\x00-\x20<>"]++)
    )""",
    re.VERBOSE | re.DOTALL,
)


def triple_of_term(term: str) -> Triple:
    """Return the triple inside a triple term."""
    return _triple_of(term, Term)


def read_triple_term(text: str) -> Term:
    """Return the canonical form of a triple term."""
    return triple_term(_triple_of(text, _read_term))


def _triple_of(text: str, make: Callable[[str], Term]) -> Triple:
    tokens = _tokens(text)
    if next(tokens, "") == "<<(":
        triple = _read_triple(tokens, text, 1, make)
        if next(tokens, None) is None:
            return triple
    raise TermError(f"not a triple term: {text}")


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise TermError(f"not a triple term: {text}")
        yield match[match.lastgroup or 0]
        position = match.end()


def _read_triple(
    tokens: Iterator[str], whole: str, depth: int, make: Callable[[str], Term]
) -> Triple:
    if depth > MAX_NESTING:
        raise TermError(f"triple terms are nested more than {MAX_NESTING} deep")
    terms: list[Term] = []
    for token in tokens:
        if token == ")>>":
            if len(terms) == 3 and is_iri(terms[1]) and terms[0].startswith(("_:", "<")):
                return Triple(*terms)
            break
        if token == "<<(":
            if len(terms) != 2:
                break
            terms.append(triple_term(_read_triple(tokens, whole, depth + 1, make)))
        else:
            terms.append(make(token))
    raise TermError(f"not a triple term: {whole}")


def _read_term(token: str) -> Term:
    if is_blank_node(token):
        return blank_node(token[2:])
    if is_iri(token):
        return iri(token[1:-1])
    lexical, language, datatype = literal_parts(token)
    return literal(lexical, language, None if language else datatype)
