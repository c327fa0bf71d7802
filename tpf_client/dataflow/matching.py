"""What left join, minus and exists have in common: how many partners every left solution has.

Whether a left solution has any partner is known when the inputs of a tick are complete; so what
depends on it is sent at `flush`, for those left solutions that something happened to.
"""

from collections.abc import Callable
from typing import Any

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.layout import Layout
from tpf_client.dataflow.node import Node

Pair = Callable[[Solution, Solution], bool]


class State:
    """What is known of one left solution.

    Attributes:
        count: how many copies there are.
        partners: how many right solutions match it.
        shown: what was sent about it (`count`, whether it had partners), or ``None``.
    """

    __slots__ = ("count", "partners", "shown")

    def __init__(self) -> None:
        self.count = 0
        self.partners = 0
        self.shown: tuple[int, bool] | None = None


class Matching(Node):
    """Counts the partners of left solutions, and lets subclasses send what follows from that."""

    def __init__(
        self,
        left: Node,
        right: Node,
        how: Layout,
        schema: tuple[Any, ...],
        certain: frozenset[Any],
        pair: Pair,
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self._left: dict[Any, dict[Solution, State]] = {}
        self._right: dict[Any, dict[Solution, int]] = {}
        self._touched: dict[Solution, tuple[Any, State]] = {}
        self._left_key = how.left_key
        self._right_key = how.right_key
        self._pair = pair
        left.connect(self._push_left)
        right.connect(self._push_right)

    @property
    def pending(self) -> bool:
        """Whether something happened to a left solution."""
        return bool(self._touched)

    def matched(self, left: Solution, right: Solution, count: int) -> None:
        """A matching pair appears or vanishes `count` times (at once, not at the flush)."""

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """What a left solution contributes to the output by itself, if anything."""
        raise NotImplementedError

    def _push_left(self, solution: Solution, count: int) -> None:
        key = self._left_key(solution)
        bucket = self._left.setdefault(key, {})
        state = bucket.get(solution)
        partners = self._right.get(key, {})
        if state is None:
            state = bucket[solution] = State()
            state.partners = sum(
                times for other, times in partners.items() if self._pair(solution, other)
            )
        state.count += count
        self._touched[solution] = (key, state)
        for other, times in partners.items():
            if self._pair(solution, other):
                self.matched(solution, other, count * times)

    def _push_right(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        bucket = self._right.setdefault(key, {})
        total = bucket.get(solution, 0) + count
        if total:
            bucket[solution] = total
        else:
            del bucket[solution]
            if not bucket:
                del self._right[key]
        for other, state in self._left.get(key, {}).items():
            if self._pair(other, solution):
                state.partners += count
                self._touched[other] = (key, state)
                self.matched(other, solution, state.count * count)

    def flush(self) -> None:
        """Send what changed about the left solutions that something happened to."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        for solution, (key, state) in touched.items():
            now = (state.count, state.partners > 0)
            if state.shown != now:
                if state.shown is not None:
                    self._send(solution, -state.shown[0], state.shown[1])
                self._send(solution, *now)
                state.shown = now
            if not state.count:
                bucket = self._left.get(key, {})
                if bucket.get(solution) is state:
                    del bucket[solution]
                if not bucket:
                    self._left.pop(key, None)

    def _send(self, solution: Solution, count: int, has_partners: bool) -> None:
        if count:
            row = self.render(solution, has_partners)
            if row is not None:
                self.emit(row, count)
