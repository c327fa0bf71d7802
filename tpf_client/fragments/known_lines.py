"""What is remembered of the lines of a page, for the next time that it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.parts import metadata_graphs


class LiteralFrame(NamedTuple):
    """Where the only literal of a line stands: where another one stands there, it is known.

    Args:
        start: how long the line is up to its text, the first quote included.
        tail: what comes after its text, from the second quote on.
        place: which of the line's quads has it as the object.
        suffix: what comes after its text in the term.
    """

    start: int
    tail: bytes
    place: int
    suffix: str


NO_FRAME: Final = LiteralFrame(0, b"", -1, "")
"""That of a line that is not like that."""


@dataclass(slots=True)
class SaidLine:
    """What a line says.

    Args:
        quads: in the graph that it stands in; a line that opens a graph has one with its name as
            the object.
        size: bytes of memory that they take.
        kept: the quads as we keep them, once somebody wanted that.
        frame: of its literal, once somebody wanted that.
    """

    quads: Sequence[Quad]
    size: int
    kept: Sequence[Quad] | None = None
    frame: LiteralFrame | None = None

    def of_page(self, url: str) -> Sequence[Quad]:
        """The quads as we keep them, read from the page of this URL."""
        kept = self.kept
        if kept is None:
            kept = [kept_quad(quad, url) for quad in self.quads]
            # Most have no blank nodes, and are there once then.
            kept = self.kept = self.quads if kept == list(self.quads) else kept
        return kept


@dataclass(slots=True)
class Scope:
    """What stands under the same directives in the same graph.

    Args:
        lines: what lines say, by text.
        words: terms by how they are written in plain statements; learned when they are wanted.
    """

    lines: dict[bytes, SaidLine] = field(default_factory=dict)
    words: dict[bytes, Term] = field(default_factory=dict)


class LineBlock(NamedTuple):
    """Lines that stand together in one graph.

    Args:
        start: the first of them.
        directives: all before them.
        opening: what opens their graph; empty: the default graph.
        scope: what is said under those directives in that graph.
    """

    start: int
    directives: bytes
    opening: bytes
    scope: Scope

    @property
    def place(self) -> bytes:
        """What tells the scope from others."""
        return self.directives + b"\n" + self.opening

    @property
    def key(self) -> bytes:
        """Under which the opening is among the lines of its scope, none of which is like it."""
        return b"\n" + self.opening

    @property
    def graph(self) -> Term:
        """The graph, once its name was parsed."""
        return self.scope.lines[self.key].quads[0].object if self.opening else DEFAULT_GRAPH


@dataclass(slots=True)
class KnownLines:
    """The lines of a page, and what they say.

    Args:
        texts: the lines.
        said: what each says; ``None``: a directive, the beginning or end of a graph, or nothing.
        blocks: those that stand together.
        graphs: those that hold the metadata, once somebody wanted to know.
        filed: whether the scopes of the blocks have their lines.
        size: bytes of memory that the quads of all lines take, were they there once for each.
    """

    texts: Sequence[bytes] = ()
    said: Sequence[SaidLine | None] = ()
    blocks: Sequence[LineBlock] = ()
    graphs: frozenset[Term] | None = None
    filed: bool = True
    size: int = 0

    def parts(self) -> Iterator[tuple[LineBlock, slice]]:
        """The blocks in their order, and where their lines are."""
        ends = [*[block.start for block in self.blocks[1:]], len(self.texts)]
        for block, end in zip(self.blocks, ends, strict=False):
            yield block, slice(block.start, end)

    def graph_lines(self) -> Iterator[tuple[Term, Iterator[SaidLine]]]:
        """The graphs in their order, each with lines in it; a graph may come several times."""
        for block, part in self.parts():
            yield block.graph, filter(None, self.said[part])

    def scopes(self) -> dict[bytes, Scope]:
        """What lines say, by the directives before them and what opens their graph."""
        if not self.filed:
            for block, part in self.parts():
                for text, said in zip(self.texts[part], self.said[part], strict=True):
                    if said is not None:
                        block.scope.lines[text] = said
            self.filed = True
        return {block.place: block.scope for block in self.blocks}


@dataclass(frozen=True, slots=True)
class Lines:
    """What a page says, by its lines.

    Args:
        known: what each of its lines says.
        parsed: how many lines were parsed.
        changes: what lines of named graphs said before and say now, where all lines are where they
            were, and say the same predicates of the same subjects; ``None``: nobody knows.
    """

    known: KnownLines
    parsed: int
    changes: Sequence[tuple[SaidLine, SaidLine]] | None = None

    def split(self, url: str) -> tuple[list[SaidLine], list[SaidLine]] | None:
        """The lines of data and those of metadata; ``None``: they are in one graph.

        Args:
            url: where the page was read.
        """
        known = self.known
        if known.graphs is None:
            known.graphs = frozenset(
                metadata_graphs(
                    (
                        quad
                        for graph, lines in known.graph_lines()
                        if graph
                        for line in lines
                        for quad in line.quads
                    ),
                    url,
                )
            )
        graphs = known.graphs
        if not graphs:
            return None
        data: list[SaidLine] = []
        about: list[SaidLine] = []
        for graph, lines in known.graph_lines():
            (about if graph in graphs else data).extend(lines)
        return data, about

    def quads(self) -> list[Quad]:
        """All quads, in their order."""
        return [quad for line in self.known.said if line is not None for quad in line.quads]
