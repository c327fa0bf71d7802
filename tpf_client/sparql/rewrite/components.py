"""What hangs together by variables."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


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
