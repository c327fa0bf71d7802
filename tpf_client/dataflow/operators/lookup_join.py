"""Lookup join: ask a source for the partners of the present left solutions."""

from collections.abc import Callable, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import (
    Change,
    LookupSource,
    Schema,
    Solution,
    projection,
)
from tpf_client.dataflow.node import Node


class _Entry:
    __slots__ = ("left", "partners")

    def __init__(self) -> None:
        self.left: dict[Solution, int] = {}
        self.partners: dict[Solution, int] = {}


class LookupJoin(Node):
    """Join a node with a source that answers by key.

    A key is requested at its first left solution and released after its last. `keys` are in the
    source's order, certainly bound on the left; in `right`, the source's schema, they equal the
    key. `requests` counts work for tests.
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

    def found(
        self, solution: Solution, answered: Callable[[Solution], bool]
    ) -> list[Solution] | None:
        """Return all joined rows of a left solution; ``None``: there may be more."""
        key = self._key(solution)
        entry = self._entries.get(key)
        if entry is None or solution not in entry.left:
            return []
        return [solution + rest for rest in entry.partners] if answered(key) else None

    def left_of(self, key: Solution) -> Iterable[Solution]:
        """Return the present left solutions of a key."""
        entry = self._entries.get(key)
        return () if entry is None else entry.left

    def _push(self, solution: Solution, count: int) -> None:
        key = self._key(solution)
        entry = self._entries.get(key)
        new = entry is None
        if entry is None:
            entry = self._entries[key] = _Entry()
        total = entry.left.get(solution, 0) + count
        if total:
            entry.left[solution] = total
        else:
            entry.left.pop(solution, None)
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
                total = entry.partners.get(rest, 0) + count
                if total:
                    entry.partners[rest] = total
                else:
                    entry.partners.pop(rest, None)
                for solution, times in entry.left.items():
                    emit(solution + rest, count * times)

        return deliver
