"""The set functions of SPARQL 1.1 (section 18.5.1) and MEDIAN, maintained under changes.

Accumulators take an argument's term (`UNBOUND` for an error) with a count, and give the result's.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from math import fsum, inf, isfinite, nan
from typing import Any, Final, Protocol

from tpf_client.dataflow.changes import UNBOUND, TermId, add_copies
from tpf_client.dataflow.node import Work
from tpf_client.sparql.algebra import Aggregate
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.inlined import (
    DECIMAL,
    INTEGER,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG,
    TAG_BITS,
    without_zeros,
)
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import (
    LONGEST,
    LONGEST_STRING,
    EvaluationError,
    Single,
    Value,
    lexical_form,
)
from tpf_client.sparql.ordering import value_key

# MIN, MAX and MEDIAN: the values of a group in their order.
#
# What comes or goes is found by binary search, so that a change of a large group costs no more
# than to find its place and to move what is behind it in memory.

_Entry = tuple[Any, TermId]


class Extreme:
    """MIN and MAX of `DistinctArguments`, by the order of ORDER BY."""

    def __init__(self, typed: TypedTerms, *, largest: bool) -> None:
        self._typed = typed
        self._position = -1 if largest else 0
        self._failed = False
        self._entries: list[_Entry] = []

    def add(self, argument: TermId, count: int) -> None:
        if not argument:
            self._failed = count > 0
            return
        entry = (value_key(self._typed[argument]), argument)
        if count > 0:
            insort(self._entries, entry)
        else:
            del self._entries[bisect_left(self._entries, entry)]

    def result(self) -> TermId:
        if self._failed or not self._entries:
            return UNBOUND
        return self._entries[self._position][1]


class Median:
    """MEDIAN of numbers: the middle one, or the mean of two."""

    __slots__ = ("_entries", "_failures", "_owed", "_typed")

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._failures = 0
        self._entries: list[_Entry] = []
        """The values that are there, each as often as it is."""
        self._owed: dict[TermId, int] = {}
        """How often a value must go that has not come yet: within a tick that may happen."""

    def add(self, argument: TermId, count: int) -> None:
        value = self._typed[argument] if argument else None
        if value is None or not operators.is_number(value):
            self._failures += count
            return
        entry = (value_key(value), argument)
        entries = self._entries
        balance = count - self._owed.pop(argument, 0)
        for _ in range(balance):
            insort(entries, entry)
        while balance < 0:
            position = bisect_left(entries, entry)
            if position == len(entries) or entries[position] != entry:
                self._owed[argument] = -balance
                return
            del entries[position]
            balance += 1

    def result(self) -> TermId:
        entries = self._entries
        if self._failures or not entries:
            return UNBOUND
        high = entries[len(entries) // 2][1]
        if len(entries) % 2:
            return high
        low = entries[len(entries) // 2 - 1][1]
        if low == high:
            return low
        total = operators.add(self._typed[low], self._typed[high])
        return self._typed.encode(operators.quotient(total, 2))


_SCALE: Final = (1 << SCALE_BITS) - 1
_PLACES: Final = 18
_POWERS: Final = [10**power for power in range(_PLACES + 1)]
_ONE: Final = 10**_PLACES
_CHARACTERS: Final = 256
"""As many characters count like one value more."""
# Enough for sums of as many decimals as there may be: what was added can be taken away.
_EXACT: Final = Context(prec=2 * LONGEST + 40)


class Accumulator(Protocol):
    """The state of one aggregate of one group."""

    def add(self, argument: TermId, count: int) -> None:
        """Add (or remove) the argument of `count` solutions."""

    def result(self) -> TermId:
        """The value of the aggregate now."""


class DistinctArguments:
    """Pass every distinct argument on once, to `inner`."""

    def __init__(self, inner: Accumulator) -> None:
        self.inner = inner
        self._counts: dict[TermId, int] = {}
        self.result = inner.result

    def add(self, argument: TermId, count: int) -> None:
        after = add_copies(self._counts, argument, count)
        if (after - count > 0) != (after > 0):
            self.inner.add(argument, 1 if after > 0 else -1)


class Count:
    """COUNT(expression): how often it has a value."""

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._count = 0

    def add(self, argument: TermId, count: int) -> None:
        if argument != UNBOUND:
            self._count += count

    def result(self) -> TermId:
        return self._typed.encode(self._count)


class Sum:
    """SUM and AVG."""

    def __init__(self, typed: TypedTerms, *, average: bool = False) -> None:
        self._typed = typed
        self._average = average
        self._count = 0
        self._integers = 0
        # Decimals: in parts of 10^-18, and those that are longer.
        self._parts = 0
        self._decimals = Decimal(0)
        self._decimal_count = self._longer = 0
        self._floats: dict[TermId, int] = {}
        self._failures = 0

    def add(self, argument: TermId, count: int) -> None:
        self._count += count
        tag = argument & TAG
        if tag == INTEGER:
            self._integers += (argument >> TAG_BITS) * count
            return
        scale = argument >> TAG_BITS & _SCALE
        if tag == DECIMAL and scale <= _PLACES:
            unscaled = argument >> SCALE_BITS + TAG_BITS
            self._parts += unscaled * _POWERS[_PLACES - scale] * count
            self._decimal_count += count
            return
        value = self._typed[argument] if argument else None
        if type(value) is int:
            self._integers += value * count
        elif isinstance(value, Decimal):
            self._decimals = _EXACT.fma(value, count, self._decimals)
            self._decimal_count += count
            self._longer += count
        elif isinstance(value, float):
            add_copies(self._floats, argument, count)
        else:
            self._failures += count

    def result(self) -> TermId:
        if self._failures:
            return UNBOUND
        parts, decimals = self._parts, self._decimal_count
        if not self._floats and not self._longer:
            return self._result_of(self._count, self._integers * _ONE + parts, decimals)
        try:
            total: Value = self._integers
            if decimals:
                short = Decimal(parts).scaleb(-_PLACES, _EXACT)
                total = operators.add(total, _EXACT.add(short, self._decimals))
            if self._floats:
                total = operators.add(total, self._floating())
            if self._average and self._count:
                total = operators.quotient(total, self._count)
        except EvaluationError:
            return UNBOUND
        return self._typed.encode(total)

    def _result_of(self, count: int, total: int, decimals: int) -> TermId:
        if self._average and count:
            total = total // count if total >= 0 else -(-total // count)
        elif not decimals:
            return self._typed.encode(total // _ONE)
        unscaled, scale = without_zeros(total, _PLACES)
        if -MOST_UNSCALED < unscaled < MOST_UNSCALED:
            return (unscaled << SCALE_BITS | scale) << TAG_BITS | DECIMAL
        return self._typed.encode(Decimal(unscaled).scaleb(-scale, _EXACT))

    def _floating(self) -> float:
        single = True
        products = []
        for identifier, count in self._floats.items():
            number = self._typed[identifier]
            assert isinstance(number, float)
            single = single and isinstance(number, Single)
            products.append(float(number) * count)
        special = [each for each in products if not isfinite(each)]
        try:
            total = fsum(special or products)
        except ValueError:
            total = nan  # infinities of both signs
        except OverflowError:
            total = _rounded(sum(map(Fraction, products)))
        return Single(total) if single else total


def _rounded(exact: Fraction | int) -> float:
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


class _Counts:
    def __init__(self) -> None:
        self._counts: dict[TermId, int] = {}

    def add(self, argument: TermId, count: int) -> None:
        add_copies(self._counts, argument, count)


class Sample(_Counts):
    """SAMPLE: the value that has been there longest."""

    def result(self) -> TermId:
        return next((identifier for identifier in self._counts if identifier), UNBOUND)


class GroupConcat(_Counts):
    """GROUP_CONCAT: the lexical forms (or IRIs), in the order of their first arrival."""

    def __init__(self, typed: TypedTerms, separator: str) -> None:
        self._typed = typed
        self._separator = separator
        self._work: Work | None = None
        super().__init__()

    def limit(self, work: Work) -> None:
        self._work = work

    def result(self) -> TermId:
        decode = self._typed.dictionary.decode
        texts: list[str] = []
        size = 0
        try:
            for identifier, count in self._counts.items():
                if not identifier:
                    return UNBOUND
                text = lexical_form(decode(identifier))
                size += count * (len(text) + len(self._separator))
                if size > LONGEST_STRING:
                    return UNBOUND
                texts += [text] * count
        except EvaluationError:
            return UNBOUND
        if self._work is not None:
            self._work.read(len(texts) + size // _CHARACTERS, size)
        return self._typed.encode(self._separator.join(texts))


def limit_accumulators(accumulators: Iterable[Accumulator], work: Work) -> None:
    """Bound the reading of accumulators that read all values for each result."""
    for each in accumulators:
        inner = each.inner if isinstance(each, DistinctArguments) else each
        if isinstance(inner, GroupConcat):
            inner.limit(work)


def accumulator(
    aggregate: Aggregate,
    typed: TypedTerms,
) -> Callable[[], Accumulator]:
    """Return a factory of accumulators for an aggregate."""
    make: Callable[[], Accumulator]
    match aggregate.name:
        case "COUNT":
            make = partial(Count, typed)
        case "SUM" | "AVG":
            make = partial(Sum, typed, average=aggregate.name == "AVG")
        case "MIN" | "MAX":
            make = partial(Extreme, typed, largest=aggregate.name == "MAX")
        case "SAMPLE":
            return Sample
        case "MEDIAN":
            make = partial(Median, typed)
        case "GROUP_CONCAT":
            make = partial(GroupConcat, typed, aggregate.separator)
        case _:
            raise ValueError(aggregate.name)
    distinct = aggregate.distinct or aggregate.name in ("MIN", "MAX")
    return (lambda: DistinctArguments(make())) if distinct else make
