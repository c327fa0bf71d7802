"""A sliding window, the groups of its rows, and the best of these: one state in C.

It stands for windows, `Groups`, `SemiJoin`, `KeyedJoin` and `TopK`; `_ranked_groups.c` is compiled
where there is a compiler.
"""

import ctypes
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import finalize

import numpy as np

Cells = tuple[int, ...]

MOST_PLACES: Final = 18
"""Decimals with more digits behind the point are not ordered here."""
MIDDLES: Final = 2
"""Cells that are shown of numbers: the lower and the higher one in the middle, or zeros."""
NONE: Final = -1
WITH_ROW: Final = -(1 << 63)
"""Before every instant: the change came with a row."""
MOST_SIZE: Final = (1 << 63) - 1
_EXISTS_FIELDS: Final = 7
_SOURCE: Final = Path(__file__).with_name("_ranked_groups.c")
_LIBRARY: Final = _SOURCE.with_suffix(".so")


class Branch(NamedTuple):
    """One way in which rows join groups.

    Args:
        width: how long a row stays.
        least: rows of this branch that a group needs to be shown.
        most: the most rows that it may have.
        medians: columns whose medians are taken; 0 with another window.
        other_width: of an EXISTS's window: a row counts if one has its key and a larger value
            (`negated`: if none has). `NONE`: each counts.
    """

    width: int
    least: int = 1
    most: int = MOST_SIZE
    medians: int = 0
    other_width: int = NONE
    negated: bool = False

    @property
    def shown(self) -> int:
        """The cells of its row: a size, and the middles of its numbers."""
        return 1 + MIDDLES * self.medians


class By(NamedTuple):
    """A condition of an order: the value at `place` in a row, or its quotient by that at `over`."""

    place: int
    over: int
    descending: bool


class Ranking(NamedTuple):
    """Groups and their order.

    A row has the key; then for each branch how many rows count, and `MIDDLES` cells per number.

    Args:
        branches: groups with rows from all of them are shown.
        ties: positions that break ties, all of the key among them.
        limit: how many groups are shown, the first `offset` left out.
        apart: stop before a row for which something went.
        ticks: stop at each instant at which something goes between two rows.
    """

    keys: int
    branches: tuple[Branch, ...]
    order: tuple[By, ...]
    ties: tuple[int, ...]
    offset: int
    limit: int
    apart: bool
    ticks: bool

    def flat(self) -> Iterator[int]:
        """Yield the numbers that `ranked_new` reads: sizes, branches, positions, order and ties."""
        stride, lists, columns = 1, 0, 1
        shapes: list[int] = []
        positions: list[int] = []
        for number, branch in enumerate(self.branches):
            width, least, most, medians, other_width, negated = branch
            gated = other_width != NONE
            layout = stride, stride + 1 + medians, lists, columns
            shapes += [width, least, most, medians, other_width, gated, negated, *layout]
            positions += [number, NONE, 0]
            for median in range(medians):
                positions += [number, median, 0, number, median, 1]
            stride += 1 + medians + gated * _EXISTS_FIELDS
            lists += medians
            columns += self.keys + 1 + medians + gated * 4
        width = max(max(each.width, each.other_width) for each in self.branches)
        yield from (self.keys, self.offset, self.limit, width, self.apart, self.ticks)
        yield from (len(self.branches), len(self.order), len(self.ties), len(positions) // 3)
        yield from (lists, stride, columns, *shapes, *positions)
        for each in self.order:
            yield from each
        yield from self.ties


class RankedGroups:
    """The rows of windows, their groups and the best of them."""

    def __init__(self, ranking: Ranking) -> None:
        functions = library()
        assert functions is not None
        self._library = functions
        given = np.array([*ranking.flat()], np.int64)
        state = functions.ranked_new(_address(given), len(given))
        if not state:
            raise MemoryError
        self._state = ctypes.c_void_p(state)
        finalize(self, functions.ranked_free, self._state)
        self._columns = ranking.keys + sum(each.shown for each in ranking.branches)
        self._shown = np.empty((ranking.limit, self._columns), np.int64)
        self._outcome = (ctypes.c_int64 * 2).from_address(state)

    @property
    def changed(self) -> bool:
        """True if what is shown may have changed at the stop."""
        return bool(self._outcome[0])

    @property
    def passed(self) -> int:
        """The instant at which it changed without a row (see `Ranking`), or `WITH_ROW`."""
        return self._outcome[1]

    def batch(self, columns: Sequence[Any]) -> Any:
        """Convert rows for `run`: columns of 64-bit integers.

        First the instants; then for each branch keys, whether a row counts, and numbers.
        """
        return np.ascontiguousarray(np.stack(columns, axis=1), np.int64)

    def run(self, batch: Any, start: int, stop: int) -> int:
        """Take rows until what is shown may have changed; return the first one left."""
        done: int = self._library.ranked_run(self._state, _address(batch), start, stop)
        if done < 0:
            raise MemoryError
        return done

    def pass_to(self, until: int) -> bool:
        """Advance to an instant; return whether what is shown may have changed."""
        self._library.ranked_pass_to(self._state, until)
        return self.changed

    def shown(self) -> list[Cells]:
        count = self._library.ranked_shown(self._state, _address(self._shown))
        return [tuple(row) for row in self._shown[:count].tolist()]


@cache
def library() -> ctypes.CDLL | None:
    """Load the functions in C; ``None`` unless compiled from the present source."""
    try:
        loaded = ctypes.CDLL(str(_LIBRARY))
        source = ctypes.c_int64.in_dll(loaded, "ranked_source").value
    except (OSError, ValueError):
        return None
    if _SOURCE.exists() and source != zlib.crc32(_SOURCE.read_bytes()):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    for function, result, arguments in (
        (loaded.ranked_new, pointer, (pointer, number)),
        (loaded.ranked_free, None, (pointer,)),
        (loaded.ranked_run, number, (pointer, pointer, number, number)),
        (loaded.ranked_pass_to, None, (pointer, number)),
        (loaded.ranked_shown, number, (pointer, pointer)),
    ):
        function.restype = result
        function.argtypes = arguments
    return loaded


def _address(array: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    return int(array.ctypes.data)
