"""The numbers of groups that are one state: which are exact there, and what comes of them."""

from collections.abc import Callable
from typing import Final, cast

import numpy as np

from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.state.aggregates import Accumulator, Sum
from tpf_client.dataflow.state.ranking import (
    DECIMALS,
    HIGH,
    LEAST,
    LOW,
    MEDIAN,
    MOST,
    MOST_PLACES,
    MOST_SUMMED,
    SUM,
    Cells,
)
from tpf_client.sparql.expressions.inlined import (
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_SCALE,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)
from tpf_server.continuous.engine.plans.column_expressions import Column, RowMask

_LOW_BITS: Final = (1 << 64) - 1
_POWERS: Final = np.array([10**power for power in range(MOST_PLACES + 1)], np.int64)


def are_numbers(column: Column, most: int) -> RowMask:
    """Which cells are numbers, with so many digits behind the point at most."""
    tag, scale = column & TAG, column >> TAG_BITS & MOST_SCALE
    found: RowMask = (tag == INTEGER) | ((tag == DECIMAL) & (scale <= most))
    return found


def _is_ordered(column: Column) -> RowMask:
    """Which cells are what the least and the most are found of: numbers and instants."""
    found: RowMask = are_numbers(column, MOST_PLACES) | (column & TAG == DATE_TIME)
    return found


def _is_middle(column: Column) -> RowMask:
    """Which cells are numbers that medians are made of: the mean of two has one more digit."""
    return are_numbers(column, MOST_PLACES - 1)


def _is_summed(column: Column) -> RowMask:
    """Which cells are numbers that are added up here."""
    decimal = column & TAG == DECIMAL
    scale = np.where(decimal, np.minimum(column >> TAG_BITS & MOST_SCALE, MOST_PLACES), 0)
    whole = np.abs(column >> TAG_BITS + SCALE_BITS * decimal) // _POWERS[scale]
    found: RowMask = are_numbers(column, MOST_PLACES) & (whole < MOST_SUMMED)
    return found


FITS: Final[dict[int, Callable[[Column], RowMask]]] = {
    LEAST: _is_ordered,
    MOST: _is_ordered,
    MEDIAN: _is_middle,
    SUM: _is_summed,
}
"""Which cells are exact, for each of what is kept of numbers."""


def result_of(kind: int, size: int, parts: Cells, factory: Callable[[], Accumulator]) -> TermId:
    """What an aggregate gives.

    Args:
        kind: what is kept of its numbers.
        size: how many there are.
        parts: what is shown of them.
        factory: makes what would keep them in the operators.
    """
    low, high = parts[LOW], parts[HIGH]
    if kind in (LEAST, MOST) or (kind == MEDIAN and low == high):
        return low
    found = factory()
    if kind == MEDIAN:
        found.add(low, 1)
        found.add(high, 1)
    else:
        total = (high << 64) + (low & _LOW_BITS)
        return cast("Sum", found).result_of(size, total, parts[DECIMALS])
    return found.result()
