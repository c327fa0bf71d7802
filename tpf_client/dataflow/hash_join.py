"""Symmetric hash join: whichever side a change comes from, it meets what the other side holds."""

from typing import Any

from tpf_client.dataflow.changes import UNBOUND, Multiset, Solution
from tpf_client.dataflow.layout import KeyOf, Layout, layout
from tpf_client.dataflow.node import Node

Index = dict[Any, dict[Solution, int]]


def put(index: Index, key: Any, solution: Solution, count: int) -> None:
    """Add to an index of multisets; what becomes zero goes."""
    bucket = index.get(key)
    if bucket is None:
        index[key] = {solution: count}
        return
    total = bucket.get(solution, 0) + count
    if total:
        bucket[solution] = total
    else:
        del bucket[solution]
        if not bucket:
            del index[key]


class HashJoin(Node):
    """Compatible solutions of two nodes, merged.

    A change costs one probe and its results. Where a shared variable may be unbound, solutions that
    lack a value are compared pair by pair with those whose certain variables are equal; the others
    still find each other by all their shared variables.

    Attributes:
        probes: how many changes met the other side's index, for tests that count work.
    """

    def __init__(self, left: Node, right: Node) -> None:
        self._layout = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(
            self._layout.schema, self._layout.certain, monotone=left.monotone and right.monotone
        )
        self.probes = 0
        self._left: Index = {}
        self._right: Index = {}
        if self._layout.loose:
            shared = self._layout.shared
            self._left_side = _Side(
                self._layout.left_key, tuple(left.schema.index(name) for name in shared)
            )
            self._right_side = _Side(
                self._layout.right_key, tuple(right.schema.index(name) for name in shared)
            )
            left.connect(self._push_left_loose)
            right.connect(self._push_right_loose)
        else:
            left.connect(self._push_left)
            right.connect(self._push_right)
        self._left_key = self._layout.left_key
        self._right_key = self._layout.right_key
        self._rest = self._layout.rest

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        put(self._left, key, solution, count)
        self.probes += 1
        partners = self._right.get(key)
        if partners:
            emit = self.emit
            for rest, times in partners.items():
                emit(solution + rest, count * times)

    def _push_right(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        rest = self._rest(solution)
        put(self._right, key, rest, count)
        self.probes += 1
        partners = self._left.get(key)
        if partners:
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)

    def _push_left_loose(self, solution: Solution, count: int) -> None:
        self._push_loose(self._left_side, self._right_side, solution, count)

    def _push_right_loose(self, solution: Solution, count: int) -> None:
        self._push_loose(self._right_side, self._left_side, solution, count)

    def _push_loose(self, mine: "_Side", other: "_Side", solution: Solution, count: int) -> None:
        key = mine.certain_of(solution)
        full = mine.put(key, solution, count)
        if full is None:
            candidates = [other.all.get(key)]
        else:
            candidates = [other.full.get(full), other.partial.get(key)]
        merge = self._layout.merge
        for bucket in candidates:
            for partner, times in (bucket or {}).items():
                self.probes += 1
                one, two = (solution, partner) if mine is self._left_side else (partner, solution)
                merged = merge(one, two)
                if merged is not None:
                    self.emit(merged, count * times)


class _Side:
    """The solutions of one side, some of which may lack shared variables.

    Args:
        certain_of: the values of the shared variables that are always bound.
        shared: the places of all shared variables.
    """

    def __init__(self, certain_of: KeyOf, shared: tuple[int, ...]) -> None:
        self.certain_of = certain_of
        self._shared = shared
        self.all: Index = {}
        self.full: Index = {}
        self.partial: Index = {}

    def put(self, key: Any, solution: Solution, count: int) -> Solution | None:
        """Store a solution; the values of its shared variables, ``None`` where one is unbound."""
        values = tuple([solution[place] for place in self._shared])
        put(self.all, key, solution, count)
        if UNBOUND in values:
            put(self.partial, key, solution, count)
            return None
        put(self.full, values, solution, count)
        return values


def plain_join(left: Multiset, right: Multiset, how: Layout) -> Multiset:
    """The plain twin: the whole join of whole inputs, pair by pair."""
    result: Multiset = Multiset()
    for one, times in left.items():
        for other, more in right.items():
            if how.left_key(one) == how.right_key(other):
                merged = how.merge(one, other)
                if merged is not None:
                    result[merged] += times * more
    return result
