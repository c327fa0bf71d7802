"""The items of a dataflow: solutions with multiplicities.

A solution is a tuple of integer term identifiers, one per variable of its schema; `UNBOUND` (0)
where a variable has no value. A change is a solution with a count: positive where copies appear,
negative where they vanish. An operator is a chain of sinks: whoever produces changes calls the
sink of whoever consumes them.

The contract of a sink is that the sum of the counts that it received for a solution is never
negative at the end of a tick; within a tick it may be, because changes of different sources come
in the order of their arrival.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Protocol, TypeAlias

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


class LookupSource(Protocol):
    """Whom a lookup join asks for the partners of its left solutions.

    The source answers later, on the dataflow's thread: first with the partners as they are, then,
    as long as the key is not released, with what changed of them.
    """

    def request(self, key: Solution, deliver: Callable[[Iterable[Change]], None]) -> None:
        """Ask for the partners of `key` (the values of the shared variables)."""

    def release(self, key: Solution) -> None:
        """No left solution has this key any more."""


def projection(source: Schema, target: Sequence[Variable]) -> Callable[[Solution], Solution]:
    """A function from solutions of one schema to another; absent variables become `UNBOUND`."""
    return selection(places_of(source, target), len(source))


def places_of(source: Schema, target: Sequence[Variable]) -> tuple[int, ...]:
    """The columns of the variables of one schema in another; -1 for absent ones."""
    return tuple([source.index(name) if name in source else -1 for name in target])


def selection(places: tuple[int, ...], width: int) -> Callable[[Solution], Solution]:
    """A function that takes these places of solutions of a width; -1 gives `UNBOUND`."""
    if places == tuple(range(width)):
        return lambda solution: solution
    if all(place >= 0 for place in places):
        if len(places) > 1:
            return itemgetter(*places)
        if places:
            (only,) = places
            return lambda solution: (solution[only],)
    return lambda solution: tuple([solution[p] if p >= 0 else UNBOUND for p in places])
