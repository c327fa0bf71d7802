"""The greedy order of a join."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from annotations.terms import Variable

T = TypeVar("T")


# What hangs together by variables.


def components(items: Iterable[T], names: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """Items in groups that share no name with one another; an item without names is alone.

    Args:
        items: what is grouped, patterns mostly.
        names: of an item: its variables, or whatever connects it.

    Returns:
        The groups in the order of their first members, and the members in theirs.
    """
    groups: list[tuple[set[Hashable], list[tuple[int, T]]]] = []
    for place, item in enumerate(items):
        own = set(names(item))
        members = [(place, item)]
        apart = []
        for group in groups:
            if own.isdisjoint(group[0]):
                apart.append(group)
            else:
                own |= group[0]
                members = group[1] + members
        groups = [*apart, (own, members)]
    for _, members in groups:
        members.sort(key=lambda member: member[0])
    groups.sort(key=lambda group: group[1][0][0])
    return [[item for _, item in members] for _, members in groups]


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
