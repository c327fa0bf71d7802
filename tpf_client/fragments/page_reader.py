"""Read the quads and metadata of a page from a response."""

import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import Final, NamedTuple

try:
    import pyoxigraph as ox
except ImportError:
    # Without it, as in a browser, pages come in the formats of lines.
    HAS_PARSER = False
else:
    HAS_PARSER = True

from annotations.errors import NestingError, TermError
from annotations.labels import Fact
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.nesting import check_nesting, short_terms, without_versions
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
from tpf_client.errors import ClosedError, PageError, PageTooLargeError, ParseError
from tpf_client.fragments.blank_nodes import SKOLEM_PATH, kept_quad
from tpf_client.fragments.documentation import with_hydra_context
from tpf_client.fragments.page import PageMetadata
from tpf_client.fragments.page_description import (
    fact_labels,
    metadata_of,
    split_metadata,
    spoken_vocabulary,
    statements_of,
)

ACCEPTED_FORMATS = (
    "application/trig,application/n-quads;q=0.9,text/turtle;q=0.6,"
    "application/n-triples;q=0.5,application/ld+json;q=0.3"
    if HAS_PARSER
    else "application/n-quads,application/n-triples;q=0.5"
)

_WARNINGS: Final = 20
"""Warnings of a page at most."""
_WARNING: Final = 200
"""Characters of a warning at most."""
_BLANK: Final = re.compile(f"_:|{re.escape(SKOLEM_PATH)}")
"""What terms have that are blank nodes, or have some inside."""
_BETWEEN: Final = 1_000
"""Quads between two checks for cancellation."""
_TERM: Final = 100
"""Bytes of memory that a term takes beside its characters."""


class ReadPage(NamedTuple):
    """The content of a page."""

    facts: tuple[Fact, ...]
    metadata: PageMetadata
    warnings: tuple[str, ...]


class PageReader:
    """Parse pages to facts and metadata."""

    def __init__(self, vocabulary: Vocabulary = DEFAULT_VOCABULARY, most: float = math.inf) -> None:
        self._vocabulary = vocabulary
        self._most = most

    def read(
        self,
        body: bytes,
        media_type: str,
        url: str,
        *,
        bare: bool = False,
        over: Callable[[], bool] = lambda: False,
    ) -> ReadPage:
        """Read a page; `bare`: all of it is data; `over` is polled to stop."""
        quads = parse_page_body(body, media_type, url, self._most, over)
        data, metadata_quads = (quads, []) if bare else split_metadata(quads, url)
        if not metadata_quads and not bare:
            raise PageError(url, "the page says nothing about a fragment: no metadata, no form")
        warnings: list[str] = []
        statements = statements_of(metadata_quads)
        vocabulary = spoken_vocabulary(statements, self._vocabulary)
        graphs_kept = any(quad.graph for quad in metadata_quads)
        labels = fact_labels(data, statements, vocabulary, warnings, graphs_kept=graphs_kept)
        if _BLANK.search("\n".join(chain.from_iterable(data))):
            data = [kept_quad(quad, url) for quad in data]
        facts = tuple([tuple.__new__(Fact, pair) for pair in zip(data, labels, strict=True)])
        metadata = metadata_of(statements, vocabulary, url, warnings)
        shown = dict.fromkeys(each[:_WARNING] for each in warnings[:_WARNINGS])
        return ReadPage(facts, metadata, tuple(shown))


