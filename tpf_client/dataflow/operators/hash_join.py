"""Symmetric hash join: a change of either side probes what the other holds."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import (
    UNBOUND,
    Change,
    LookupSource,
    Schema,
    Solution,
    add_copies,
    column_numbers,
    projection,
    selection,
)
from tpf_client.dataflow.node import Key, Node, Work
from tpf_client.dataflow.operators.layout import KeyOf, layout

# The join of two nodes that have at most one row for each key, by that key.


def joins_by_key(left: Node, right: Node) -> bool:
    """True if two nodes' keys are their shared variables."""
    shared = {name for name in left.schema if name in right.schema}
    return all(each.key is not None and set(each.key) == shared for each in (left, right))


class KeyedJoin(Node):
    """Join the rows of two keyed nodes (see `joins_by_key`).

    A key that lacks a value may meet several others; such rows are keyed by both keys.
    """

    def __init__(self, left: Node, right: Node) -> None:
        assert left.key is not None
        assert right.key is not None
        how = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(how.schema, how.certain, monotone=False, keyed=True, key=left.key)
        self._left, self._right = left.claimed(), right.claimed()
        # Keys are those of the left; on the right their values may stand in another order.
        self._width = len(left.key)
        self._same = left.key == right.key
        self._to_right = selection(column_numbers(left.key, right.key), self._width)
        self._from_right = selection(column_numbers(right.key, left.key), self._width)
        self._merge = how.merge
        self.left, self.right, self.rest = left, right, how.rest
        # The keys, of either side, that lack a value.
        self._loose_left: set[Key] = set()
        self._loose_right: set[Key] = set()
        left_row, right_row, rest, width = left.row, right.row, how.rest, self._width
        same, to_right = self._same, self._to_right

        def row(key: Key) -> Solution | None:
            if len(key) != width:
                return self._row_of_pair(key)
            one = left_row(key)
            if one is None:
                return None
            other = right_row(key if same else to_right(key))
            return None if other is None else one + rest(other)

        self.row = row

    @property
    def pending(self) -> bool:
        """True if a row of either side changed."""
        return self._left.pending or self._right.pending

    def changed(self) -> Collection[Key]:
        left, right = self._left.changed(), self._right.changed()
        if not self._same:
            right = [self._from_right(key) for key in right]
        if self.loose():
            return self._with_loose(left, right)
        return {*left, *right} if left and right else left or right

    def loose(self) -> bool:
        return self._left.loose() or self._right.loose()

    def _with_loose(self, left: Collection[Key], right: Collection[Key]) -> Collection[Key]:
        loose_left, loose_right = self._loose_left, self._loose_right
        loose_left.update(key for key in left if UNBOUND in key)
        loose_right.update(key for key in right if UNBOUND in key)
        keys = dict.fromkeys(key for key in chain(left, right) if UNBOUND not in key)
        # What is gone by now has met those that are gone too.
        lefts = dict.fromkeys(chain(self._left.all_keys(), left))
        rights = dict.fromkeys(chain(self._right_keys(), right))
        for one in left:
            for other in rights if UNBOUND in one else loose_right:
                keys[one + other] = None
        for other in right:
            for one in lefts if UNBOUND in other else loose_left:
                keys[one + other] = None
        loose_left.intersection_update(self._left.all_keys())
        loose_right.intersection_update(self._right_keys())
        return keys

    def all_keys(self) -> Iterable[Key]:
        for one in self._left.all_keys():
            if UNBOUND not in one:
                yield one
                yield from (one + other for other in self._loose_right)
            else:
                yield from (one + other for other in self._right_keys())

    def _right_keys(self) -> Iterable[Key]:
        keys = self._right.all_keys()
        return keys if self._same else map(self._from_right, keys)

    def _row_of_pair(self, key: Key) -> Solution | None:
        one = self._left.row(key[: self._width])
        other = self._right.row(self._to_right(key[self._width :]))
        return None if one is None or other is None else self._merge(one, other)


_Index = dict[Any, dict[Solution, int]]


def put(index: _Index, key: Any, solution: Solution, count: int) -> None:
    """Add to an index of bags; drop what becomes zero."""
    bucket = index.get(key)
    if bucket is None:
        index[key] = {solution: count}
    elif not add_copies(bucket, solution, count) and not bucket:
        del index[key]


