"""Pages that are read again: only lines that are new are parsed.

Servers write many pages so that each line is whole: a statement, a directive, or the beginning or
end of a graph. What such a line says depends on nothing but itself, the directives before it and
the graph around it; so where the page before had the same line there, it is known. So is a new line
of three plain words that the page before had: of many facts that got the same new value, that value
is parsed. Pages of another shape are parsed as a whole.
"""

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.namespaces import RDF
from annotations.nesting import check_nesting
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.bodies import quad_of, quad_size
from tpf_client.fragments.parts import metadata_graphs

TYPES: Final = ("application/trig", "text/turtle")
"""The media types of pages that may be read like this."""
_DIRECTIVES: Final = (b"@prefix ", b"@base ", b"PREFIX ", b"BASE ")
_STATEMENTS: Final = (b"<", b"_:")
# No page can know it, so none can say that a quad of its own comes from another line.
_NAME: Final = f"urn:line:{secrets.token_hex(8)}:"
_WRAPPED: Final = b"<" + _NAME.encode() + b"%d>{%b}\n"
_OPENED: Final = b"<urn:g> <urn:g> %b."
_PLAIN: Final = re.compile(
    rb'(<[^<>"\\\s]*>) (<[^<>"\\\s]*>|[A-Za-z]\w*:\w+|a) '
    rb'(<[^<>"\\\s]*>|"[^"\\]*"(?:@[A-Za-z0-9-]+|\^\^(?:<[^<>"\\\s]*>|[A-Za-z]\w*:\w+))?) \.'
)
"""A statement of three words, of which none says more or less for what is beside it."""
_PLACES: Final = ("subject", "predicate", "object")
_COMPLETE: Final = (b"<", b'"')
"""What may be an object is written without a prefix."""
_SKOLEM: Final = b"/.well-known/"
_WORD: Final = b"<urn:w> <urn:w> %b ."
_WORDS: Final = 6
"""So many words are known for each line at most: those of it and of a line before."""
_TYPE: Final = Term(f"<{RDF}type>")
_COMING: Final = Term("")


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


@dataclass(slots=True)
class Scope:
    """What stands under the same directives in the same graph.

    Args:
        lines: what lines say, by text.
        words: terms by how they are written in plain statements; learned when they are wanted.
    """

    lines: dict[bytes, SaidLine] = field(default_factory=dict)
    words: dict[bytes, Term] = field(default_factory=dict)

    def learned(self) -> dict[bytes, Term]:
        """The words, and those of the plain statements where there are none or too many."""
        if self.words and len(self.words) <= _WORDS * len(self.lines):
            return self.words
        words: dict[bytes, Term] = {b"a": _TYPE}
        for text, said in self.lines.items():
            plain = _PLAIN.fullmatch(text)
            if plain is not None and len(said.quads) == 1:
                words.update(zip(plain.groups(), said.quads[0][:3], strict=True))
        return words


KnownLines: TypeAlias = Mapping[bytes, Scope]
"""What lines say: by the directives before them and what opens their graph."""

_NOTHING: Final = Scope()


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
    scope: Scope
    lines: list[SaidLine]


class _New(NamedTuple):
    """A line or a word that is to be parsed, and what it says then."""

    block: _Block
    text: bytes
    said: SaidLine


_Plain: TypeAlias = tuple[_Block, bytes, Sequence[bytes], SaidLine]
"""A statement of which the words are known, or will be, and what it says then."""


def _plain_words(line: bytes, known: Mapping[bytes, Term]) -> Sequence[bytes]:
    """The three words of a plain statement; none: it is something else."""
    if line.endswith(b" ."):
        words = line[:-2].split(b" ", 2)
        if len(words) == len(_PLACES) and all(map(known.__contains__, words)):
            # Each was plain before; whether it may stand where it does, tells how it begins.
            _, predicate, object_ = words
            if not predicate.startswith(b'"') and object_.startswith(_COMPLETE):
                return words
    match = _PLAIN.fullmatch(line)
    return () if match is None else match.groups()


