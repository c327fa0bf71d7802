"""The integers of Python values, and the code that makes them of the columns of records."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Context, Decimal
from numbers import Integral
from typing import Any, Final

import numpy as np

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.expressions.inlined import (
    BOOLEAN,
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_INTEGER,
    MOST_SCALE,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG_BITS,
    inline_instant,
    inline_integer,
)
from tpf_client.sparql.expressions.values import term_of
from tpf_server.continuous.engine.elements.timestamps import EPOCH
from tpf_server.continuous.engine.errors import ElementError

# No number that is inlined has as many digits.
_EXACT: Final = Context(prec=100)
_XSD = "http://www.w3.org/2001/XMLSchema#"
RecordValue = str | bool | int | float | Decimal | datetime
"""What a record may hold; a string is a term (N-Triples)."""


def column_encoder(
    target: str, example: RecordValue, dictionary: TermDictionary, names: dict[str, Any]
) -> list[str]:
    """Statements that encode `v`, fast where it looks like an example.

    Args:
        target: the name of the result.
        example: another value of the same column.
        dictionary: the integers of terms.
        names: takes up what the statements refer to; `value` encodes whatever there is.
    """
    careful = f"        {target} = value(v)"
    kind = type(example)
    if kind is int:
        inside = f"type(v) is int and {-MOST_INTEGER} < v < {MOST_INTEGER}"
        return [f"    {target} = v << {TAG_BITS} | {INTEGER} if {inside} else value(v)"]
    if kind is str:
        names["known"] = dictionary.known
        return [f"    {target} = type(v) is str and known(v) or value(v)"]
    if isinstance(example, datetime):
        names.update(datetime=datetime, epoch=EPOCH)
        return [
            "    d = v - epoch if type(v) is datetime and v.tzinfo is not None else None",
            "    if d is None or d.microseconds:",
            careful,
            "    else:",
            "        seconds = d.days * 86400 + d.seconds",
            f"        {target} = seconds * 1000000 << {TAG_BITS} | {DATE_TIME}",
        ]
    scale = -1
    if isinstance(example, Decimal) and example.is_finite():
        scale = -int(example.as_tuple().exponent)
    if not 0 <= scale <= MOST_SCALE:
        return [f"    {target} = value(v)"]
    names["Decimal"] = Decimal
    names[f"alike{scale}"] = Decimal((0, (1,), -scale)).same_quantum
    names[f"power{scale}"] = Decimal(10**scale)
    names["times"] = _EXACT.multiply
    tag = scale << TAG_BITS | DECIMAL
    return [
        # Nought may have a sign, which its integer has not.
        f"    if type(v) is Decimal and alike{scale}(v) and (v or not v.is_signed()):",
        f"        n = times(v, power{scale}).__trunc__()",
        f"        {target} = n << {SCALE_BITS + TAG_BITS} | {tag}",
        f"        if not -{MOST_UNSCALED} < n < {MOST_UNSCALED}:",
        f"    {careful}",
        "    else:",
        careful,
    ]


def _decimal(value: Decimal) -> TermId | None:
    text = str(value)
    whole, _, fraction = text.partition(".")
    if len(text) > 17 or "E" in text or not (whole and text.isascii() and whole[-1].isdigit()):
        return None
    unscaled = int(whole + fraction)
    if not unscaled and text[0] == "-":
        return None
    return ((unscaled << SCALE_BITS | len(fraction)) << TAG_BITS) | DECIMAL


def _boolean(value: bool) -> TermId:
    return value << TAG_BITS | BOOLEAN


def _instant(value: datetime) -> TermId | None:
    if value.tzinfo is None:
        raise ElementError(f"without a time zone: {value}")
    return inline_instant(value)


def term_text(value: object) -> str:
    """The term of a Python value; a string is one already.

    Raises:
        ElementError: it has none: ``None``, a decimal that is no number, an instant without a time
            zone, anything else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ElementError(f"without a time zone: {value}")
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        return Term(f'"{text.rstrip("0").rstrip(".")}Z"^^<{_XSD}dateTime>')
    if isinstance(value, Decimal) and value.is_finite():
        return Term(f'"{value:f}"^^<{_XSD}decimal>')
    if isinstance(value, (bool, np.bool_)):
        return term_of(bool(value))
    if isinstance(value, (float, np.floating)):
        return term_of(float(value))
    if isinstance(value, Integral):
        return Term(f'"{int(value)}"^^<{_XSD}integer>')
    if value is None:
        raise ElementError("no value")
    raise ElementError(f"not a value of a record: {value!r}")


def inlined_value(value: RecordValue) -> TermId | None:
    """The integer of a Python value; ``None`` where it must go through the table.

    Raises:
        ElementError: an instant without a time zone.
    """
    encoder = _ENCODERS.get(type(value))
    return None if encoder is None else encoder(value)


_ENCODERS: dict[type, Callable[[Any], TermId | None]] = {
    bool: _boolean,
    int: inline_integer,
    Decimal: _decimal,
    datetime: _instant,
}
