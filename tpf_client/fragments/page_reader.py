"""Read the quads and metadata of a page from a response.

Where each line is a whole statement, only new lines are parsed, all together.
"""

import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

try:
    import pyoxigraph as ox
except ImportError:
    # Without it, as in a browser, pages come in the formats of lines.
    HAS_PARSER = False
else:
    HAS_PARSER = True

from annotations.errors import NestingError
from annotations.labels import Fact
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_TYPE, Vocabulary
from annotations.nesting import check_nesting, short_terms
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.errors import ClosedError, PageError, PageTooLargeError, ParseError
from tpf_client.fragments.blank_nodes import SKOLEM_PATH, kept_quad
from tpf_client.fragments.documentation import with_hydra_context
from tpf_client.fragments.line_formats import LINE_FORMATS, quads_of_lines
from tpf_client.fragments.page import LineMemo, PageMetadata, ParsedLine, Scope
from tpf_client.fragments.page_description import (
    fact_labels,
    metadata_graphs,
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

_BY_LINES: Final = ("application/trig", "text/turtle")
"""Media types of pages that may be read line by line."""
_WARNINGS: Final = 20
"""Warnings of a page at most."""
_WARNING: Final = 200
"""Characters of a warning at most."""
_BETWEEN: Final = 1_000
"""Quads between two checks for cancellation."""
_TERM: Final = 100
"""Bytes of memory that a term takes beside its characters."""


class ReadPage(NamedTuple):
    """The content of a page."""

    facts: tuple[Fact, ...]
    metadata: PageMetadata
    warnings: tuple[str, ...]
    memo: LineMemo | None


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
        before: LineMemo | None = None,
        over: Callable[[], bool] = lambda: False,
    ) -> ReadPage:
        """Read a page; `before` are its lines at the last reading.

        `bare`: all of it is data; `over` is polled to stop.
        """
        lines = None
        if HAS_PARSER and before is not None and not bare and essence(media_type) in _BY_LINES:
            lines = read_lines(body, url, before, self._most)
        graphs = set() if lines is None else metadata_graphs(lines.named(), url)
        if lines is not None and graphs:
            data, kept, metadata_quads = lines.split(graphs, url)
        else:
            quads = (
                lines.quads() if lines else parse_page_body(body, media_type, url, self._most, over)
            )
            data, metadata_quads = (quads, []) if bare else split_metadata(quads, url)
            kept = [kept_quad(quad, url) for quad in data]
        if not metadata_quads and not bare:
            raise PageError(url, "the page says nothing about a fragment: no metadata, no form")
        warnings: list[str] = []
        statements = statements_of(metadata_quads)
        vocabulary = spoken_vocabulary(statements, self._vocabulary)
        graphs_kept = bool(graphs) or any(quad.graph for quad in metadata_quads)
        labels = fact_labels(data, statements, vocabulary, warnings, graphs_kept=graphs_kept)
        made = tuple.__new__
        facts = tuple([made(Fact, pair) for pair in zip(kept, labels, strict=True)])
        metadata = metadata_of(statements, vocabulary, url, warnings)
        shown = dict.fromkeys(each[:_WARNING] for each in warnings[:_WARNINGS])
        memo = LineMemo() if before is None else None if lines is None else LineMemo(lines.scopes)
        return ReadPage(facts, metadata, tuple(shown), memo)


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


_STATEMENT: Final = (b"<", b"_:")
"""Starts of lines that are statements, or open a graph."""
_DIRECTIVE: Final = (b"@prefix ", b"@base ", b"PREFIX ", b"BASE ")
_IRI: Final = rb'<[^<>"\\\s]*>'
_LITERAL: Final = rb'"[^"\\]*"(?:@[A-Za-z0-9-]+|\^\^(?:%b|[A-Za-z]\w*:\w+))?' % _IRI
_PLAIN: Final = re.compile(
    rb"(%b) (%b|[A-Za-z]\w*:\w+|a) (%b|%b) \." % (_IRI, _IRI, _IRI, _LITERAL)
)
"""A statement of three words, each of which means the same in all statements of its scope."""
_TYPE: Final = b"a"
_WORDS: Final = 6
"""Words that are kept for each line of a scope at most: its own and those of an earlier line."""
_ONE_OBJECT: Final = b"<urn:x> <urn:x> %b ."
# The name is random, so that no page can write a quad into the graph of another line.
_NAME: Final = f"<urn:line:{secrets.token_hex(8)}:"
_NUMBERED: Final = _NAME.encode() + b"%d>{%b}\n"


class LineBlock(NamedTuple):
    """Consecutive lines in one graph."""

    scope: Scope
    lines: list[ParsedLine]


class Lines(NamedTuple):
    """The lines of a page by scope, and in order.

    `parsed` counts lines and words.
    """

    scopes: dict[tuple[bytes, bytes], Scope]
    blocks: list[LineBlock]
    parsed: int

    def quads(self) -> list[Quad]:
        return [quad for block in self.blocks for line in block.lines for quad in line.quads]

    def named(self) -> Iterable[Quad]:
        return (
            quad
            for scope, lines in self.blocks
            if scope.graph
            for line in lines
            for quad in line.quads
        )

    def split(self, graphs: set[Term], url: str) -> tuple[list[Quad], list[Quad], list[Quad]]:
        """Return data as written, data with our blank nodes, and metadata."""
        described = [block.scope.graph in graphs for block in self.blocks]
        data = [line for block, is_about in zip(self.blocks, described, strict=True) if not is_about
                for line in block.lines]  # fmt: skip
        return (
            [quad for line in data for quad in line.quads],
            [quad for line in data for quad in line.kept or line.of_page(url)],
            [quad for block, is_about in zip(self.blocks, described, strict=True) if is_about
             for line in block.lines for quad in line.quads],
        )  # fmt: skip


