"""Operators on typed values (SPARQL 1.1, sections 17.2 and 17.3).

As 17.3.1 allows, values of known, different types are unequal, and strings with the same language
tag are ordered.
"""

import math
import operator
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from annotations.terms import Term, is_literal, is_triple_term, literal_parts, triple_of_term
from tpf_client.sparql.expressions.dates import (
    EXACT,
    Duration,
    Moment,
    Time,
    add_duration,
    compare_durations,
    difference,
)
from tpf_client.sparql.expressions.values import (
    LONGEST,
    TRUTH_TYPES,
    BlankNode,
    EvaluationError,
    Iri,
    LanguageString,
    Opaque,
    Single,
    Value,
    divide,
    exact,
    product_of_integers,
    value_of,
)

_RANK: dict[type, int] = {int: 0, Decimal: 1, Single: 2, float: 3}
_NO_TYPED_LITERALS = frozenset((Iri, BlankNode, LanguageString))


def is_number(value: Value) -> bool:
    """True for a number (a boolean is none)."""
    return type(value) in _RANK


def _raise(value: Any, rank: int) -> Any:
    if rank == 1:
        return Decimal(value) if type(value) is int else value
    try:
        return Single(value) if rank == 2 else float(value)
    except OverflowError:
        raise EvaluationError from None


def promoted(left: Value, right: Value) -> tuple[int, Any, Any]:
    """Bring two numbers to one type, returned as its rank (section 17.3)."""
    one, other = _RANK.get(type(left)), _RANK.get(type(right))
    if one is None or other is None:
        raise EvaluationError
    if one == other:
        return one, left, right
    rank = max(one, other)
    return rank, _raise(left, rank), _raise(right, rank)