class HashJoin(Node):
    """Join compatible solutions of two nodes."""

    def __init__(self, left: Node, right: Node) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(how.schema, how.certain, monotone=left.monotone and right.monotone)
        self.probes = 0
        self._work: Work | None = None
        self._left: _Index = {}
        self._right: _Index = {}
        self._layout = how
        self._left_key, self._right_key, self._rest = how.left_key, how.right_key, how.rest
        if how.loose:
            one = _Side(how.left_key, column_numbers(left.schema, how.shared))
            other = _Side(how.right_key, column_numbers(right.schema, how.shared))
            left.connect(partial(self._push_loose, one, other, True))
            right.connect(partial(self._push_loose, other, one, False))
        else:
            left.connect(self._push_left)
            right.connect(self._push_right)

    def limit(self, work: Work) -> None:
        self._work = work

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        put(self._left, key, solution, count)
        self.probes += 1
        partners = self._right.get(key)
        if partners:
            if self._work is not None:
                self._work.spend(count * sum(partners.values()))
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
                self._work.spend(count * sum(partners.values()))
            emit = self.emit
            for partner, times in partners.items():
                emit(partner + rest, count * times)

    def _push_loose(
        self, mine: "_Side", other: "_Side", leads: bool, solution: Solution, count: int
    ) -> None:
        key = mine.certain_of(solution)
        full = mine.put(key, solution, count)
        if full is None:
            candidates = [other.all.get(key)]
        else:
            candidates = [other.full.get(full), other.partial.get(key)]
        if self._work is not None:
            pairs = sum(sum(bucket.values()) for bucket in candidates if bucket)
            self._work.spend(count * pairs)
        merge = self._layout.merge
        for bucket in candidates:
            for partner, times in (bucket or {}).items():
                self.probes += 1
                one, two = (solution, partner) if leads else (partner, solution)
                merged = merge(one, two)
                if merged is not None:
                    self.emit(merged, count * times)


class _Side:
    def __init__(self, certain_of: KeyOf, shared: tuple[int, ...]) -> None:
        self.certain_of = certain_of
        self._shared = shared
        self.all: _Index = {}
        self.full: _Index = {}
        self.partial: _Index = {}

    def put(self, key: Any, solution: Solution, count: int) -> Solution | None:
        """Store a solution; ``None`` if a shared variable is unbound, else their values."""
        values = tuple([solution[column] for column in self._shared])
        put(self.all, key, solution, count)
        if UNBOUND in values:
            put(self.partial, key, solution, count)
            return None
        put(self.full, values, solution, count)
        return values


# Lookup join: ask a source for the partners of the present left solutions.


class _Entry:
    __slots__ = ("left", "partners")

    def __init__(self) -> None:
        self.left: dict[Solution, int] = {}
        self.partners: dict[Solution, int] = {}


class LookupJoin(Node):
    """Join a node with a source that answers by key.

    A key is requested at its first left solution and released after its last. `requests` counts
    work for tests.
    """

    def __init__(
        self,
        left: Node,
        source: LookupSource,
        keys: Sequence[Variable],
        right: Schema,
        *,
        monotone: bool = True,
    ) -> None:
        keys = tuple(keys)
        if not set(keys) <= left.certain:
            raise ValueError(f"keys must be bound on the left: {keys} of {left.schema}")
        overlap = {name for name in right if name in left.schema} - set(keys)
        if overlap:
            raise ValueError(f"shared variables must be keys: {sorted(overlap)}")
        added = tuple(name for name in right if name not in left.schema)
        super().__init__(
            left.schema + added,
            left.certain | frozenset(right),
            monotone=left.monotone and monotone,
        )
        self.requests = 0
        self._source = source
        self._key = projection(left.schema, keys)
        self._rest = projection(right, added)
        self._entries: dict[Solution, _Entry] = {}
        left.connect(self._push)

    def results_of(
        self, solution: Solution, answered: Callable[[Solution], bool]
    ) -> list[Solution] | None:
        """Return all joined rows of a left solution; ``None``: there may be more."""
        key = self._key(solution)
        entry = self._entries.get(key)
        if entry is None or solution not in entry.left:
            return []
        return [solution + rest for rest in entry.partners] if answered(key) else None

    def left_of(self, key: Solution) -> Iterable[Solution]:
        entry = self._entries.get(key)
        return () if entry is None else entry.left

    def _push(self, solution: Solution, count: int) -> None:
        key = self._key(solution)
        entry = self._entries.get(key)
        new = entry is None
        if entry is None:
            entry = self._entries[key] = _Entry()
        add_copies(entry.left, solution, count)
        for rest, times in entry.partners.items():
            self.emit(solution + rest, count * times)
        if new:
            self.requests += 1
            self._source.request(key, self._deliver_to(entry))
        elif not entry.left:
            del self._entries[key]
            self._source.release(key)

    def _deliver_to(self, entry: _Entry) -> Callable[[Iterable[Change]], None]:
        def deliver(changes: Iterable[Change]) -> None:
            # After the key was released nobody is left: what still arrives meets no one.
            emit = self.emit
            for partner, count in changes:
                rest = self._rest(partner)
                add_copies(entry.partners, rest, count)
                for solution, times in entry.left.items():
                    emit(solution + rest, count * times)

        return deliver
