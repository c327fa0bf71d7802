"""Instants as whole milliseconds since 1970-01-01T00:00:00Z."""

from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import Final

from annotations.terms import Term
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.values import value_of
from tpf_server.continuous.engine.errors import TimestampError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = -62_135_596_800_000
LATEST: Final = 253_402_300_799_999
"""The first and the last millisecond that have a date of four digits."""


def milliseconds(timestamp: object) -> int:
    """Milliseconds since 1970 of an instant (rounded down), or of what is that number already.

    Raises:
        TimestampError: a naive datetime, no instant at all, or not of the years 1 to 9999.
    """
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise TimestampError(f"without a time zone: {timestamp}")
        return (timestamp - EPOCH) // timedelta(milliseconds=1)
    # Integers of other libraries, too.
    if isinstance(timestamp, bool) or not isinstance(timestamp, Integral):
        raise TimestampError(f"not an instant: {timestamp!r}")
    at = int(timestamp)
    if not EARLIEST <= at <= LATEST:
        raise TimestampError(f"not in the years 1 to 9999: {at}")
    return at


def iso(at: int) -> str:
    """The instant in ISO 8601."""
    return (
        (EPOCH + timedelta(milliseconds=at))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def date_time_of(instant: datetime) -> DateTime:
    """An instant as a value of SPARQL."""
    text = f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".")
    value = value_of(Term(f'"{text}Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'))
    assert isinstance(value, DateTime)
    return value


def date_time_at(at: int) -> DateTime:
    """The same of milliseconds since 1970."""
    return date_time_of(EPOCH + timedelta(milliseconds=at))
