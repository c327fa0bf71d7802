"""The set functions of SPARQL, kept up to date under additions and removals.

Every accumulator sees the argument's term (`UNBOUND` where it is an error) with a count, and gives
the term of its result, `UNBOUND` for an error. Source: SPARQL 1.1 Query Language, section 18.5.1.
MEDIAN is an extension.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Protocol

from tpf_client.dataflow.changes import UNBOUND, TermId
from tpf_client.sparql.algebra import Aggregate
from tpf_client.sparql.expressions import operators
from tpf_client.sparql.expressions.terms import lexical_form
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import EvaluationError, Single, Value
from tpf_client.sparql.ordering import value_key


class Accumulator(Protocol):
    """The state of one aggregate of one group."""

    def add(self, argument: TermId, count: int) -> None:
        """The argument has this value in `count` more (or fewer) solutions of the group."""

    def result(self) -> TermId:
        """The value of the aggregate now."""


class Distinct:
    """Passes every argument on once."""

    def __init__(self, inner: Accumulator) -> None:
        self._inner = inner
        self._counts: dict[TermId, int] = {}
        self.result = inner.result

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        before = self._counts.get(argument, 0)
        after = before + count
        if after:
            self._counts[argument] = after
        else:
            self._counts.pop(argument, None)
        if (before > 0) != (after > 0):
            self._inner.add(argument, 1 if after > 0 else -1)


class Count:
    """COUNT(expression): how often it has a value."""

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._count = 0

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        if argument != UNBOUND:
            self._count += count

    def result(self) -> TermId:
        """See `Accumulator`."""
        return self._typed.encode(self._count)


class Sum:
    """SUM and AVG.

    Exact numbers are added and subtracted as they come and go; those with a binary point are added
    up anew, because what was added to them cannot be taken back exactly.
    """

    def __init__(self, typed: TypedTerms, *, average: bool = False) -> None:
        self._typed = typed
        self._average = average
        self._count = 0
        self._integers = 0
        self._decimals = Decimal(0)
        self._decimal_count = 0
        self._floats: dict[TermId, int] = {}
        self._failures = 0

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        self._count += count
        value = self._typed[argument] if argument else None
        if type(value) is int:
            self._integers += value * count
        elif isinstance(value, Decimal):
            self._decimals += value * count
            self._decimal_count += count
        elif isinstance(value, float):
            total = self._floats.get(argument, 0) + count
            if total:
                self._floats[argument] = total
            else:
                del self._floats[argument]
        else:
            self._failures += count

    def result(self) -> TermId:
        """See `Accumulator`."""
        if self._failures:
            return UNBOUND
        try:
            total: Value = self._integers
            if self._decimal_count:
                total = operators.add(total, self._decimals)
            for identifier, count in self._floats.items():
                number = self._typed[identifier]
                times = Single(count) if isinstance(number, Single) else float(count)
                total = operators.add(total, operators.multiply(number, times))
            if self._average and self._count:
                total = operators.quotient(total, self._count)
        except EvaluationError:
            return UNBOUND
        return self._typed.encode(total)


class Extreme:
    """MIN and MAX, by the order of ORDER BY."""

    def __init__(self, typed: TypedTerms, *, largest: bool) -> None:
        self._typed = typed
        self._largest = largest
        self._counts: dict[TermId, int] = {}
        self._best: TermId | None = None

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        total = self._counts.get(argument, 0) + count
        if total:
            self._counts[argument] = total
            if self._best is not None and argument != self._best and self._better(argument):
                self._best = argument
        else:
            del self._counts[argument]
            if argument == self._best:
                self._best = None

    def _better(self, identifier: TermId) -> bool:
        if not identifier or not self._best:
            return False
        new, old = value_key(self._typed[identifier]), value_key(self._typed[self._best])
        return new > old if self._largest else new < old

    def result(self) -> TermId:
        """See `Accumulator`."""
        if not self._counts or UNBOUND in self._counts:
            return UNBOUND
        if self._best is None:
            choose = max if self._largest else min
            self._best = choose(
                self._counts, key=lambda identifier: value_key(self._typed[identifier])
            )
        return self._best


class Sample:
    """SAMPLE: the value that has been there longest."""

    def __init__(self) -> None:
        self._counts: dict[TermId, int] = {}

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        total = self._counts.get(argument, 0) + count
        if total:
            self._counts[argument] = total
        else:
            del self._counts[argument]

    def result(self) -> TermId:
        """See `Accumulator`."""
        return next((identifier for identifier in self._counts if identifier), UNBOUND)


class GroupConcat:
    """GROUP_CONCAT: the lexical forms (or IRIs), in the order of their first arrival."""

    def __init__(self, typed: TypedTerms, separator: str) -> None:
        self._typed = typed
        self._separator = separator
        self._counts: dict[TermId, int] = {}

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        total = self._counts.get(argument, 0) + count
        if total:
            self._counts[argument] = total
        else:
            del self._counts[argument]

    def result(self) -> TermId:
        """See `Accumulator`."""
        decode = self._typed.dictionary.decode
        texts: list[str] = []
        try:
            for identifier, count in self._counts.items():
                if not identifier:
                    return UNBOUND
                texts += [lexical_form(decode(identifier))] * count
        except EvaluationError:
            return UNBOUND
        return self._typed.encode(self._separator.join(texts))


class Median:
    """MEDIAN of numbers: the middle one, or the mean of the two in the middle."""

    def __init__(self, typed: TypedTerms) -> None:
        self._typed = typed
        self._counts: dict[TermId, int] = {}

    def add(self, argument: TermId, count: int) -> None:
        """See `Accumulator`."""
        total = self._counts.get(argument, 0) + count
        if total:
            self._counts[argument] = total
        else:
            del self._counts[argument]

    def result(self) -> TermId:
        """See `Accumulator`."""
        total = sum(self._counts.values())
        if not total or UNBOUND in self._counts:
            return UNBOUND
        values = {identifier: self._typed[identifier] for identifier in self._counts}
        if not all(map(operators.is_number, values.values())):
            return UNBOUND
        ordered = sorted(values, key=lambda identifier: value_key(values[identifier]))
        low = high = UNBOUND
        passed = 0
        for identifier in ordered:
            passed += self._counts[identifier]
            if not low and passed >= (total + 1) // 2:
                low = identifier
            if passed >= total // 2 + 1:
                high = identifier
                break
        if low == high:
            return low
        middle = operators.quotient(operators.add(values[low], values[high]), 2)
        return self._typed.encode(middle)


def accumulator(aggregate: Aggregate, typed: TypedTerms) -> Callable[[], Accumulator]:
    """A factory of fresh accumulators for an aggregate."""

    def make() -> Accumulator:
        inner: Accumulator
        match aggregate.name:
            case "COUNT":
                inner = Count(typed)
            case "SUM" | "AVG":
                inner = Sum(typed, average=aggregate.name == "AVG")
            case "MIN" | "MAX":
                return Extreme(typed, largest=aggregate.name == "MAX")
            case "SAMPLE":
                return Sample()
            case "MEDIAN":
                inner = Median(typed)
            case "GROUP_CONCAT":
                inner = GroupConcat(typed, aggregate.separator)
            case _:
                raise ValueError(aggregate.name)
        return Distinct(inner) if aggregate.distinct else inner

    return make
