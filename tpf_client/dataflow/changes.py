"""The items of a dataflow: solutions with multiplicities.

A solution is a tuple of term identifiers (`UNBOUND`: no value), a change a solution with a count.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Protocol, TypeAlias, TypeVar

from annotations.terms import Variable
from tpf_client.sparql.expressions.environment import Solution as Solution

TermId: TypeAlias = int
Schema: TypeAlias = tuple[Variable, ...]
Change: TypeAlias = tuple[Solution, int]
Sink: TypeAlias = Callable[[Solution, int], None]
Condition: TypeAlias = Callable[[Solution], bool]
Multiset: TypeAlias = Counter[Solution]
"""Solutions with their multiplicities, as tests compare them."""

UNBOUND: TermId = 0
ItemT = TypeVar("ItemT")


def add_copies(bag: dict[ItemT, int], item: ItemT, count: int) -> int:
    """Add copies of an item to a bag; return how many there are now, of which 0 are not kept."""
    total = bag.get(item, 0) + count
    if total:
        bag[item] = total
    else:
        bag.pop(item, None)
    return total


class LookupSource(Protocol):
    """The source of a lookup join's partners."""

    def request(self, key: Solution, deliver: Callable[[Iterable[Change]], None]) -> None:
        """Request the partners of `key` (the values of the shared variables)."""

    def release(self, key: Solution) -> None:
        """Release a key that no left solution has any more."""


def projection(source: Schema, target: Sequence[Variable]) -> Callable[[Solution], Solution]:
    """Project solutions of one schema to another; absent variables become `UNBOUND`."""
    return selection(column_numbers(source, target), len(source))


def column_numbers(source: Schema, target: Sequence[Variable]) -> tuple[int, ...]:
    """Return the columns of one schema's variables in another; -1 for absent ones."""
    columns = dict(zip(reversed(source), range(len(source) - 1, -1, -1), strict=True))
    return tuple([columns.get(name, -1) for name in target])


def selection(columns: tuple[int, ...], width: int) -> Callable[[Solution], Solution]:
    """Select columns of solutions of a width; -1 gives `UNBOUND`."""
    if columns == tuple(range(width)):
        return lambda solution: solution
    if all(column >= 0 for column in columns):
        if len(columns) > 1:
            return itemgetter(*columns)
        if columns:
            (only,) = columns
            return lambda solution: (solution[only],)
    return lambda solution: tuple([solution[p] if p >= 0 else UNBOUND for p in columns])
