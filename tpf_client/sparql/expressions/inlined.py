"""Values inside the identifiers of terms: what fits into an integer needs no table.

The three lowest bits of an identifier are a tag:

===  =======================  ==================================================
0    a number of a table      its position
1    ``xsd:integer``          the value
2    ``xsd:decimal``          five bits of scale, the unscaled value
3    ``xsd:dateTime``         microseconds since 1970 (``Z``, whole seconds)
4    ``xsd:boolean``          0 or 1
5    an IRI with a number     eight bits for the registered prefix, the number
===  =======================  ==================================================

A term is inlined only if its exact text can be restored and it fits into 64 bits; decimals may take
104, as quotients have 18 fraction digits. Source: paper 000, section 4.2.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Final

from annotations.terms import Term

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_INTEGER: Final = f'"^^<{_XSD}integer>'
_DECIMAL: Final = f'"^^<{_XSD}decimal>'
_DATE_TIME: Final = f'"^^<{_XSD}dateTime>'
_BOOLEAN: Final = f'"^^<{_XSD}boolean>'

TAG_BITS: Final = 3
TAG: Final = 0b111
INTEGER: Final = 1
DECIMAL: Final = 2
DATE_TIME: Final = 3
BOOLEAN: Final = 4
SERIAL: Final = 5
SCALE_BITS: Final = 5
_SCALE: Final = 0b11111
MOST_INTEGER: Final = 1 << 60
MOST_UNSCALED: Final = 1 << 96
MOST_SERIAL: Final = 10**15
MOST_SCALE: Final = 31
TRUE_ID: Final = 1 << TAG_BITS | BOOLEAN
FALSE_ID: Final = BOOLEAN

_INTEGER_TEXT = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
_DECIMAL_TEXT = re.compile(r"(-?)(0|[1-9]\d{0,28})(?:\.(\d{1,31}))?", re.ASCII)
# Python reads 24:00 from 3.14 on, as midnight of the next day.
_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\dT(?!24)\d\d:\d\d:\d\dZ", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EXACT: Final = Context(prec=40)


def inline_integer(value: int) -> int | None:
    """Inline an ``xsd:integer``; ``None`` where it does not fit."""
    return value << TAG_BITS | INTEGER if -MOST_INTEGER < value < MOST_INTEGER else None


def inline_decimal(value: Decimal) -> int | None:
    """Inline a computed ``xsd:decimal`` in canonical form; ``None`` where it does not fit."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > 40:
        return None
    unscaled, scale = 0, max(-exponent, 0)
    for digit in (*digits, *[0] * exponent):
        unscaled = unscaled * 10 + digit
    unscaled, scale = without_zeros(unscaled, scale)
    if unscaled >= MOST_UNSCALED or scale > MOST_SCALE:
        return None
    return (((-unscaled if sign else unscaled) << SCALE_BITS | scale) << TAG_BITS) | DECIMAL


def without_zeros(unscaled: int, scale: int) -> tuple[int, int]:
    """Strip the trailing zeros of a decimal; return its unscaled value and scale."""
    while scale and not unscaled % 10:
        unscaled //= 10
        scale -= 1
    return unscaled, scale


def written_decimal(text: str) -> int | None:
    """Inline an ``xsd:decimal`` with exactly this text; ``None`` where it does not fit."""
    match = _DECIMAL_TEXT.fullmatch(text)
    if match is None:
        return None
    minus, whole, fraction = match.groups(default="")
    unscaled = int(whole + fraction)
    if unscaled >= MOST_UNSCALED or (minus and not unscaled):
        return None
    signed = -unscaled if minus else unscaled
    return ((signed << SCALE_BITS | len(fraction)) << TAG_BITS) | DECIMAL


def inline_instant(instant: datetime) -> int | None:
    """Inline an ``xsd:dateTime`` in UTC; ``None`` for fractions of a second."""
    if instant.microsecond:
        return None
    return ((instant - _EPOCH) // _MICROSECOND) << TAG_BITS | DATE_TIME


def _integer(text: str) -> int | None:
    return inline_integer(int(text)) if _INTEGER_TEXT.fullmatch(text) else None


def _instant(text: str) -> int | None:
    if not _DATE_TEXT.fullmatch(text):
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return inline_instant(instant)


def _boolean(text: str) -> int | None:
    return {"true": TRUE_ID, "false": FALSE_ID}.get(text)


_LITERALS: Final[dict[str, tuple[str, Callable[[str], int | None]]]] = {
    end[-9:]: (end, make)
    for end, make in (
        (_INTEGER, _integer),
        (_DECIMAL, written_decimal),
        (_DATE_TIME, _instant),
        (_BOOLEAN, _boolean),
    )
}
"""By how they end: few other terms end so."""


def inlined_literal(term: str) -> int | None:
    """Inline a literal; ``None`` where it must go through the table."""
    form = _LITERALS.get(term[-9:])
    if form is None:
        return None
    end, make = form
    return make(term[1 : -len(end)]) if term.endswith(end) else None


def decimal_of(identifier: int) -> Decimal:
    """The value of an inlined ``xsd:decimal``."""
    rest = identifier >> TAG_BITS
    return Decimal(rest >> SCALE_BITS).scaleb(-(rest & _SCALE), _EXACT)


def datetime_of(identifier: int) -> datetime:
    """The instant of an inlined ``xsd:dateTime``."""
    return _EPOCH + timedelta(microseconds=identifier >> TAG_BITS)


def _text_of_decimal(identifier: int) -> str:
    rest = identifier >> TAG_BITS
    unscaled, scale = rest >> SCALE_BITS, rest & _SCALE
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def text_of_inlined(identifier: int) -> Term:
    """Return the literal in an identifier; `KeyError` if there is none."""
    tag = identifier & TAG
    if tag == INTEGER:
        return Term(f'"{identifier >> TAG_BITS}{_INTEGER}')
    if tag == DECIMAL:
        return Term(f'"{_text_of_decimal(identifier)}{_DECIMAL}')
    if tag == DATE_TIME:
        instant = datetime_of(identifier)
        return Term(f'"{instant.replace(tzinfo=None).isoformat()}Z{_DATE_TIME}')
    if tag == BOOLEAN:
        text = "true" if identifier == TRUE_ID else "false"
        return Term(f'"{text}{_BOOLEAN}')
    raise KeyError(identifier)
