"""What left join, minus and exists have in common: how many partners every left solution has.

Whether a left solution has any partner is known when the inputs of a tick are complete; so what
depends on it is sent at `flush`, for those left solutions that something happened to.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from tpf_client.dataflow.changes import Sink, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.hash_join import put
from tpf_client.dataflow.operators.layout import Layout

Pair = Callable[[Solution, Solution], bool]

_LOOK_AT = 32
"""Left solutions that are asked about one by one, again and again: those that came first."""


class LeftState:
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
        self._left: dict[Any, dict[Solution, LeftState]] = {}
        self._right: dict[Any, dict[Solution, int]] = {}
        self._touched: dict[Solution, LeftState] = {}
        self.knows_all: Callable[[Solution], bool] | None = None
        """Whether all partners of a left solution have come; ``None``: that is not known singly."""
        self._hears = type(self).matched is not Matching.matched
        left.connect(self._left_sink(how.left_key, pair))
        right.connect(self._right_sink(how.right_key, pair))

    @property
    def pending(self) -> bool:
        """Whether something happened to a left solution."""
        return bool(self._touched)

    def clear(self) -> None:
        """Forget all solutions; nothing may be held back."""
        assert not self._touched
        self._left.clear()
        self._right.clear()

    def matched(self, left: Solution, right: Solution, count: int) -> None:
        """A matching pair appears or vanishes `count` times (at once, not at the flush)."""

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """What a left solution contributes to the output by itself, if anything."""
        raise NotImplementedError

    def _left_sink(self, key_of: Callable[[Solution], Any], pair: Pair) -> Sink:
        lefts, rights, touched = self._left, self._right, self._touched
        hears, matched = self._hears, self.matched

        def push(solution: Solution, count: int) -> None:
            key = key_of(solution)
            bucket = lefts.get(key)
            if bucket is None:
                bucket = lefts[key] = {}
            state = bucket.get(solution)
            partners = rights.get(key)
            if state is None:
                state = bucket[solution] = LeftState(key)
                if partners:
                    for other, times in partners.items():
                        if pair(solution, other):
                            state.partners += times
            state.count += count
            touched[solution] = state
            if partners and hears:
                for other, times in partners.items():
                    if pair(solution, other):
                        matched(solution, other, count * times)

        return push

    def _right_sink(self, key_of: Callable[[Solution], Any], pair: Pair) -> Sink:
        lefts, rights, touched = self._left, self._right, self._touched
        hears, matched = self._hears, self.matched

        def push(solution: Solution, count: int) -> None:
            key = key_of(solution)
            put(rights, key, solution, count)
            bucket = lefts.get(key)
            if not bucket:
                return
            for other, state in bucket.items():
                if pair(other, solution):
                    state.partners += count
                    touched[other] = state
                    if hears:
                        matched(other, solution, state.count * count)

        return push

    def flush(self) -> None:
        """Send what changed about the left solutions that something happened to."""
        if self._touched:
            touched = list(self._touched.items())
            self._touched.clear()
            self._send(touched)

    def flush_some(self) -> bool:
        """Send what is sure of the first left solutions, though others may be open; whether any."""
        if self.knows_all is None:
            return False
        first = islice(self._touched.items(), _LOOK_AT)
        known = [each for each in first if self.knows_all(each[0])]
        for solution, _ in known:
            del self._touched[solution]
        self._send(known)
        return bool(known)

    def _send(self, touched: Iterable[tuple[Solution, LeftState]]) -> None:
        emit, render = self.emit, self.render
        for solution, state in touched:
            count, has_partners = state.count, state.partners > 0
            kept = state.shown if state.had_partners == has_partners else 0
            for partners, change in (
                (state.had_partners, kept - state.shown),
                (has_partners, count - kept),
            ):
                row = render(solution, partners) if change else None
                if row is not None:
                    emit(row, change)
            state.shown = count
            state.had_partners = has_partners
            if not count:
                self._forget(solution, state)

    def _forget(self, solution: Solution, state: LeftState) -> None:
        bucket = self._left.get(state.key)
        if bucket is not None and bucket.get(solution) is state:
            del bucket[solution]
            if not bucket:
                del self._left[state.key]