class _NewLines:
    """Lines and words to be parsed together, each in a numbered graph."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._document: list[bytes] = []
        self._lines: list[tuple[Scope, ParsedLine | None, bytes]] = []
        self._plain: list[tuple[Scope, ParsedLine, Sequence[bytes]]] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add_directive(self, text: bytes) -> None:
        self._document.append(text + b"\n")

    def add_graph(self, scope: Scope, name: bytes) -> None:
        self._add(scope, None, b"", _ONE_OBJECT % name)

    def add_line(self, scope: Scope, line: ParsedLine, text: bytes) -> None:
        plain = _PLAIN.fullmatch(text)
        if plain is None:
            self._add(scope, line, b"", text)
            return
        words = plain.groups()
        self._plain.append((scope, line, words))
        for word in words:
            if word not in scope.words:
                scope.words[word] = RDF_TYPE
                if word != _TYPE:
                    self._add(scope, None, word, _ONE_OBJECT % word)

    def _add(self, scope: Scope, line: ParsedLine | None, word: bytes, statement: bytes) -> None:
        self._document.append(_NUMBERED % (len(self._lines), statement))
        self._lines.append((scope, line, word))

    def parse(self, most: float) -> bool:
        """Parse all; false if a line is not whole or malformed, or memory is exceeded."""
        parsed: list[list[Quad]] = [[] for _ in self._lines]
        quads: list[Quad] = []
        current, graph, size = "", DEFAULT_GRAPH, 0
        try:
            document = b"".join(self._document)
            batches = quads_of_body(document, ox.RdfFormat.TRIG, self._url, most)
            for quad in chain.from_iterable(batches):
                if quad.graph != current or not quads:
                    current = quad.graph
                    if not current.startswith(_NAME):
                        return False
                    number = int(current[len(_NAME) : -1])
                    quads = parsed[number]
                    graph = self._lines[number][0].graph or DEFAULT_GRAPH
                read = quad._replace(graph=graph)
                scope, line, word = self._lines[number]
                # Words count as in a line: all together take no more than the lines.
                size += len(read[2]) + _TERM if word else quad_size(read)
                if size > most:
                    return False
                quads.append(read)
                if word:
                    scope.words[word] = read.object
                elif line is None:
                    scope.graph = read.object
        except (NestingError, SyntaxError, ValueError, IndexError):
            # Parsing the page as a whole gives the error.
            return False
        for (_, line, _), quads in zip(self._lines, parsed, strict=True):
            if not quads or (line is None and len(quads) > 1):
                return False
            if line is not None:
                line.quads, line.size = quads, sum(map(quad_size, quads))
        return True

    def put_together(self) -> None:
        made = tuple.__new__
        for scope, line, (subject, predicate, object_) in self._plain:
            words = scope.words
            terms = words[subject], words[predicate], words[object_], scope.graph
            quad = made(Quad, terms)
            line.quads = (quad,)
            line.size = quad_size(quad)
            if not scope.graph and SKOLEM_PATH not in terms[0] and SKOLEM_PATH not in terms[2]:
                line.kept = line.quads


def read_lines(body: bytes, url: str, before: LineMemo, most: float = math.inf) -> Lines | None:
    """Read a page in TriG or Turtle line by line, given its lines at the last reading."""
    lines = Lines({}, [], 0)
    new = _NewLines(url)
    directives = opening = b""
    block: LineBlock | None = None
    old: Mapping[bytes, ParsedLine] = {}
    for text in body.split(b"\n"):
        if block is not None:
            line = old.get(text)
            if line is not None and text not in block.scope.lines:
                block.scope.lines[text] = line
                block.lines.append(line)
                continue
        if text.startswith(_STATEMENT):
            if not text.endswith(b"."):
                if opening or not text.endswith(b" {"):
                    return None
                opening, block = text, None
                continue
            if block is None:
                key = directives, opening
                previous = before.scopes.get(key)
                old = {} if previous is None else previous.lines
                scope = lines.scopes.get(key)
                if scope is None:
                    scope = lines.scopes[key] = _next_scope(previous, opening)
                    if scope.graph is None:
                        new.add_graph(scope, opening[:-2])
                block = LineBlock(scope, [])
                lines.blocks.append(block)
            present = block.scope.lines
            if text not in present:
                line = old.get(text)
                if line is None:
                    line = ParsedLine()
                    new.add_line(block.scope, line, text)
                present[text] = line
            elif b"[" in text:
                # It has another blank node each time.
                return None
            block.lines.append(present[text])
        elif text == b"}" and opening:
            opening, block = b"", None
        elif text.startswith(_DIRECTIVE) and not opening:
            directives += text + b"\n"
            new.add_directive(text)
            block = None
        elif text:
            return None
    # Directives were parsed before where there were lines after them.
    skipped = not len(new) and any(each.startswith(directives) for each, _ in before.scopes)
    if opening or not (skipped or new.parse(most)):
        return None
    new.put_together()
    # Lines of before count as well: no page grows beyond the limit.
    if sum([line.size for block in lines.blocks for line in block.lines]) > most:
        return None
    return lines._replace(parsed=len(new))


def _next_scope(previous: Scope | None, opening: bytes) -> Scope:
    if previous is None:
        return Scope(None if opening else DEFAULT_GRAPH)
    few = len(previous.words) <= _WORDS * len(previous.lines)
    return Scope(previous.graph, words=dict(previous.words) if few else {})
