"""The greedy order of a join."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from annotations.terms import Variable

T = TypeVar("T")


# What hangs together by variables.


def components(items: Iterable[T], names: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """Group items that share names, in order."""
    groups: list[tuple[set[Hashable], list[tuple[int, T]]]] = []
    for number, item in enumerate(items):
        own = set(names(item))
        members = [(number, item)]
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
    initially_bound: Iterable[Variable] = (),
    binds: Callable[[T], Iterable[Variable]] | None = None,
) -> Iterator[T]:
    """Yield items in join order: the cheapest connected one, or the cheapest of all."""
    rest = [(frozenset(variables(each)), each) for each in items]
    bound = set(initially_bound)
    while rest:
        best = rest[0]
        if len(rest) > 1:
            connected = [each for each in rest if not bound.isdisjoint(each[0])]
            best = min(connected or rest, key=lambda each: cost(each[1], bound))
        rest = [each for each in rest if each is not best]
        yield best[1]
        bound.update(best[0] if binds is None else binds(best[1]))
