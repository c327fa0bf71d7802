"""MEDIAN of inlined numbers: integers are sorted, without a value being made of any of them."""

from bisect import insort
from typing import Any, Final

from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.ordered_aggregates import Entry, Median
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_server.cqels.arithmetic_code import without_zeros
from tpf_server.cqels.dictionary import (
    DECIMAL,
    INTEGER,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)

_SCALE: Final = (1 << SCALE_BITS) - 1
# Most numbers with a fraction are amounts of money; more digits cost a new scale, once.
_USUAL_SCALE: Final = 2
# Quotients have no more digits behind the point.
_DIGITS: Final = 18


class InlinedMedian(Median):
    """MEDIAN by integers with a common scale, as long as all numbers are inlined."""

    __slots__ = ("_inlined", "_scale")

    def __init__(self, typed: TypedTerms) -> None:
        super().__init__(typed)
        self._scale = _USUAL_SCALE
        self._inlined = True

    def key(self, argument: TermId) -> Any:
        """See `Median`."""
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
            if argument and operators.is_number(self._typed[argument]):
                self._give_up()
        return super().key(argument)

    def _rescale(self, scale: int) -> None:
        factor = 10 ** (scale - self._scale)
        self._scale = scale
        self._entries[:] = [(key * factor, number) for key, number in self._entries]

    def _give_up(self) -> None:
        """Another kind of number has come: from now on values are compared."""
        self._inlined = False
        entries, self._entries = self._entries, []
        for _, number in entries:
            insort(self._entries, (super().key(number), number))

    def mean(self, low: Entry, high: Entry) -> TermId:
        """See `Median`."""
        if self._inlined:
            unscaled, scale = without_zeros((low[0] + high[0]) * 5, self._scale + 1)
            if scale <= _DIGITS and -MOST_UNSCALED < unscaled < MOST_UNSCALED:
                return (unscaled << SCALE_BITS | scale) << TAG_BITS | DECIMAL
        return super().mean(low, high)
