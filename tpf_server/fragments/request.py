"""A requested page: pattern, page, snapshot, and their URLs.

The page has the URL that was requested, byte for byte: clients look for its metadata under that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from annotations.errors import InstantError, TermError
from annotations.instants import FIRST, LAST, parse_instant, to_micros
from annotations.terms import (
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
    iri,
    is_variable,
    literal,
    literal_parts,
    read_triple_term,
)
from tpf_server.errors import RequestError, TermSyntaxError
from tpf_server.fragments.pattern import PatternReader, Skolemizer, names_blank_node
from tpf_server.store.protocols import Snapshot

# The ``values`` parameter of bindings-restricted fragments (brTPF).
#
# ``(?x ?y) { (<a> "b") (<c> UNDEF) }``: only matches that are compatible with one of these rows are
# wanted. The variables are those of the request (``subject=?x``); an open position that the
# request does not name is called like itself (``?subject``). Others say nothing about the pattern
# and are left out. Terms are in N-Triples form. A row with fewer terms than there are variables
# matches nothing: Comunica says so that there are no bindings.
#
# Source: Hartig and Buil-Aranda, *Bindings-Restricted Triple Pattern Fragments*, ODBASE 2016.
#
# Counts of patterns add up where no two of them have a match in common. Rows without ``UNDEF``
# give such patterns; of the others, one that contains another stands for both, and two that
# overlap otherwise are answered by the least pattern that contains both: more than was asked for,
# which a client that joins the answer with its bindings does not notice.

_HEAD = re.compile(r"\s*\(([\s\w?]*)\)\s*\{")
_NAME = re.compile(r"\?\w+")
_WORD = re.compile(
    r"\s*+(?:([()}])|(UNDEF)|(<<\(|<[^<>\x00-\x20]*+>|"
    r'"(?:[^"\\]++|\\.)*+"(?:@[A-Za-z0-9-]++|\^\^<[^<>\x00-\x20]*+>)?))\s*+',
    re.DOTALL,
)
_IN_TRIPLE_TERM = re.compile(r'<<\(|\)>>|<[^<>\x00-\x20]*+>|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SHOWN = 80
"""Characters of a malformed value that an error quotes."""


def restricted(
    pattern: QuadPattern, text: str, skolemizer: Skolemizer, max_rows: int
) -> tuple[QuadPattern, ...]:
    """Return the patterns of the restricted matches: disjoint, in the order of the rows."""
    head = _HEAD.match(text)
    names = [] if head is None else head[1].split()
    if head is None or not all(map(_NAME.fullmatch, names)):
        raise RequestError(f'values is (?x ?y) {{ (<a> "b") … }}, not {text[:_SHOWN]!r}')
    rows = list(_rows(text, head.end(), len(names), skolemizer))
    if len(rows) > max_rows:
        raise RequestError(f"values has at most {max_rows} rows, not {len(rows)}")
    variables = [_variable(name, pattern) for name in names]
    patterns: dict[QuadPattern, None] = {}
    alike = True
    for row in rows:
        bound: dict[TermOrVariable, Term] = {}
        fits = len(row) == len(names)
        for variable, term in zip(variables, row, strict=False):
            if variable is not None and term is not None:
                fits = fits and bound.setdefault(variable, term) == term
        if fits:
            patterns[QuadPattern(*[bound.get(term, term) for term in pattern])] = None
            alike = alike and None not in row
    return tuple(patterns if alike else _disjoint(patterns))


def _variable(name: str, pattern: QuadPattern) -> TermOrVariable | None:
    return next((Variable(each) for each in (name, f"?.{name[1:]}") if each in pattern), None)


def _rows(
    text: str, position: int, width: int, skolemizer: Skolemizer
) -> Iterator[list[Term | None]]:
    row: list[Term | None] | None = None
    while True:
        mark, undefined, term, end = _word(text, position)
        if mark == "}" and row is None and end == len(text):
            return
        if mark == "(" and row is None:
            row = []
        elif mark == ")" and row is not None:
            yield row
            row = None
        elif mark is None and row is not None and len(row) < width:
            row.append(None if undefined else _term(term, skolemizer))
        else:
            raise RequestError(f"values: not expected: {text[position : position + _SHOWN]!r}")
        position = end


def _word(text: str, position: int) -> tuple[str | None, str | None, str, int]:
    """Return a bracket, UNDEF or a term, and where it ends."""
    if word := _WORD.match(text, position):
        mark, undefined, term = word.groups()
        start, depth = word.start(3), 0
        if term != "<<(":
            return mark, undefined, term, word.end()
        for piece in _IN_TRIPLE_TERM.finditer(text, start):
            depth += {"<<(": 1, ")>>": -1}.get(piece[0], 0)
            if not depth:
                return None, None, text[start : piece.end()], piece.end()
    raise RequestError(f"values: not a term: {text[position : position + _SHOWN]!r}")


def _term(text: str, skolemizer: Skolemizer) -> Term:
    try:
        if text.startswith("<<("):
            if names_blank_node(text):
                raise TermError("a blank node has no name outside its page; ask for its IRI")
            return skolemizer.restore(read_triple_term(text))
        if text[0] == "<":
            return skolemizer.restore(iri(text[1:-1]))
        lexical, language, datatype = literal_parts(text)
        return literal(lexical, language, None if language else datatype)
    except (TermError, ValueError) as error:
        raise TermSyntaxError("values", text, str(error)) from None


def _disjoint(patterns: Iterable[QuadPattern]) -> list[QuadPattern]:
    apart: list[QuadPattern] = []
    for each in patterns:
        pattern, k = each, 0
        while k < len(apart):
            if _meet(pattern, apart[k]):
                pattern = _general(pattern, apart.pop(k))
                k = 0
            else:
                k += 1
        apart.append(pattern)
    return apart


def _meet(one: QuadPattern, other: QuadPattern) -> bool:
    return all(a == b or is_variable(a) or is_variable(b) for a, b in zip(one, other, strict=True))


def _general(one: QuadPattern, other: QuadPattern) -> QuadPattern:
    return QuadPattern(*[a if is_variable(a) else b for a, b in zip(one, other, strict=True)])


_PAGING = frozenset({"page", "snapshot", "limit"})
_INSTANTS = frozenset({"at", "known"})
_KNOWN = _PAGING | _INSTANTS | {"subject", "predicate", "object", "graph", "values"}
_IN_URL = re.compile(r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})*+")
_NOT_IN_URL = re.compile(r"[^A-Za-z0-9._~:/?@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2})")
_SNAPSHOT = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_INSTANTS_IN_MICROS = range(to_micros(FIRST), to_micros(LAST) + 1)
_MAX_PAGE = 10**9
_OFTEN = 512
"""Characters of what is remembered: pages, predicates and the like come again and again."""


class FragmentRequest(NamedTuple):
    """A requested page of a fragment.

    Args:
        patterns: disjoint ones: `pattern` restricted to the rows of ``values``.
        parameters: of the URL, decoded.
        at: valid time; ``None``: now.
        known: transaction time; ``None``: now.
    """

    pattern: QuadPattern
    patterns: tuple[QuadPattern, ...]
    parameters: Mapping[str, str]
    page: int
    limit: int
    snapshot: Snapshot | None
    at: datetime | None
    known: datetime | None
    page_url: str
    fragment_url: str
    query: str

    @property
    def original_url(self) -> str:
        """The URL of the same fragment at no particular instant."""
        if _INSTANTS.isdisjoint(self.parameters):
            return self.fragment_url
        url, _, query = self.fragment_url.partition("?")
        rest = "&".join(
            [p for p in query.split("&") if _decode(p.partition("=")[0]) not in _INSTANTS]
        )
        return f"{url}?{rest}" if rest else url

    def page_link(self, page: int, snapshot: Snapshot | None) -> str:
        """Return the URL of another page of this fragment, pinned to `snapshot` if given."""
        url = self.fragment_url + ("&" if self.query else "?")
        if "limit" in self.parameters:
            url += f"limit={self.limit}&"
        url += f"page={page}"
        if snapshot is not None:
            url += f"&snapshot={snapshot.instant}.{snapshot.sequence}"
        return url


def read_request(
    url: str,
    query: str,
    reader: PatternReader,
    page_size: int,
    max_page_size: int,
    max_values: int = 0,
) -> FragmentRequest:
    """Parse the URL of a fragment's page."""
    read = _read_often if len(url) + len(query) <= _OFTEN else _read
    return read(url, query, reader, page_size, max_page_size, max_values)


