"""Symmetric hash join: whichever side a change comes from, it meets what the other side holds."""

from typing import Any

from tpf_client.dataflow.changes import UNBOUND, Solution, places_of, selection
from tpf_client.dataflow.node import Node, Work
from tpf_client.dataflow.operators.layout import KeyOf, key_reader, layout

_Index = dict[Any, dict[Solution, int]]


def put(index: _Index, key: Any, solution: Solution, count: int) -> None:
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

    A change costs one probe and its results. Where a shared variable may be unbound, that is so
    until the first solution comes that lacks a value. From then on those that lack one are compared
    pair by pair with those whose certain variables are equal; the others still find each other by
    all their shared variables.

    Attributes:
        probes: how many changes met the other side's index, for tests that count work.
    """

    def __init__(self, left: Node, right: Node) -> None:
        self._layout = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(
            self._layout.schema, self._layout.certain, monotone=left.monotone and right.monotone
        )
        self.probes = 0
        self._work: Work | None = None
        self._left: _Index = {}
        self._right: _Index = {}
        shared = self._layout.shared
        self._left_key = key_reader(left.schema, shared)
        self._right_key = key_reader(right.schema, shared)
        self._rest = self._layout.rest
        self._left_places = places_of(left.schema, shared)
        self._right_places = places_of(right.schema, shared)
        split = (*shared, *self._layout.schema[len(left.schema) :])
        self._unsplit = selection(places_of(split, right.schema), len(split))
        self._sides: tuple[_Side, _Side] | None = None
        if self._layout.loose:
            left.connect(self._push_left_unsure)
            right.connect(self._push_right_unsure)
        else:
            left.connect(self._push_left)
            right.connect(self._push_right)

    def limit(self, work: Work) -> None:
        """See `Node.limit`."""
        self._work = work

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        put(self._left, key, solution, count)
        self.probes += 1
        partners = self._right.get(key)
        if partners:
            if self._work is not None:
                self._work.spend(len(partners))
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
            if self._work is not None:
                self._work.spend(len(partners))
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)

    def _push_left_unsure(self, solution: Solution, count: int) -> None:
        if self._sides is None:
            if UNBOUND not in solution or self._complete(self._left_key(solution)):
                self._push_left(solution, count)
                return
            self._sides = self._loosened()
        left, right = self._sides
        self._push_loose(left, right, solution, count)

    def _push_right_unsure(self, solution: Solution, count: int) -> None:
        if self._sides is None:
            if UNBOUND not in solution or self._complete(self._right_key(solution)):
                self._push_right(solution, count)
                return
            self._sides = self._loosened()
        left, right = self._sides
        self._push_loose(right, left, solution, count)

    def _complete(self, key: Any) -> bool:
        """Whether every shared variable has a value in a key."""
        return UNBOUND not in key if len(self._layout.shared) > 1 else key != UNBOUND

    def _loosened(self) -> "tuple[_Side, _Side]":
        """Both sides as they are, ready for solutions that lack a value."""
        how = self._layout
        left = _Side(how.left_key, self._left_places)
        right = _Side(how.right_key, self._right_places)
        for bucket in self._left.values():
            for solution, count in bucket.items():
                left.put(how.left_key(solution), solution, count)
        for key, bucket in self._right.items():
            whole = key if len(how.shared) > 1 else (key,)
            for rest, count in bucket.items():
                solution = self._unsplit(whole + rest)
                right.put(how.right_key(solution), solution, count)
        self._left, self._right = {}, {}
        return left, right

    def _push_loose(self, mine: "_Side", other: "_Side", solution: Solution, count: int) -> None:
        key = mine.certain_of(solution)
        full = mine.put(key, solution, count)
        if full is None:
            candidates = [other.all.get(key)]
        else:
            candidates = [other.full.get(full), other.partial.get(key)]
        merge = self._layout.merge
        leads = self._sides is not None and mine is self._sides[0]
        for bucket in candidates:
            for partner, times in (bucket or {}).items():
                self.probes += 1
                one, two = (solution, partner) if leads else (partner, solution)
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
        self.all: _Index = {}
        self.full: _Index = {}
        self.partial: _Index = {}

    def put(self, key: Any, solution: Solution, count: int) -> Solution | None:
        """Store a solution; the values of its shared variables, ``None`` where one is unbound."""
        values = tuple([solution[place] for place in self._shared])
        put(self.all, key, solution, count)
        if UNBOUND in values:
            put(self.partial, key, solution, count)
            return None
        put(self.full, values, solution, count)
        return values
