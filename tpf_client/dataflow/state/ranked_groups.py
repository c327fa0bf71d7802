"""A sliding window, the groups of its rows, and the best of these: one state for all three.

It is what windows, `Groups`, `SemiJoin`, `KeyedJoin` and `TopK` keep together, for a query that
counts and orders, without a solution being made of any row: rows are columns of integers. It is
written in C (`_ranked_groups.c`), which is built with the package where there is a compiler (see
`kernels`); here is how it is asked.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

# What is counted and ordered of the rows of windows, and what keeps it (see `RankedState`).

Cells = tuple[int, ...]

MOST_PLACES: Final = 18
"""Of decimals with more digits behind the point keys are not ordered here."""
MEDIAN, SUM, LEAST, MOST = range(4)
"""What is kept of the numbers of a group, and shown of it."""
PARTS: Final = 3
"""So much is shown of numbers. The two in the middle, or the least or the most, and then zeros; of
a sum, which is given in parts of 10^-`MOST_PLACES`, the lower and the higher 64 bits, and how many
of the numbers are decimals."""
LOW, HIGH, DECIMALS = range(PARTS)
MOST_SUMMED: Final = 10**10
"""The numbers of a sum are less than this, and more than its negative: as many as fit into a memory
never need more than 128 bits."""
NONE: Final = -1
WITH_ROW: Final = -(1 << 63)
"""Before every instant: it happened when a row came."""
MOST_SIZE: Final = (1 << 63) - 1


class Branch(NamedTuple):
    """One way in which rows come to groups.

    Args:
        width: how long a row stays.
        least: how many rows of this branch a group has at least, to be shown; 1 or more.
        most: how many at most.
        numbers: what is kept of numbers of its rows: `MEDIAN`, `SUM`, `LEAST` or `MOST`. Where
            another window is looked at these are sums.
        other_width: the rows of another window are looked at, too: how long these stay there. A
            row counts where the other window has one with the same key and a larger value than its
            own. `NONE`: each counts.
        negated: it counts where that has none.
    """

    width: int
    least: int = 1
    most: int = MOST_SIZE
    numbers: tuple[int, ...] = ()
    other_width: int = NONE
    negated: bool = False

    @property
    def shown(self) -> int:
        """How many cells of a row it has: a size, and the parts of its numbers."""
        return 1 + PARTS * len(self.numbers)


class By(NamedTuple):
    """What groups are ordered by.

    Args:
        place: of a row (see `Ranking`): of a key, of a size, or of the first part of numbers.
            Cells are integers or decimals; the least and the most are instants, too.
        over: the place of a size by which that is divided, to `MOST_PLACES` digits; or `NONE`.
        descending: whether the largest is first.
    """

    place: int
    over: int
    descending: bool


class Ranking(NamedTuple):
    """What is counted and ordered; a row is what is shown of a group.

    A row has the cells of the key; then for each branch how many rows count, and `PARTS` integers
    for each of its numbers (0 where no row counts).

    Args:
        keys: how many columns the keys of groups have.
        branches: how rows come to groups. Shown are groups with rows from all of them.
        order: by what groups are ordered.
        ties: the places of a row by whose cells, as they are, groups are ordered that are equal so
            far; all of the key.
        offset: how many of the first groups are not shown.
        wanted: how many groups are shown, with those.
        apart: whether what goes before a row comes is looked at by itself.
        ticks: whether each instant counts at which something goes between two rows.
    """

    keys: int
    branches: tuple[Branch, ...]
    order: tuple[By, ...]
    ties: tuple[int, ...]
    offset: int
    wanted: int
    apart: bool
    ticks: bool


class IntegerColumn(Protocol):
    """A column of integers of 64 bits."""

    def tolist(self) -> list[int]:
        """All of them."""


class RankedState(Protocol):
    """The window, its groups and the best of them; `_ranked_groups.c` is it.

    Attributes:
        changed: whether the last row that `run` took may have changed what is shown.
        refused: whether `run` stopped before a row that it cannot take, because its subject was
            there when it came; nothing has gone for it yet.
        passed: the instant before the next row at which what is shown may have changed (see
            `Ranking.ticks`); `WITH_ROW` where that came with the last one.
    """

    changed: bool
    refused: bool
    passed: int

    def __len__(self) -> int: ...

    @property
    def groups(self) -> int:
        """How many groups have rows, even if none counts."""

    def batch(self, columns: Sequence[IntegerColumn], /) -> Any:
        """Rows as `run` takes them.

        Args:
            columns: when rows come, none before the one before it; their subjects, each of which
                is in the window at most once; then for each branch the keys, column by column, and
                whether the row is wanted; its numbers (integers or decimals; for the least and the
                most instants, too), column by column; with another window its key as it is here, as
                it is there, and the values here and there.
        """

    def run(self, batch: Any, start: int, stop: int, quiet: bool = False, /) -> int:
        """Take rows one after the other, until one may have changed what is shown.

        Args:
            batch: the rows.
            start: the first of them.
            stop: the first that is not taken.
            quiet: go on where that happens.

        Returns:
            The number of the first row that was not taken; see `changed` and `refused`.
        """

    def shown(self) -> list[Cells]:
        """The rows of the groups that are shown."""

    def before(self) -> list[Cells] | None:
        """What was shown before the last row came, and after others had gone (`Ranking.apart`).

        ``None``: the same as before they went.
        """