def _say(plain: Sequence[_Plain]) -> int:
    """Note down what statements say whose words are known, and how much memory that takes."""
    made = tuple.__new__
    last: _Block | None = None
    graph, size = DEFAULT_GRAPH, 0
    known: Mapping[bytes, Term] = {}
    for block, text, words, said in plain:
        if block is not last:
            graph, known, last = _graph(block), block.scope.words, block
        subject, predicate, object_ = words
        quad = made(Quad, (known[subject], known[predicate], known[object_], graph))
        said.quads = (quad,)
        said.size = quad_size(quad)
        size += said.size
        if not graph and _SKOLEM not in text:
            # Nothing in it is a blank node, so that it is kept as it came.
            said.kept = said.quads
    return size


def _key(opening: bytes) -> bytes:
    """Under which what opens a graph is kept beside the lines in it, none of which is like it."""
    return b"\n" + opening


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
    plain: list[_Plain] = []
    scopes: dict[bytes, Scope] = {}
    directives = opening = b""
    block: _Block | None = None
    old = _NOTHING
    for line in body.split(b"\n"):
        if block is not None:
            known = old.lines.get(line)
            if known is not None and line not in block.scope.lines:
                block.scope.lines[line] = known
                block.lines.append(known)
                continue
        if line.startswith(_STATEMENTS):
            if not line.endswith(b"."):
                if opening or not line.endswith(b" {"):
                    return None
                opening, block = line, None
                continue
            if block is None:
                place = directives + b"\n" + opening
                old = before.get(place, _NOTHING)
                block = _Block(opening, scopes.setdefault(place, Scope()), [])
                blocks.append(block)
                key = _key(opening)
                if opening and key not in block.scope.lines:
                    said = block.scope.lines[key] = old.lines.get(key) or SaidLine((), 0)
                    if not said.quads:
                        document.append(_WRAPPED % (len(new), _OPENED % opening[:-1]))
                        new.append(_New(block, key, said))
            known = block.scope.lines.get(line)
            if known is None and line in old.lines:
                known = block.scope.lines[line] = old.lines[line]
            elif known is None:
                known = block.scope.lines[line] = SaidLine((), 0)
                words: Sequence[bytes] = ()
                scope = block.scope
                if old.lines:
                    scope.words = scope.words or old.learned().copy()
                    words = _plain_words(line, scope.words)
                if words:
                    plain.append((block, line, words, known))
                else:
                    document.append(_WRAPPED % (len(new), line))
                    new.append(_New(block, line, known))
                for word in words:
                    if word not in scope.words:
                        scope.words[word] = _COMING
                        document.append(_WRAPPED % (len(new), _WORD % word))
                        new.append(_New(block, word, SaidLine((), 0)))
            elif b"[" in line:
                # Each time another blank node.
                return None
            block.lines.append(known)
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
    if _say(plain) > most:
        return None
    return Lines(scopes, [(_graph(block), block.lines) for block in blocks], len(new))


def _graph(block: _Block) -> Term:
    """The graph of a block, once that is parsed."""
    if not block.opening:
        return DEFAULT_GRAPH
    return block.scope.lines[_key(block.opening)].quads[0].object


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
                block, text, line = new[place]
                line.quads = said[place]
                graph = DEFAULT_GRAPH
                if block.opening and text != _key(block.opening):
                    graph = _graph(block)
            quad = quad_of(parsed, graph)
            size += quad_size(quad)
            if size > most:
                return False
            said[place].append(quad)
    except (NestingError, SyntaxError, ValueError, IndexError):
        # Whoever parses the page as a whole says what is wrong.
        return False
    for (block, text, line), quads in zip(new, said, strict=True):
        if not quads or (block.opening and text == _key(block.opening) and len(quads) > 1):
            return False
        line.size = sum(map(quad_size, quads))
        if text in block.scope.words:
            block.scope.words[text] = quads[0].object
    return True
