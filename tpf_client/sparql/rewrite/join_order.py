"""The greedy order of a join."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from annotations.terms import Variable

T = TypeVar("T")


def greedy_order(
    items: Iterable[T],
    variables: Callable[[T], Iterable[Variable]],
    cost: Callable[[T, set[Variable]], Any],
    known: Iterable[Variable] = (),
    binds: Callable[[T], Iterable[Variable]] | None = None,
) -> Iterator[T]:
    """What is joined, one after the other: each time the cheapest of those that are connected.

    Where none shares a variable with what is there, the cheapest of all; of equals, the first. It
    is chosen when it is asked for, so that what was joined meanwhile may change the costs. What is
    alone is taken without asking for its cost.

    Args:
        items: what is joined.
        variables: those by which an item is connected.
        cost: of joining an item to what binds these variables; anything that can be compared.
        known: variables that are bound before.
        binds: the variables that are bound after an item; by default those that connect it.
    """
    rest = [(frozenset(variables(each)), each) for each in items]
    bound = set(known)
    while rest:
        best = rest[0]
        if len(rest) > 1:
            connected = [each for each in rest if not bound.isdisjoint(each[0])]
            best = min(connected or rest, key=lambda each: cost(each[1], bound))
        rest = [each for each in rest if each is not best]
        yield best[1]
        bound.update(best[0] if binds is None else binds(best[1]))
