"""Blocks of keys that one request is restricted to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from annotations.terms import Term

BLOCK_BYTES = 5000
"""UTF-8 of a block at most, which takes up to three times as much in a URL: servers and proxies
refuse URLs much longer than this."""

T = TypeVar("T")


def packed(
    rows: Iterable[tuple[tuple[Term, ...], T]], size: int
) -> Iterator[Sequence[tuple[tuple[Term, ...], T]]]:
    """Rows, each with what it stands for, in as few blocks as their number and length allow."""
    block: list[tuple[tuple[Term, ...], T]] = []
    taken = 0
    for row in rows:
        length = sum(len(term.encode()) + 3 for term in row[0])
        if block and (len(block) >= size or taken + length > BLOCK_BYTES):
            yield block
            block, taken = [], 0
        block.append(row)
        taken += length
    if block:
        yield block
