"""MIN, MAX and MEDIAN: the values of a group in their order.

What comes or goes is found by binary search, so that a change of a large group costs no more than
to find its place and to move what is behind it in memory.
"""

from bisect import bisect_left, insort
from typing import Any, Final

from tpf_client.dataflow.arithmetic_code import without_zeros
from tpf_client.dataflow.changes import UNBOUND, TermId
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.inlined import (
    DECIMAL,
    INTEGER,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.ordering import value_key

_Entry = tuple[Any, TermId]

_SCALE: Final = (1 << SCALE_BITS) - 1
# Most numbers with a fraction are amounts of money; more digits cost a new scale, once.
_USUAL_SCALE: Final = 2
# Quotients have no more digits behind the point.
_DIGITS: Final = 18


class Extreme:
    """MIN and MAX, by the order of ORDER BY."""

    def __init__(self, typed: TypedTerms, *, largest: bool) -> None:
        self._typed = typed
        self._place = -1 if largest else 0
        self._counts: dict[TermId, int] = {}
        self._entries: list[_Entry] = []
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
    """MEDIAN of numbers: the middle one, or the mean of the two in the middle.

    As long as all numbers are inlined, integers with a common scale are sorted, without a value
    being made of any of them.
    """

    __slots__ = ("_entries", "_failures", "_inlined", "_owed", "_scale", "_typed")

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._failures = 0
        self._entries: list[_Entry] = []
        """The values that are there, each as often as it is."""
        self._owed: dict[TermId, int] | None = None
        """How often a value must go that has not come yet: within a tick that may happen."""
        self._scale = _USUAL_SCALE
        self._inlined = True

    def _key(self, argument: TermId) -> Any:
        """What a number is sorted by; ``None`` for what is no number."""
        if self._inlined:
            tag = argument & TAG
            if tag == DECIMAL:
                scale = argument >> TAG_BITS & _SCALE
                if scale == self._scale:
                    return argument >> SCALE_BITS + TAG_BITS
                if scale > self._scale:
                    self._rescale(scale)
                return (argument >> SCALE_BITS + TAG_BITS) * 10 ** (self._scale - scale)
            if tag == INTEGER:
                return (argument >> TAG_BITS) * 10**self._scale
        key = self._key_of_value(argument)
        if self._inlined and key is not None:
            self._give_up()
        return key

    def _key_of_value(self, argument: TermId) -> Any:
        if not argument:
            return None
        value = self._typed[argument]
        return value_key(value) if operators.is_number(value) else None

    def _rescale(self, scale: int) -> None:
        factor = 10 ** (scale - self._scale)
        self._scale = scale
        self._entries[:] = [(key * factor, number) for key, number in self._entries]

    def _give_up(self) -> None:
        """Another kind of number has come: from now on values are compared."""
        self._inlined = False
        entries, self._entries = self._entries, []
        for _, number in entries:
            insort(self._entries, (self._key_of_value(number), number))

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        key = self._key(argument)
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
        return low[1] if low[1] == high[1] else self._mean(low, high)

    def _mean(self, low: _Entry, high: _Entry) -> TermId:
        if self._inlined:
            unscaled, scale = without_zeros((low[0] + high[0]) * 5, self._scale + 1)
            if scale <= _DIGITS and -MOST_UNSCALED < unscaled < MOST_UNSCALED:
                return (unscaled << SCALE_BITS | scale) << TAG_BITS | DECIMAL
        total = operators.add(self._typed[low[1]], self._typed[high[1]])
        return self._typed.encode(operators.quotient(total, 2))
