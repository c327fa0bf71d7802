"""Who is told of the batches of a live store, by whatever process they were published."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeAlias

import numpy as np

from annotations.terms import Quad, Term
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import FOREVER, Record
from tpf_server.store.protocols import Follower, Standing, Told

_Predicates: TypeAlias = Callable[[Term], bool]
_Seen: TypeAlias = Callable[[Sequence[Quad]], None]
_SEEN_AT_ONCE = 1 << 17


class Listeners:
    """The followers and watchers of one store; whoever calls holds the store's lock."""

    def __init__(self) -> None:
        self._watchers: list[tuple[_Predicates, _Seen]] = []
        self._followers: list[Follower] = []
        self._told: list[Told] = []

    def watch(self, index: FactIndex, predicates: _Predicates, seen: _Seen) -> Callable[[], None]:
        """Tell of the quads with these predicates, first those that are there; what ends it."""
        watcher = (predicates, seen)

        def end() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        rows = index.rows_with(predicates).tolist()
        for first in range(0, len(rows), _SEEN_AT_ONCE):
            seen(index.quads(rows[first : first + _SEEN_AT_ONCE]))
        self._watchers.append(watcher)
        return end

    def follow(self, index: FactIndex, follower: Follower) -> Callable[[], None]:
        """Tell of the versions that stand, and of every change of that; what ends it."""

        def end() -> None:
            if follower in self._followers:
                self._followers.remove(follower)

        follower.begin(standing(index))
        self._followers.append(follower)
        return end

    def listen(self, told: Told) -> Callable[[], None]:
        """Tell of batches and their predicates; what ends it."""

        def end() -> None:
            if told in self._told:
                self._told.remove(told)

        self._told.append(told)
        return end

    def begin_again(self, index: FactIndex) -> None:
        """The index was read anew."""
        versions = standing(index) if self._followers else []
        for follower in self._followers:
            follower.begin(versions)
        for told in self._told:
            told(index.last, None)

    def tell(self, index: FactIndex, record: Record) -> None:
        """A batch has come, and was applied."""
        if self._told:
            changed = {Term(version.predicate) for version in record.added}
            gone = [row for row in record.removed if index.rows.row_in_use(row)]
            changed.update(quad.predicate for quad in index.quads(gone))
            for told in self._told:
                told(record.sequence, frozenset(changed))
        if self._followers:
            added = [
                Standing(each.row, Quad(*map(Term, each[2:6])), each.start, each.end)
                for each in record.added
            ]
            for follower in self._followers:
                follower.change(record.removed, added)
        for predicates, seen in self._watchers:
            versions = chain(record.added, (carried.version for carried in record.carried))
            seen(
                [
                    Quad(*[Term(text) for text in version[2:6]])
                    for version in versions
                    if predicates(Term(version.predicate))
                ]
            )


def standing(index: FactIndex) -> list[Standing]:
    """The versions that stand."""
    rows = index.rows
    numbers = np.flatnonzero(rows.in_use() & (rows.numpy("removed") == FOREVER)).tolist()
    return [
        Standing(row, quad, rows.start[row], rows.end[row])
        for row, quad in zip(numbers, index.quads(numbers), strict=True)
    ]