def _calculation(
    plain: Callable[[Any, Any], Any], precise: Callable[[Context, Decimal, Decimal], Decimal]
) -> Callable[[Value, Value], Value]:
    def calculate(left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            return plain(left, right)  # type: ignore[no-any-return]
        rank, one, other = promoted(left, right)
        if rank == 1:
            return exact(precise, one, other)
        result = plain(float(one), float(other))
        return Single(result) if rank == 2 else result

    return calculate


def _product(left: Any, right: Any) -> Any:
    return product_of_integers(left, right) if type(left) is int else left * right


_add_numbers = _calculation(operator.add, Context.add)
_subtract_numbers = _calculation(operator.sub, Context.subtract)
multiply = _calculation(_product, Context.multiply)


def add(left: Value, right: Value) -> Value:
    """``left + right``."""
    if is_number(left):
        return _add_numbers(left, right)
    if isinstance(left, Duration):
        if isinstance(right, Duration):
            return _sum(left, right, 1)
        left, right = right, left
    if isinstance(left, Moment) and isinstance(right, Duration):
        return _moved(left, right, 1)
    raise EvaluationError


def subtract(left: Value, right: Value) -> Value:
    """``left - right``."""
    if is_number(left):
        return _subtract_numbers(left, right)
    if isinstance(left, Duration) and isinstance(right, Duration):
        return _sum(left, right, -1)
    if isinstance(left, Moment):
        if isinstance(right, Duration):
            return _moved(left, right, -1)
        if isinstance(right, Moment) and type(left) is type(right):
            gap = difference(left, right)
            if gap is not None:
                return Duration(0, gap, "dayTimeDuration")
    raise EvaluationError


def _moved(point: Moment, duration: Duration, sign: int) -> Value:
    if isinstance(point, Time) and duration.datatype != "dayTimeDuration":
        raise EvaluationError
    return add_duration(point, duration, sign)


def _sum(left: Duration, right: Duration, sign: int) -> Duration:
    months = left.months + sign * right.months
    seconds = EXACT.fma(sign, right.seconds, left.seconds)
    if months * seconds < 0:
        raise EvaluationError
    same = left.datatype == right.datatype
    return Duration(months, seconds, left.datatype if same else "duration")


def quotient(left: Value, right: Value) -> Value:
    """``left / right``; integers give a decimal."""
    rank, one, other = promoted(left, right)
    if rank <= 1:
        return divide(Decimal(one), Decimal(other))
    one, other = float(one), float(other)
    if other:
        result = one / other
    elif not one or math.isnan(one):
        result = math.nan
    else:
        result = math.copysign(math.inf, one) * math.copysign(1, other)
    return Single(result) if rank == 2 else result


def negated(value: Value) -> Value:
    """``-value``."""
    if isinstance(value, Duration):
        return Duration(-value.months, EXACT.minus(value.seconds), value.datatype)
    if isinstance(value, Single):
        return Single(-value)
    if isinstance(value, Decimal):
        return EXACT.minus(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return -value
    raise EvaluationError


def unchanged(value: Value) -> Value:
    """``+value``."""
    if not is_number(value) and not isinstance(value, Duration):
        raise EvaluationError
    return value


def equal(left: Value, right: Value) -> bool:
    """``left = right``."""
    kind, other = type(left), type(right)
    if kind is other:
        if isinstance(left, Opaque) and isinstance(right, Opaque):
            if left == right:
                return True
            return _equal_unknown(left.term, right.term)
        if isinstance(left, Moment):
            gap = difference(left, right)  # type: ignore[arg-type]
            if gap is None:
                # A time zone is missing on one side: they may be the same or not.
                raise EvaluationError
            return gap == 0
        if isinstance(left, Duration) and isinstance(right, Duration):
            return left[:2] == right[:2]
        return left == right
    if kind in _RANK and other in _RANK:
        _, one, two = promoted(left, right)
        return bool(one == two)
    # A literal of an unknown type may be any value, but no IRI, blank node or text in a language;
    # a triple term is none.
    if Opaque in (kind, other) and not {kind, other} & _NO_TYPED_LITERALS:
        if any(isinstance(each, Opaque) and is_triple_term(each.term) for each in (left, right)):
            return False
        raise EvaluationError
    return False


def _equal_unknown(left: Term, right: Term) -> bool:
    if is_triple_term(left) and is_triple_term(right):
        pairs = zip(triple_of_term(left), triple_of_term(right), strict=True)
        # One part that differs is enough, whatever is not known of the others.
        unknown = False
        for one, other in pairs:
            try:
                if not equal(value_of(one), value_of(other)):
                    return False
            except EvaluationError:
                unknown = True
        if not unknown:
            return True
    elif is_triple_term(left) or is_triple_term(right):
        return False
    raise EvaluationError


def _order(name: str, compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    directly = frozenset((int, Decimal, float, Single, str, bool))

    def ordered(left: Value, right: Value) -> bool:
        kind, other = type(left), type(right)
        if kind is other:
            if kind in directly:
                return compare(left, right)
            if isinstance(left, Moment) and isinstance(right, Moment):
                if left.zone == right.zone:
                    return compare(left, right)
                gap = difference(left, right)
                if gap is not None:
                    return compare(gap, 0)
            elif isinstance(left, Duration) and isinstance(right, Duration):
                sign = compare_durations(left, right)
                if sign is not None:
                    return compare(sign, 0)
            elif (
                isinstance(left, LanguageString)
                and isinstance(right, LanguageString)
                and left.language == right.language
            ):
                return compare(left.text, right.text)
        elif kind in _RANK and other in _RANK:
            _, one, two = promoted(left, right)
            return compare(one, two)
        raise EvaluationError

    ordered.__doc__ = f"``left {name} right``."
    return ordered


less = _order("<", operator.lt)
greater = _order(">", operator.gt)
at_most = _order("<=", operator.le)
at_least = _order(">=", operator.ge)


def truth(value: Value) -> bool:
    """Return the effective boolean value (section 17.2.2); an `EvaluationError` if none."""
    kind = type(value)
    if kind is bool:
        return bool(value)
    if kind is str or kind in (int, Decimal):
        return bool(value)
    if isinstance(value, float):
        return bool(value) and value == value
    if isinstance(value, Opaque) and is_literal(value.term):
        lexical, _, datatype = literal_parts(value.term)
        # The value of a number that is too long is not known, but it is no ill-typed one.
        if datatype in TRUTH_TYPES and len(lexical) <= LONGEST:
            return False
    raise EvaluationError
