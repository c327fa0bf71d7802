"""Typed values of terms (XML Schema 1.1 part 2; SPARQL 1.1, section 17.1).

Ill-typed and long literals and triple terms are `Opaque`. Values are written as pyoxigraph does.
"""

import re
import struct
from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal, Inexact, InvalidOperation, Overflow
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

from annotations.namespaces import XSD
from annotations.terms import Term, is_blank_node, is_iri, is_literal, literal, literal_parts
from tpf_client.sparql.expressions.dates import (
    DATE_READERS,
    Duration,
    Moment,
    digits_of,
    write_date_value,
)


class EvaluationError(Exception):
    """The error value of SPARQL expressions (section 17.2); internal to them."""


class Iri(NamedTuple):
    """An IRI."""

    value: str


class BlankNode(NamedTuple):
    """A blank node."""

    label: str


class LanguageString(NamedTuple):
    """A string with a language tag (in lower case)."""

    text: str
    language: str


class Single(float):
    """An xsd:float: a double with the value of a 32-bit number."""

    __slots__ = ()

    def __new__(cls, value: float) -> "Single":
        try:
            return super().__new__(cls, struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return super().__new__(cls, float("inf") if value > 0 else float("-inf"))


class Opaque(NamedTuple):
    """A term whose value nobody here knows."""

    term: Term


Value: TypeAlias = (
    Iri
    | BlankNode
    | str
    | LanguageString
    | bool
    | int
    | Decimal
    | Single
    | float
    | Moment
    | Duration
    | Opaque
)

TRUE = literal("true", datatype=XSD + "boolean")
FALSE = literal("false", datatype=XSD + "boolean")

_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
BOUNDS: dict[str, tuple[float, float]] = {
    XSD + "integer": (-inf, inf),
    XSD + "nonNegativeInteger": (0, inf),
    XSD + "positiveInteger": (1, inf),
    XSD + "nonPositiveInteger": (-inf, 0),
    XSD + "negativeInteger": (-inf, -1),
    **{XSD + name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _BITS.items()},
    **{f"{XSD}unsigned{name.title()}": (0, 2**bits - 1) for name, bits in _BITS.items()},
}
"""The least and the greatest value of xsd:integer and what is derived from it."""
INTEGER_TYPES = frozenset(BOUNDS)

TRUTH_TYPES = INTEGER_TYPES | {XSD + name for name in ("boolean", "decimal", "float", "double")}
"""Datatypes of literals that have an effective boolean value, also if they are ill-typed."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"INF": "inf", "+INF": "inf", "-INF": "-inf", "NaN": "nan"}
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}

# Decimals have 18 digits behind the point, as in pyoxigraph; before it as many as are needed.
_EXACT = Context(prec=400, rounding=ROUND_DOWN)
_ALL_DIGITS = Context(prec=1000, traps=[Inexact, InvalidOperation, Overflow])
LONGEST = 300
"""Characters of a number, date or duration whose value is known."""

LONGEST_STRING = 2**22
"""Characters that a computed string has at most; more is an error (see `bounded`)."""
_STEP = Decimal(1).scaleb(-18)
_MOST_BITS = 4096


def read_integer(lexical: str) -> int | None:
    """Parse an xsd:integer; ``None`` if invalid."""
    return int(lexical) if _INTEGER.fullmatch(lexical) else None


def _bounded_integer(least: float, most: float, lexical: str) -> int | None:
    value = read_integer(lexical)
    return value if value is not None and least <= value <= most else None


def read_decimal(lexical: str) -> Decimal | None:
    """Parse an xsd:decimal; ``None`` if invalid."""
    return Decimal(lexical) if _DECIMAL.fullmatch(lexical) else None


def read_double(lexical: str) -> float | None:
    """Parse an xsd:double or xsd:float; ``None`` if invalid."""
    if _DOUBLE.fullmatch(lexical):
        return float(lexical)
    special = _SPECIAL.get(lexical)
    return None if special is None else float(special)


def _read_single(lexical: str) -> Single | None:
    value = read_double(lexical)
    return None if value is None else Single(value)


_READERS: dict[str, Callable[[str], Value | None]] = {
    XSD + "boolean": _BOOLEAN.get,
    **{name: partial(_bounded_integer, *bounds) for name, bounds in BOUNDS.items()},
    XSD + "integer": read_integer,
    XSD + "decimal": read_decimal,
    XSD + "double": read_double,
    XSD + "float": _read_single,
    **DATE_READERS,
}


def value_of(term: Term) -> Value:
    """The typed value of a term."""
    if is_iri(term):
        return Iri(term[1:-1])
    if is_blank_node(term):
        return BlankNode(term[2:])
    if not is_literal(term):
        return Opaque(term)
    lexical, language, datatype = literal_parts(term)
    if language is not None:
        return LanguageString(lexical, language)
    if datatype == XSD + "string":
        return lexical
    reader = _READERS.get(datatype)
    if reader is None:
        return Opaque(term)
    lexical = lexical.strip(" \t\r\n")
    value = reader(lexical) if len(lexical) <= LONGEST else None
    return Opaque(term) if value is None else value


def term_of(value: Value) -> Term:
    """Return the canonical term of a computed value."""
    kind = type(value)
    if kind is bool:
        return TRUE if value else FALSE
    if kind is str:
        return literal(str(value))
    if isinstance(value, Iri):
        return Term(f"<{value.value}>")
    if isinstance(value, BlankNode):
        return Term(f"_:{value.label}")
    if isinstance(value, LanguageString):
        return literal(value.text, language=value.language)
    if isinstance(value, Opaque):
        return value.term
    lexical, datatype = lexical_of(value)
    return literal(lexical, datatype=datatype)


def lexical_of(value: Value) -> tuple[str, str]:
    """Return the canonical form and datatype of a number, boolean, date or duration."""
    if isinstance(value, bool):
        return ("true" if value else "false"), XSD + "boolean"
    if isinstance(value, int):
        return str(value), XSD + "integer"
    if isinstance(value, Decimal):
        return decimal_text(value), XSD + "decimal"
    if isinstance(value, float):
        return double_text(value), XSD + ("float" if isinstance(value, Single) else "double")
    if isinstance(value, (Moment, Duration)):
        return write_date_value(value)
    raise TypeError(f"no lexical form: {value!r}")


def lexical_form(term: Term) -> str:
    """STR; an `EvaluationError` for a blank node or a triple term."""
    if is_iri(term):
        return term[1:-1]
    if is_literal(term):
        return literal_parts(term).lexical
    raise EvaluationError


def decimal_text(value: Decimal) -> str:
    """The canonical lexical form of an xsd:decimal."""
    text = digits_of(value)
    return "0" if text in ("-0", "") else text


def double_text(value: float) -> str:
    """Write a double or float, as short as is exact."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "INF" if value > 0 else "-INF"
    digits = repr(float(value))
    if isinstance(value, Single):
        digits = next(
            text
            for text in (f"{float(value):.{n}g}" for n in range(1, 10))
            if Single(float(text)) == value
        )
    text = digits_of(Decimal(digits))
    # No longer than what is read as a number again.
    return text if len(text) <= LONGEST else format(Decimal(digits), "E")


def shorten(value: Decimal) -> Decimal:
    """Truncate a decimal to our precision."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -18:
        return value.quantize(_STEP, context=_EXACT)
    return value


def decimal_of_float(value: float) -> Decimal:
    """Return the decimal that a double prints as; an `EvaluationError` if not finite."""
    if value != value or value in (float("inf"), float("-inf")):
        raise EvaluationError
    return shorten(Decimal(double_text(value)))


def divide(left: Decimal, right: Decimal) -> Decimal:
    """Divide decimals, truncated to their precision."""
    if not right:
        raise EvaluationError
    try:
        return _EXACT.divide(left, right).quantize(_STEP, context=_EXACT).normalize(_EXACT)
    except (InvalidOperation, Overflow):
        raise EvaluationError from None


def exact(
    operation: Callable[[Context, Decimal, Decimal], Decimal], left: Decimal, right: Decimal
) -> Decimal:
    """Add, subtract or multiply decimals; an `EvaluationError` if the result is too long."""
    try:
        return shorten(operation(_ALL_DIGITS, left, right))
    except (Inexact, InvalidOperation, Overflow):
        raise EvaluationError from None


def bounded(text: str) -> str:
    """Return a computed string; an `EvaluationError` if it is too long."""
    if len(text) > LONGEST_STRING:
        raise EvaluationError
    return text


def product_of_integers(left: int, right: int) -> int:
    """Multiply integers; an `EvaluationError` if the result is too long."""
    result = left * right
    if result.bit_length() > _MOST_BITS:
        raise EvaluationError
    return result
