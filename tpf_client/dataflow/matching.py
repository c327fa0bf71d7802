"""What left join, minus and exists have in common: how many partners every left solution has.

Whether a left solution has any partner is known when the inputs of a tick are complete; so what
depends on it is sent at `flush`, for those left solutions that something happened to.
"""

from collections.abc import Callable
from typing import Any

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.hash_join import put
from tpf_client.dataflow.layout import Layout
from tpf_client.dataflow.node import Node

Pair = Callable[[Solution, Solution], bool]


class State:
    """What is known of one left solution.

    Attributes:
        key: the values of the variables that both sides bind.
        count: how many copies there are.
        partners: how many right solutions match it.
        shown: of how many copies something was sent.
        had_partners: whether they had partners.
    """

    __slots__ = ("count", "had_partners", "key", "partners", "shown")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.count = 0
        self.partners = 0
        self.shown = 0
        self.had_partners = False


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
        self._touched: dict[Solution, State] = {}
        self._left_key = how.left_key
        self._right_key = how.right_key
        self._pair = pair
        self._hears = type(self).matched is not Matching.matched
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
        bucket = self._left.get(key)
        if bucket is None:
            bucket = self._left[key] = {}
        state = bucket.get(solution)
        partners = self._right.get(key)
        if state is None:
            state = bucket[solution] = State(key)
            if partners:
                pair = self._pair
                for other, times in partners.items():
                    if pair(solution, other):
                        state.partners += times
        state.count += count
        self._touched[solution] = state
        if partners and self._hears:
            for other, times in partners.items():
                if self._pair(solution, other):
                    self.matched(solution, other, count * times)

    def _push_right(self, solution: Solution, count: int) -> None:
        key = self._right_key(solution)
        put(self._right, key, solution, count)
        bucket = self._left.get(key)
        if not bucket:
            return
        pair = self._pair
        for other, state in bucket.items():
            if pair(other, solution):
                state.partners += count
                self._touched[other] = state
                if self._hears:
                    self.matched(other, solution, state.count * count)

    def flush(self) -> None:
        """Send what changed about the left solutions that something happened to."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        emit, render = self.emit, self.render
        for solution, state in touched.items():
            count, has_partners = state.count, state.partners > 0
            if state.shown != count or state.had_partners != has_partners:
                if state.shown:
                    row = render(solution, state.had_partners)
                    if row is not None:
                        emit(row, -state.shown)
                if count:
                    row = render(solution, has_partners)
                    if row is not None:
                        emit(row, count)
                state.shown = count
                state.had_partners = has_partners
            if not count:
                self._forget(solution, state)

    def _forget(self, solution: Solution, state: State) -> None:
        bucket = self._left.get(state.key)
        if bucket is not None and bucket.get(solution) is state:
            del bucket[solution]
            if not bucket:
                del self._left[state.key]
