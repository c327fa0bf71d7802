"""Symmetric hash join: whichever side a change comes from, it meets what the other side holds."""

from typing import Any

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.layout import Layout, layout
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

    Where a shared variable may be unbound, candidates with equal certain variables are compared
    pair by pair; otherwise a change costs one probe and its results.

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
        key = self._left_key(solution)
        put(self._left, key, solution, count)
        merge = self._layout.merge
        for partner, times in self._right.get(key, {}).items():
            self.probes += 1
            merged = merge(solution, partner)
            if merged is not None:
                self.emit(merged, count * times)

    def _push_right_loose(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        put(self._right, key, solution, count)
        merge = self._layout.merge
        for partner, times in self._left.get(key, {}).items():
            self.probes += 1
            merged = merge(partner, solution)
            if merged is not None:
                self.emit(merged, count * times)


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
