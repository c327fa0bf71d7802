"""What stores take and give."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple, Protocol, TypeAlias

from annotations.labels import Fact
from annotations.terms import Quad, Term

_new_tuple = tuple.__new__


class QuadColumns(NamedTuple):
    """Quads by column; pages are written column by column, without an object for a quad."""

    subjects: list[Term]
    predicates: list[Term]
    objects: list[Term]
    graphs: list[Term]

    @property
    def quads(self) -> list[Quad]:
        # What `Quad._make` does, without a Python frame per quad.
        return list(map(_new_tuple, repeat(Quad), zip(*self, strict=True)))


def quad_columns(quads: Iterable[Quad]) -> QuadColumns:
    """Return the columns of quads."""
    results = [list(terms) for terms in zip(*quads, strict=True)]
    return QuadColumns(*results) if results else QuadColumns([], [], [], [])


MOST_FREQUENT: Final = 100
"""Terms that `ColumnarStore.frequent` and `LiveStore.predicates` return at most."""


class Snapshot(NamedTuple):
    """The facts of all batches up to `sequence`, as valid at `instant`."""

    instant: int
    """Microseconds since 1970-01-01T00:00:00Z."""
    sequence: int
    """Number of the last batch that counts."""


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A durable batch: its number and effects."""

    sequence: int
    added: int
    replaced: int
    repeated: bool = False
    """Whether this batch identifier had been published before, so that nothing was done."""


class Standing(NamedTuple):
    """A version that nothing has replaced or ended."""

    row: int
    """Its number; a version that comes later may have the number of one that is gone."""
    quad: Quad
    start: int
    """From when it holds, in microseconds since 1970; below every instant where nothing says so."""
    end: int
    """Until when."""


class Follower(Protocol):
    """Receive changes of versions. It must not call the store."""

    def begin(self, versions: Sequence[Standing]) -> None:
        """Receive all standing versions."""

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        """Receive the rows of versions that stand no more, and new versions."""


class BatchRun(NamedTuple):
    """The batches with the numbers from ``number * size + 1`` on; instants in microseconds."""

    number: int
    first: int
    last: int
    begin: int
    end: int


class FactEvent(NamedTuple):
    """The effect of a batch on one fact.

    Args:
        place: position in its batch, from 0: first what goes, then what comes.
        fact: with its present or last label.
    """

    sequence: int
    place: int
    published: int
    fact: Fact
    gone: bool


BatchListener: TypeAlias = Callable[[int, frozenset[Term] | None], object]
"""Gets the number of a batch, and the predicates of the facts that came or went with it, if any;
``None``: of what came before, anything may have changed."""
