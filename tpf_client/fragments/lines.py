"""Pages that are read again: only lines that are new are parsed.

Servers write many pages so that each line is whole: a statement, a directive, or the beginning or
end of a graph. What such a line says depends on nothing but itself, the directives before it and
the graph around it; so where the page before had the same line there, it is known. Pages of another
shape are parsed as a whole.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.nesting import check_nesting
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.bodies import quad_of, size_of
from tpf_client.fragments.parts import metadata_graphs

TYPES: Final = ("application/trig", "text/turtle")
"""The media types of pages that may be read like this."""
_DIRECTIVES: Final = (b"@prefix ", b"@base ", b"PREFIX ", b"BASE ")
_STATEMENTS: Final = (b"<", b"_:")
# No page can know it, so none can say that a quad of its own comes from another line.
_NAME: Final = f"urn:line:{secrets.token_hex(8)}:"
_WRAPPED: Final = b"<" + _NAME.encode() + b"%d>{%b}\n"
_OPENED: Final = b"<urn:g> <urn:g> %b."


@dataclass(slots=True)
class SaidLine:
    """What a line says.

    Args:
        quads: in the graph that it stands in; a line that opens a graph has one with its name as
            the object.
        size: bytes of memory that they take.
        kept: the quads as we keep them, once somebody wanted that.
    """

    quads: Sequence[Quad]
    size: int
    kept: Sequence[Quad] | None = None

    def of_page(self, url: str) -> Sequence[Quad]:
        """The quads as we keep them, read from the page of this URL."""
        if self.kept is None:
            self.kept = [kept_quad(quad, url) for quad in self.quads]
        return self.kept


KnownLines: TypeAlias = Mapping[bytes, Mapping[bytes, SaidLine]]
"""What lines say: by the directives before them and what opens their graph, and by text."""

_COMING: Final = SaidLine((), 0)


@dataclass(frozen=True, slots=True)
class Lines:
    """What a page says, by its lines.

    Args:
        known: what each of its lines says.
        blocks: graphs in their order, each with lines in it; a graph may come several times.
        parsed: how many lines were parsed.
    """

    known: KnownLines
    blocks: Sequence[tuple[Term, Sequence[SaidLine]]]
    parsed: int

    def split(self) -> tuple[list[SaidLine], list[Quad]] | None:
        """The lines of data and the quads of metadata; ``None``: they are in one graph."""
        graphs = metadata_graphs(
            quad for graph, lines in self.blocks if graph for line in lines for quad in line.quads
        )
        if not graphs:
            return None
        data = [line for graph, lines in self.blocks if graph not in graphs for line in lines]
        about = [
            quad
            for graph, lines in self.blocks
            if graph in graphs
            for line in lines
            for quad in line.quads
        ]
        return data, about

    def quads(self) -> list[Quad]:
        """All quads, in their order."""
        return [quad for _, lines in self.blocks for line in lines for quad in line.quads]

    def size(self) -> int:
        """Bytes of memory that they take."""
        return sum([line.size for _, lines in self.blocks for line in lines])


class _Block(NamedTuple):
    """Lines that stand together in one graph."""

    opening: bytes
    known: dict[bytes, SaidLine]
    lines: list[bytes]


class _New(NamedTuple):
    """A line that is to be parsed, and where it is noted down."""

    block: _Block
    text: bytes


def read_lines(body: bytes, url: str, before: KnownLines, most: float = math.inf) -> Lines | None:
    """What a page in TriG or Turtle says.

    Args:
        body: the page.
        url: base for relative IRIs.
        before: what the lines of the page before said; empty where there is none.
        most: bytes of memory that the quads may take.

    Returns:
        ``None``: a line of the page is not whole, or is malformed, or they take too much.
    """
    blocks: list[_Block] = []
    document: list[bytes] = []
    new: list[_New] = []
    scopes: dict[bytes, dict[bytes, SaidLine]] = {}
    directives = opening = b""
    block: _Block | None = None
    old: Mapping[bytes, SaidLine] = {}
    for line in body.split(b"\n"):
        if line.startswith(_STATEMENTS):
            if not line.endswith(b"."):
                if opening or not line.endswith(b" {"):
                    return None
                opening, block = line, None
                continue
            if block is None:
                scope = directives + b"\n" + opening
                block = _Block(opening, scopes.setdefault(scope, {}), [])
                blocks.append(block)
                old = before.get(scope, {})
                if opening and opening not in block.known:
                    block.known[opening] = old.get(opening, _COMING)
                    if block.known[opening] is _COMING:
                        document.append(_WRAPPED % (len(new), _OPENED % opening[:-1]))
                        new.append(_New(block, opening))
            block.lines.append(line)
            if line not in block.known:
                known = block.known[line] = old.get(line, _COMING)
                if known is _COMING:
                    document.append(_WRAPPED % (len(new), line))
                    new.append(_New(block, line))
            elif b"[" in line:
                # Each time another blank node.
                return None
        elif line == b"}" and opening:
            opening, block = b"", None
        elif line.startswith(_DIRECTIVES) and not opening:
            directives += line + b"\n"
            document.append(line + b"\n")
            block = None
        elif line:
            return None
    if opening or not _parse(b"".join(document), url, new, most):
        return None
    return Lines(
        scopes,
        [(_graph(block), [block.known[line] for line in block.lines]) for block in blocks],
        len(new),
    )


def _graph(block: _Block) -> Term:
    return block.known[block.opening].quads[0].object if block.opening else DEFAULT_GRAPH


def _parse(document: bytes, url: str, new: Sequence[_New], most: float) -> bool:
    """Parse what is new and note down what each line says; whether each is whole and well formed.

    The document holds each line in a graph with the line's number as its name.
    """
    if not new:
        return True
    said: list[list[Quad]] = [[] for _ in new]
    current: object = None
    place, size = -1, 0
    graph = DEFAULT_GRAPH
    try:
        check_nesting((document,), "application/trig")
        for parsed in ox.parse(document, ox.RdfFormat.TRIG, base_iri=url):
            if parsed.graph_name != current:
                current = parsed.graph_name
                if not isinstance(current, ox.NamedNode) or not current.value.startswith(_NAME):
                    return False
                place = int(current.value[len(_NAME) :])
                block, text = new[place]
                graph = DEFAULT_GRAPH if text is block.opening else _graph(block)
                block.known[text] = SaidLine(said[place], 0)
            quad = quad_of(parsed, graph)
            size += size_of(quad)
            if size > most:
                return False
            said[place].append(quad)
    except (NestingError, SyntaxError, ValueError, IndexError):
        # Whoever parses the page as a whole says what is wrong.
        return False
    for (block, text), quads in zip(new, said, strict=True):
        if not quads or (text is block.opening and len(quads) > 1):
            return False
        block.known[text] = SaidLine(quads, sum(map(size_of, quads)))
    return True
