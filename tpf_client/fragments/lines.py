"""Pages that are read again: only lines that are new are parsed.

Servers write many pages so that each line is whole: a statement, a directive, or the beginning or
end of a graph. What such a line says depends on nothing but itself, the directives before it and
the graph around it; so where the page before had the same line there, it is known. So is a new line
of three plain words that the page before had: of many facts that got the same new value, that value
is parsed. Pages of another shape are parsed as a whole.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from annotations.namespaces import RDF_TYPE
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.fragments.bodies import quad_size
from tpf_client.fragments.changed_lines import (
    IRI_TEXT,
    LITERAL_TEXT,
    STATEMENTS,
    changed_lines,
)
from tpf_client.fragments.known_lines import KnownLines, LineBlock, Lines, SaidLine, Scope
from tpf_client.fragments.new_lines import NewLine, NewLines

_PLAIN: Final = re.compile(
    rb"(%b) (%b|[A-Za-z]\w*:\w+|a) (%b|%b) \." % (IRI_TEXT, IRI_TEXT, IRI_TEXT, LITERAL_TEXT)
)
"""A statement of three words, of which none says more or less for what is beside it."""
_DIRECTIVES: Final = (b"@prefix ", b"@base ", b"PREFIX ", b"BASE ")
_OPENED: Final = b"<urn:g> <urn:g> %b."
_PLACES: Final = ("subject", "predicate", "object")
_COMPLETE: Final = (b"<", b'"')
"""What may be an object is written without a prefix."""
_SKOLEM: Final = b"/.well-known/"
_WORD: Final = b"<urn:w> <urn:w> %b ."
_WORDS: Final = 6
"""So many words are known for each line at most: those of it and of a line before."""
_COMING: Final = Term("")
_NOTHING: Final = Scope()

_Plain: TypeAlias = tuple[LineBlock, bytes, Sequence[bytes], SaidLine]
"""A statement of which the words are known, or will be, and what it says then."""


def _learned(scope: Scope) -> dict[bytes, Term]:
    """The words of a scope, and those of the plain statements where there are none or too many."""
    if scope.words and len(scope.words) <= _WORDS * len(scope.lines):
        return scope.words
    words: dict[bytes, Term] = {b"a": RDF_TYPE}
    for text, said in scope.lines.items():
        plain = _PLAIN.fullmatch(text)
        if plain is not None and len(said.quads) == 1:
            words.update(zip(plain.groups(), said.quads[0][:3], strict=True))
    return words


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


def _say(plain: Sequence[_Plain]) -> None:
    """Note down what statements say whose words are known."""
    made = tuple.__new__
    last: LineBlock | None = None
    graph = DEFAULT_GRAPH
    known: Mapping[bytes, Term] = {}
    for block, text, words, said in plain:
        if block is not last:
            graph, known, last = block.graph, block.scope.words, block
        subject, predicate, object_ = words
        quad = made(Quad, (known[subject], known[predicate], known[object_], graph))
        said.quads = (quad,)
        said.size = quad_size(quad)
        if not graph and _SKOLEM not in text:
            # Nothing in it is a blank node, so that it is kept as it came.
            said.kept = said.quads


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
    texts = body.split(b"\n")
    return changed_lines(texts, url, before, most) or _read(texts, url, before.scopes(), most)


def _read(
    texts: Sequence[bytes], url: str, before: Mapping[bytes, Scope], most: float
) -> Lines | None:
    said_lines: list[SaidLine | None] = [None] * len(texts)
    blocks: list[LineBlock] = []
    new = NewLines(url)
    plain: list[_Plain] = []
    scopes: dict[bytes, Scope] = {}
    directives = opening = b""
    block: LineBlock | None = None
    old = _NOTHING
    for place, line in enumerate(texts):
        if block is not None:
            said = old.lines.get(line)
            if said is not None and line not in block.scope.lines:
                said_lines[place] = block.scope.lines[line] = said
                continue
        if line.startswith(STATEMENTS):
            if not line.endswith(b"."):
                if opening or not line.endswith(b" {"):
                    return None
                opening, block = line, None
                continue
            if block is None:
                block = LineBlock(place, directives, opening, Scope())
                block = block._replace(scope=scopes.setdefault(block.place, block.scope))
                old = before.get(block.place, _NOTHING)
                blocks.append(block)
                key = block.key
                if opening and key not in block.scope.lines:
                    name = block.scope.lines[key] = old.lines.get(key) or SaidLine((), 0)
                    if not name.quads:
                        new.add(NewLine(block, key, name), _OPENED % opening[:-1])
            said = block.scope.lines.get(line)
            if said is None and line in old.lines:
                said = block.scope.lines[line] = old.lines[line]
            elif said is None:
                said = block.scope.lines[line] = SaidLine((), 0)
                words: Sequence[bytes] = ()
                scope = block.scope
                if old.lines:
                    scope.words = scope.words or _learned(old).copy()
                    words = _plain_words(line, scope.words)
                if words:
                    plain.append((block, line, words, said))
                else:
                    new.add(NewLine(block, line, said), line)
                for word in words:
                    if word not in scope.words:
                        scope.words[word] = _COMING
                        new.add(NewLine(block, word, SaidLine((), 0)), _WORD % word)
            elif b"[" in line:
                # Each time another blank node.
                return None
            said_lines[place] = said
        elif line == b"}" and opening:
            opening, block = b"", None
        elif line.startswith(_DIRECTIVES) and not opening:
            directives += line + b"\n"
            new.direct(line + b"\n")
            block = None
        elif line:
            return None
    # Directives were parsed where lines stood under them.
    known = not len(new) and any(place.startswith(directives) for place in before)
    if opening or not (known or new.parse(most)):
        return None
    _say(plain)
    # What lines said before counts as if it were new: no page grows beyond what is taken at once.
    size = sum([said.size for said in said_lines if said is not None])
    if size > most:
        return None
    return Lines(KnownLines(texts, said_lines, blocks, size=size), len(new))
