"""Evaluate expressions over whole columns of term integers, where that is exact.

As in `tpf_client.dataflow.arithmetic`, values are inside the integers, with at most 64 bits; tag
and scale are those of the first row. Rows that differ, or for which SPARQL has another rule
(rounding of a negative dividend), are marked inexact, for the caller to compute one by one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.inlined import (
    BOOLEAN,
    DECIMAL,
    INTEGER,
    MOST_INTEGER,
    MOST_SCALE,
    SCALE_BITS,
    TAG,
    TAG_BITS,
    TRUE_ID,
)

Column = np.ndarray[Any, np.dtype[np.int64]]
RowMask = np.ndarray[Any, np.dtype[np.bool_]]

_MOST: Final = 1 << 62
_SHIFT: Final = TAG_BITS + SCALE_BITS
_MOST_UNSCALED: Final = 1 << 63 - _SHIFT
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}


class _UnsupportedError(Exception):
    """Columns cannot compute this."""


class _Numbers(NamedTuple):
    """The values of an expression.

    Args:
        values: unscaled numbers, or truth values.
        most: the largest absolute value.
    """

    values: Any
    tag: int
    scale: int
    most: int


class ColumnExpressions:
    """Compute expressions."""

    def __init__(self, encode: Callable[[Term], TermId]) -> None:
        self._encode = encode
        self._exact: RowMask = np.empty(0, np.bool_)

    def cells(
        self, expression: Expression, columns: Mapping[Variable, Column]
    ) -> tuple[Column, RowMask] | None:
        """Return the integers of the values by row, and the rows for which they are right."""
        rows = len(next(iter(columns.values())))
        self._exact = np.ones(rows, np.bool_)
        if isinstance(expression, VariableRef):
            column = columns.get(expression.variable)
            return None if column is None else (column, self._exact)
        try:
            values, tag, scale, most = self._numbers(expression, columns)
        except _UnsupportedError:
            return None
        if tag == BOOLEAN:
            cells = np.where(values, TRUE_ID, BOOLEAN).astype(np.int64)
        elif tag == INTEGER and most < MOST_INTEGER:
            cells = values << TAG_BITS | INTEGER
        elif tag == DECIMAL and most < _MOST_UNSCALED:
            cells = _packed(values, scale)
        else:
            return None
        # A constant is as many integers, too: the kernel reads them one behind the other.
        return np.ascontiguousarray(np.broadcast_to(cells, (rows,))), self._exact

    def _numbers(self, expression: Expression, columns: Mapping[Variable, Column]) -> _Numbers:
        match expression:
            case VariableRef(variable) if variable in columns:
                return self._unpacked(columns[variable])
            case Constant(term):
                cell = self._encode(term)
                if not -_MOST < cell < _MOST:
                    raise _UnsupportedError
                return self._unpacked(np.array([cell]))
            case Call("ROUND" | "FLOOR" as name, (Call("/", (dividend, divisor)),)):
                return self._whole_quotient(
                    name, self._numbers(dividend, columns), self._numbers(divisor, columns)
                )
            case Call("&&", arguments):
                one, other = (self._numbers(each, columns) for each in arguments)
                if one.tag != BOOLEAN or other.tag != BOOLEAN:
                    raise _UnsupportedError
                return _Numbers(np.logical_and(one.values, other.values), BOOLEAN, 0, 1)
            case Call(name, (one, other)) if name in _COMPARISONS or name in "+-*":
                return _binary(name, self._numbers(one, columns), self._numbers(other, columns))
        raise _UnsupportedError

    def _unpacked(self, column: Column) -> _Numbers:
        first = int(column[0])
        tag = first & TAG
        if tag not in (INTEGER, DECIMAL):
            raise _UnsupportedError
        mask, shift = (TAG, TAG_BITS) if tag == INTEGER else ((1 << _SHIFT) - 1, _SHIFT)
        like = (column & mask) == (first & mask)
        values = column >> shift
        if not like.all():
            self._exact = self._exact & like
            values = np.where(like, values, 0)
        scale = first >> TAG_BITS & MOST_SCALE if tag == DECIMAL else 0
        most = max(int(values.max()), -int(values.min()))
        return _Numbers(values, tag, scale, most)

    def _whole_quotient(self, name: str, left: _Numbers, right: _Numbers) -> _Numbers:
        """Compute ROUND and FLOOR of a quotient by a positive constant.

        A negative one is truncated before it is rounded.
        """
        left, right = _number(left), _number(right)
        if len(right.values) != 1 or right.values[0] <= 0:
            raise _UnsupportedError
        up = 10 ** max(0, right.scale - left.scale)
        divisor = int(right.values[0]) * 10 ** max(0, left.scale - right.scale)
        most = _bounded(2 * up * left.most + 2 * divisor)
        self._exact = self._exact & (left.values >= 0)
        if name == "ROUND":
            result = (left.values * (2 * up) + divisor) // (2 * divisor)
        else:
            result = left.values * up // divisor
        return _Numbers(result, DECIMAL, 0, most // divisor)


def _number(value: _Numbers) -> _Numbers:
    if value.tag == BOOLEAN:
        raise _UnsupportedError
    return value


def _bounded(most: int) -> int:
    if most >= _MOST:
        raise _UnsupportedError
    return most


def _binary(name: str, left: _Numbers, right: _Numbers) -> _Numbers:
    left, right = _number(left), _number(right)
    tag = DECIMAL if DECIMAL in (left.tag, right.tag) else INTEGER
    if name == "*":
        scale = left.scale + right.scale
        if scale > MOST_SCALE:
            raise _UnsupportedError
        return _Numbers(left.values * right.values, tag, scale, _bounded(left.most * right.most))
    scale = max(left.scale, right.scale)
    one, other = 10 ** (scale - left.scale), 10 ** (scale - right.scale)
    most = _bounded(left.most * one + right.most * other)
    if max(one, other) >= _MOST:
        raise _UnsupportedError
    first, second = left.values * one, right.values * other
    if name in _COMPARISONS:
        return _Numbers(_COMPARISONS[name](first, second), BOOLEAN, 0, 1)
    return _Numbers(first + second if name == "+" else first - second, tag, scale, most)


def _packed(values: Column, scale: int) -> Column:
    if not scale:
        return values << _SHIFT | DECIMAL
    scales = np.full(len(values), scale, np.int64)
    for _ in range(scale):
        longer = (values % 10 == 0) & (scales > 0)
        if not longer.any():
            break
        values = np.where(longer, values // 10, values)
        scales = scales - longer
    return (values << SCALE_BITS | scales) << TAG_BITS | DECIMAL
