"""Blocks of keys that one request is restricted to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from annotations.terms import Term

BLOCK_CHARACTERS = 5000
"""Characters of a block at most: servers and proxies refuse URLs much longer than this."""

T = TypeVar("T")


def packed(
    rows: Iterable[tuple[tuple[Term, ...], T]], size: int
) -> Iterator[Sequence[tuple[tuple[Term, ...], T]]]:
    """Rows, each with what it stands for, in as few blocks as their number and length allow."""
    block: list[tuple[tuple[Term, ...], T]] = []
    characters = 0
    for row in rows:
        length = sum(len(term) + 3 for term in row[0])
        if block and (len(block) >= size or characters + length > BLOCK_CHARACTERS):
            yield block
            block, characters = [], 0
        block.append(row)
        characters += length
    if block:
        yield block