def _read(
    url: str,
    query: str,
    reader: PatternReader,
    page_size: int,
    max_page_size: int,
    max_values: int,
) -> FragmentRequest:
    parameters: dict[str, str] = {}
    kept: list[str] = []
    for pair in query.split("&") if query else ():
        raw_name, _, raw_value = pair.partition("=")
        name = raw_name if raw_name in _KNOWN else _decode(raw_name)
        if name in _KNOWN:
            if name in parameters:
                raise RequestError(f"parameter {name} is given twice")
            parameters[name] = _decode(raw_value)
        if name not in _PAGING:
            kept.append(pair)
    pattern = reader.pattern(parameters)
    patterns: tuple[QuadPattern, ...] = (pattern,)
    if max_values and parameters.get("values"):
        patterns = restricted(pattern, parameters["values"], reader.skolemizer, max_values)
    remaining = "&".join(kept)
    if not _IN_URL.fullmatch(query):
        query, remaining = _iri(query), _iri(remaining)
    return FragmentRequest(
        pattern=pattern,
        patterns=patterns,
        parameters=parameters,
        page=_number(parameters, "page", 1, _MAX_PAGE),
        limit=min(_number(parameters, "limit", page_size, _MAX_PAGE), max_page_size),
        snapshot=_snapshot(parameters.get("snapshot")),
        at=_instant("at", parameters["at"]) if parameters.get("at") else None,
        known=_instant("known", parameters["known"]) if parameters.get("known") else None,
        page_url=f"{url}?{query}" if query else url,
        fragment_url=f"{url}?{remaining}" if remaining else url,
        query=remaining,
    )


