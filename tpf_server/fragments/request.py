"""What a client asks for: a pattern, a page, a snapshot, and the URLs that these are known under.

The page is called what the client called it, byte for byte, because clients look its metadata up
under the URL that they asked for. The fragment is that URL without what selects a page.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from annotations.errors import InstantError
from annotations.instants import parse_instant
from annotations.terms import QuadPattern
from tpf_server.errors import RequestError
from tpf_server.fragments.bindings import restricted
from tpf_server.fragments.pattern import PatternReader
from tpf_server.store.protocols import Snapshot

_PAGING = frozenset({"page", "snapshot", "limit"})
_INSTANTS = frozenset({"at", "known"})
_KNOWN = _PAGING | _INSTANTS | {"subject", "predicate", "object", "graph", "values"}
_NOT_IN_URL = re.compile(r"[^A-Za-z0-9._~:/?@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2})")
_SNAPSHOT = re.compile(r"(\d{1,18})\.(\d{1,18})")
_MAX_PAGE = 10**9
_OFTEN = 512
"""Characters of what is remembered: pages, predicates and the like come again and again."""


class FragmentRequest(NamedTuple):
    """A page of a fragment, as it was asked for.

    Args:
        pattern: which quads.
        patterns: the same, restricted to the rows of ``values``: disjoint patterns.
        parameters: the parameters of the URL, decoded.
        page: number of the page, from 1.
        limit: quads per page.
        snapshot: the state of the live facts that the URL pins, if any.
        at: the instant whose facts are asked for; ``None``: now.
        known: the instant whose knowledge is asked for; ``None``: now.
        page_url: the requested URL.
        fragment_url: the URL without page, snapshot and limit.
        query: what remains in the query string of `fragment_url`.
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
        """The URL of another page of this fragment, pinned to `snapshot` if given."""
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
    """Read the URL of a fragment's page.

    Args:
        url: absolute, without the query string.
        query: the raw query string.
        reader: reads the terms.
        page_size: quads per page where the client does not say.
        max_page_size: the most quads per page that a client gets.
        max_values: the most rows of ``values``; 0: the parameter is not known.

    Raises:
        RequestError: a malformed term, page, limit, snapshot or instant, or a parameter given
            twice.
    """
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
        name = _decode(raw_name)
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
    if _NOT_IN_URL.search(query):
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


def _instant(name: str, text: str) -> datetime:
    try:
        return parse_instant(text)
    except InstantError as error:
        raise RequestError(f"{name}: {error}") from None


def _snapshot(text: str | None) -> Snapshot | None:
    if text is None:
        return None
    match = _SNAPSHOT.fullmatch(text)
    if match is None:
        raise RequestError(f"snapshot is INSTANT.SEQUENCE as in a page's links, not {text!r}")
    return Snapshot(int(match[1]), int(match[2]))


def _iri(url: str) -> str:
    """The URL, with what no URL may hold percent-encoded (a client should have done it)."""
    return _NOT_IN_URL.sub(lambda found: quote(found.group(), safe=""), url)
