"""A page whose lines are those that it had, but for some that say another object.

So is most of what changes: a delay, the end of a label, the instant that the page shows. Where such
a line says another literal, not even that line is parsed. What these lines say of which subject is
as it was, so that who reads the metadata can go on from there.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, count
from operator import ne
from typing import Final

from annotations.terms import Quad, Term
from tpf_client.fragments.bodies import quad_size
from tpf_client.fragments.known_lines import (
    NO_FRAME,
    KnownLines,
    LineBlock,
    Lines,
    LiteralFrame,
    SaidLine,
    Scope,
)
from tpf_client.fragments.new_lines import NewLine, NewLines

_VERBATIM: Final = re.compile(rb"[ !#-\[\]-~]*")
"""Texts of literals that are written in terms as in pages."""
IRI_TEXT: Final = rb'<[^<>"\\\s]*>'
"""An IRI in brackets that has no escapes."""
LITERAL_TEXT: Final = rb'"[^"\\]*"(?:@[A-Za-z0-9-]+|\^\^(?:%b|[A-Za-z]\w*:\w+))?' % IRI_TEXT
"""A literal in quotes that has no escapes."""
_SIMPLE: Final = re.compile(
    rb"(?:(?:%b|_:\w+|[A-Za-z]\w*:\w*|a|%b)[ ,;]+)+\." % (IRI_TEXT, LITERAL_TEXT)
)
"""Statements in which quotes are around literals and nothing else, and all literals in quotes."""
_QUERIES: Final = re.compile(rb"(?<=\?)([^<>\s?#]*)(?=>)")
"""The queries of IRIs in such statements. Relative or not, an IRI has the query that is written."""
_QUERY: Final = re.compile(rb"(?:[A-Za-z0-9&=._~-]|%[0-9A-Fa-f]{2})*")
_CHANGED: Final = 16
"""So many other queries of a line are looked for in each of its quads."""
_FRAMES: Final = 2**10
_SHORT: Final = 2**8
"""So many frames of so many characters are there once for all lines that have them."""
_UNREAD: Final = 8
"""Of more lines that are to be parsed, words may be known."""
STATEMENTS: Final = (b"<", b"_:")
"""How lines begin that say something."""


def changed_lines(
    texts: Sequence[bytes], url: str, before: KnownLines, most: float
) -> Lines | None:
    """What such a page says.

    Args:
        texts: its lines.
        url: base for relative IRIs.
        before: those that it had.
        most: bytes of memory that the quads may take.

    Returns:
        ``None``: it is not such a page.
    """
    if len(texts) != len(before.texts):
        return None
    said = list(before.said)
    literals: dict[tuple[bytes, str], Term] = {}
    unread: list[int] = []
    changes: list[tuple[SaidLine, SaidLine]] = []
    size = before.size
    for place in compress(count(), map(ne, texts, before.texts)):
        known = said[place]
        if known is None:
            return None
        other = _with_literal(known, before.texts[place], texts[place], literals) or _with_queries(
            known, before.texts[place], texts[place]
        )
        if other is None:
            other = SaidLine((), 0)
            unread.append(place)
            if len(unread) > _UNREAD:
                return None
        said[place] = other
        size += other.size - known.size
        if known.quads[0][3]:
            changes.append((known, other))
    if size > most:
        return None
    # What is remembered of the lines of before is let go.
    scopes = {
        place: Scope({key: scope.lines[key]} if key in scope.lines else {}, scope.words)
        for place, key, scope in ((each.place, each.key, each.scope) for each in before.blocks)
    }
    blocks = [each._replace(scope=scopes[each.place]) for each in before.blocks]
    known_now = KnownLines(texts, said, blocks, before.graphs, filed=False)
    if unread and not _parse(known_now, unread, url, most - size):
        return None
    known_now.size = size + sum(other.size for place in unread if (other := said[place]))
    if not all(_alike(before.said[place], said[place]) for place in unread):
        return None
    return Lines(known_now, len(unread), changes)


def _with_literal(
    known: SaidLine, before: bytes, text: bytes, literals: dict[tuple[bytes, str], Term]
) -> SaidLine | None:
    """What a line says that has another literal; ``None``: that is not all.

    Args:
        known: what it said.
        before: how it was written.
        text: how it is written now.
        literals: those that were met, by their texts and the other parts of their terms.
    """
    frame = known.frame
    if frame is None:
        frame = known.frame = _frame(before, known.quads)
    start, tail, place, suffix = frame
    end = len(text) - len(tail)
    if frame is NO_FRAME or start > end or text[:start] != before[:start] or text[end:] != tail:
        return None
    lexical = text[start:end]
    literal = literals.get((lexical, suffix))
    if literal is None:
        if _VERBATIM.fullmatch(lexical) is None:
            return None
        literal = literals[lexical, suffix] = Term(f'"{lexical.decode()}{suffix}')
    quads = known.quads
    subject, predicate, old, graph = quads[place]
    quad: Quad = tuple.__new__(Quad, (subject, predicate, literal, graph))
    changed = (quad,) if len(quads) == 1 else (*quads[:place], quad, *quads[place + 1 :])
    size = known.size + len(literal) - len(old)
    # A literal is kept as it came, so where nothing else was changed, nothing is.
    return SaidLine(changed, size, changed if known.kept is quads else None, frame)


def _with_queries(known: SaidLine, before: bytes, text: bytes) -> SaidLine | None:
    """What a line says that has other queries in links to snapshots; see `_with_literal`."""
    if b'"' in text or _SIMPLE.fullmatch(before) is None:
        return None
    old, now = _QUERIES.split(before), _QUERIES.split(text)
    if old[::2] != now[::2]:
        return None
    others: dict[str, str] = {}
    count = 0
    for was, written in zip(old[1::2], now[1::2], strict=True):
        if _QUERY.fullmatch(was) is None or _QUERY.fullmatch(written) is None:
            return None
        if (
            others.setdefault(f"?{was.decode()}>", f"?{written.decode()}>")[1:-1]
            != written.decode()
        ):
            return None
        count += was != written
    changed = [each for each in others.items() if each[0] != each[1]]
    if len(changed) > _CHANGED:
        return None
    quads: list[Quad] = []
    for subject, predicate, object_, graph in known.quads:
        for was, written in changed:
            if subject.endswith(was) or predicate.endswith(was):
                return None
            if object_.endswith(was):
                object_ = Term(object_.removesuffix(was) + written)
                count -= 1
                break
        quads.append(Quad(subject, predicate, object_, graph))
    # Another IRI, written without the query, may have it from the base.
    return None if count else SaidLine(quads, sum(map(quad_size, quads)))


def _frame(text: bytes, quads: Sequence[Quad]) -> LiteralFrame:
    """What stands around the literal of a line that says this."""
    parts = text.split(b'"')
    places = [place for place, quad in enumerate(quads) if quad.object.startswith('"')]
    if len(parts) != 3 or len(places) != 1 or not text.isascii() or not _SIMPLE.fullmatch(text):
        return NO_FRAME
    (place,) = places
    literal, start = quads[place].object, f'"{parts[1].decode()}"'
    if not literal.startswith(start):
        # It has characters that are written otherwise in terms.
        return NO_FRAME
    suffix, tail = literal[len(start) - 1 :], b'"' + parts[2]
    made = _shared if len(suffix) + len(tail) <= _SHORT else LiteralFrame
    return made(len(parts[0]) + 1, tail, place, suffix)


_shared: Final = lru_cache(_FRAMES)(LiteralFrame)


def _parse(known: KnownLines, unread: Sequence[int], url: str, most: float) -> bool:
    """Let these lines be parsed; whether each is a statement."""
    new = NewLines(url)
    directives = b""
    for block, part in known.parts():
        mine = [place for place in unread if part.start <= place < part.stop]
        if mine:
            # What a relative one means depends on those before it: each stands there once.
            new.direct(block.directives.removeprefix(directives))
            directives = block.directives
        for place in mine:
            if not _add(new, block, known.texts[place], known.said[place]):
                return False
    return new.parse(most)


def _add(new: NewLines, block: LineBlock, text: bytes, said: SaidLine | None) -> bool:
    # Where there is a bracket, there may be a blank node without a name, which is another one in
    # each line.
    if said is None or not text.startswith(STATEMENTS) or not text.endswith(b".") or b"[" in text:
        return False
    new.add(NewLine(block, text, said), text)
    return True


def _alike(before: SaidLine | None, now: SaidLine | None) -> bool:
    """Whether a line says the same predicates of the same subjects."""
    if before is None or now is None:
        return False
    return [quad[:2] for quad in before.quads] == [quad[:2] for quad in now.quads]