_read_often = lru_cache(maxsize=512)(_read)
"""Whoever follows an answer asks for the same pages again and again."""


def _decode(raw: str) -> str:
    if "%" not in raw and "+" not in raw:
        return raw
    # Most terms hold no other escapes; what these stand for is no part of another one.
    text = raw.replace("+", " ").replace("%3A", ":").replace("%2F", "/").replace("%23", "#")
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(f"not percent-encoded UTF-8: {raw!r}") from None


def _number(parameters: dict[str, str], name: str, default: int, largest: int) -> int:
    text = parameters.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not 1 <= int(text) <= largest:
        raise RequestError(f"{name} is a number from 1, not {text!r}")
    return int(text)


_LOCAL = re.compile(r"\d{4,6}-\d\d-\d\dT\d\d:\d\d(:\d\d(?:\.\d{1,6})?)?", re.ASCII)


def _instant(name: str, text: str) -> datetime:
    without_zone = _LOCAL.fullmatch(text)
    if without_zone is not None:
        # As the inputs of browsers send it.
        text = f"{text}{'' if without_zone[1] else ':00'}Z"
    try:
        return parse_instant(text)
    except InstantError as error:
        raise RequestError(f"{name}: {error}") from None


def _snapshot(text: str | None) -> Snapshot | None:
    if text is None:
        return None
    match = _SNAPSHOT.fullmatch(text)
    if match is None or int(match[1]) not in _INSTANTS_IN_MICROS:
        raise RequestError(f"snapshot is INSTANT.SEQUENCE as in a page's links, not {text!r}")
    return Snapshot(int(match[1]), int(match[2]))


def _iri(url: str) -> str:
    return _NOT_IN_URL.sub(lambda match: quote(match.group(), safe=""), url)