def essence(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def parse_page_body(
    body: bytes,
    media_type: str,
    url: str,
    most: float = math.inf,
    over: Callable[[], bool] = lambda: False,
) -> list[Quad]:
    """Parse a decompressed body, with the document's blank nodes."""
    kind = essence(media_type)
    quads: list[Quad] = []
    size = 0
    try:
        for batch in (_parsed if HAS_PARSER else _parsed_lines)(body, kind, url, most):
            size += sum(map(quad_size, batch))
            if size > most:
                # A prefix may stand for much.
                raise PageTooLargeError(url, f"a page that takes more than {most} bytes of memory")
            quads += batch
            if over():
                raise ClosedError(f"{url}: the request was cancelled")
    except NestingError as error:
        raise ParseError(url, f"{kind} that is not read: {error}") from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ParseError(url, f"malformed {kind}: {reason}") from error
    return quads


def _parsed_lines(body: bytes, kind: str, url: str, _most: float) -> Iterator[list[Quad]]:
    if kind not in LINE_FORMATS:
        reason = f"answered with {kind or 'no media type'} instead of N-Quads or N-Triples"
        raise ParseError(url, reason)
    quads = quads_of_lines(body, triples=kind != LINE_FORMATS[0])
    return iter(lambda: list(islice(quads, _BETWEEN)), [])


def _parsed(body: bytes, kind: str, url: str, most: float) -> Iterator[list[Quad]]:
    rdf_format = ox.RdfFormat.from_media_type(kind) if kind else None
    if rdf_format is None:
        raise ParseError(url, f"answered with {kind or 'no media type'} instead of RDF")
    if rdf_format == ox.RdfFormat.JSON_LD:
        body = with_hydra_context(body)
    return quads_of_body(body, rdf_format, url, most)


def quads_of_body(
    body: bytes, rdf_format: "ox.RdfFormat", url: str, most: float = math.inf
) -> Iterator[list[Quad]]:
    """Parse a body with pyoxigraph, in batches, each of which takes a small part of `most`."""
    body = without_versions(body.removeprefix(BOM_UTF8), rdf_format.media_type)
    check_nesting((body,), rdf_format.media_type, base=url)
    parsed = short_terms(ox.parse(body, rdf_format, base_iri=url), body)
    # Declarations may make each term as long as the body.
    count = max(1, int(min(_BETWEEN, most / (40 * len(body) + 1))))
    while text := ox.serialize(islice(parsed, count), format=ox.RdfFormat.N_QUADS):
        yield [_quad_of_line(line) for line in text.decode().split("\n")[:-1]]


def _quad_of_line(line: str) -> Quad:
    subject, predicate, rest = line.split(" ", 2)
    object_ = rest[:-2]
    end = object_.rfind(" ")
    if end < 0 or object_.rfind('"' if object_[0] == '"' else ")>>") > end:
        return tuple.__new__(Quad, (subject, predicate, object_, DEFAULT_GRAPH))
    return tuple.__new__(Quad, (subject, predicate, object_[:end], object_[end + 1 :]))


def quad_size(quad: Quad) -> int:
    """Bytes of memory that a quad takes."""
    return len(quad[0]) + len(quad[1]) + len(quad[2]) + 3 * _TERM


# N-Quads and N-Triples, read line by line as pyoxigraph does, for browsers.

LINE_FORMATS: Final = ("application/n-quads", "application/n-triples")
"""Media types that are read here."""

_NUMBERED: Final = r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_IRI: Final = rf'<(?:[^<>"{{}}|^`\\\x00-\x20]++|{_NUMBERED})*+>'
_BLANK_NODE: Final = r"_:(?:[^\x00-\x20<>\".]++|\.++(?=[^\x00-\x20<>\".]))++"
_ESCAPE: Final = rf"""\\[tbnrf"'\\]|{_NUMBERED}"""
_SUFFIX: Final = rf"@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--(?:ltr|rtl))?|\^\^{_IRI}"
_LITERAL: Final = rf'"(?:[^"\\\n\r]++|{_ESCAPE})*+"(?:{_SUFFIX})?'
_LINE: Final = re.compile(
    rf"[ \t]*+({_IRI}|{_BLANK_NODE})[ \t]*+({_IRI})"
    rf"[ \t]*+({_IRI}|{_BLANK_NODE}|{_LITERAL}|<<\(.*\)>>)"
    rf"[ \t]*+({_IRI}|{_BLANK_NODE})?[ \t]*+\.[ \t]*+(?:#.*)?"
)
_NOTHING: Final = re.compile(r'[ \t]*+(?:VERSION[ \t]*+"[^"\\]*+"[ \t]*+)?(?:#.*)?')
_LONGEST: Final = 2**12
"""Characters of a line that is remembered."""
_KEPT: Final = 2**14
"""Lines that are remembered."""


def quads_of_lines(body: bytes, *, triples: bool) -> Iterator[Quad]:
    """Yield the quads of a document; `triples`: lines have no graph."""
    for number, text in enumerate(re.split(r"\r\n?|\n", body.decode("utf-8-sig"))):
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
