"""MIN, MAX and MEDIAN: the values of a group in their order.

What comes or goes is found by binary search, so that a change of a large group costs no more than
to find its place and to move what is behind it in memory.
"""

from bisect import bisect_left, insort
from typing import Any

from tpf_client.dataflow.changes import UNBOUND, TermId
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.ordering import value_key

Entry = tuple[Any, TermId]


class Extreme:
    """MIN and MAX, by the order of ORDER BY."""

    def __init__(self, typed: TypedTerms, *, largest: bool) -> None:
        self._typed = typed
        self._place = -1 if largest else 0
        self._counts: dict[TermId, int] = {}
        self._entries: list[Entry] = []
        """The values that are there, each once."""

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        before = self._counts.get(argument, 0)
        after = before + count
        if after:
            self._counts[argument] = after
        else:
            self._counts.pop(argument, None)
        if not argument or (before > 0) == (after > 0):
            return
        entry = (value_key(self._typed[argument]), argument)
        if after > 0:
            insort(self._entries, entry)
        else:
            del self._entries[bisect_left(self._entries, entry)]

    def result(self) -> TermId:
        """See `Accumulator`."""
        if not self._entries or UNBOUND in self._counts:
            return UNBOUND
        return self._entries[self._place][1]


class Median:
    """MEDIAN of numbers: the middle one, or the mean of the two in the middle."""

    __slots__ = ("_entries", "_failures", "_owed", "_typed")

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._failures = 0
        self._entries: list[Entry] = []
        """The values that are there, each as often as it is."""
        self._owed: dict[TermId, int] | None = None
        """How often a value must go that has not come yet: within a tick that may happen."""

    def key(self, argument: TermId) -> Any:
        """What a number is sorted by; ``None`` for what is no number."""
        if not argument:
            return None
        value = self._typed[argument]
        return value_key(value) if operators.is_number(value) else None

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        key = self.key(argument)
        if key is None:
            self._failures += count
            return
        entry = (key, argument)
        entries = self._entries
        if count == 1 and not self._owed:
            insort(entries, entry)
            return
        balance = count - (self._owed.pop(argument, 0) if self._owed else 0)
        for _ in range(balance):
            insort(entries, entry)
        while balance < 0:
            place = bisect_left(entries, entry)
            if place == len(entries) or entries[place] != entry:
                self._owed = self._owed or {}
                self._owed[argument] = -balance
                return
            del entries[place]
            balance += 1

    def result(self) -> TermId:
        """See `Accumulator`."""
        entries = self._entries
        if self._failures or not entries:
            return UNBOUND
        high = entries[len(entries) // 2]
        if len(entries) % 2:
            return high[1]
        low = entries[len(entries) // 2 - 1]
        return low[1] if low[1] == high[1] else self.mean(low, high)

    def mean(self, low: Entry, high: Entry) -> TermId:
        """The mean of two numbers."""
        total = operators.add(self._typed[low[1]], self._typed[high[1]])
        return self._typed.encode(operators.quotient(total, 2))
