"""Instants: UTC datetimes, ``xsd:dateTime`` literals and microseconds since 1970.

Source: XML Schema 1.1 part 2, section 3.3.7. Instants without a time zone are refused.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

from annotations.errors import InstantError, TermError
from annotations.namespaces import XSD_DATE_TIME, XSD_DATE_TIME_STAMP
from annotations.terms import Term, is_literal, literal_parts

FIRST = datetime.min.replace(tzinfo=UTC)
"""The first instant that there is."""
LAST = datetime.max.replace(tzinfo=UTC)
"""The last instant that there is."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LEXICAL = re.compile(
    r"(-?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
# The published inserter wrote the prefixed name as the datatype; it is read like the IRI.
_DATATYPES = frozenset({XSD_DATE_TIME, XSD_DATE_TIME_STAMP, "xsd:dateTime", "xsd:dateTimeStamp"})


def utc(instant: datetime) -> datetime:
    """Convert to UTC.

    Raises:
        InstantError: the datetime is naive, or outside the years 1 to 9999 in UTC.
    """
    if instant.tzinfo is UTC:
        return instant
    if instant.utcoffset() is None:
        raise InstantError(f"an instant needs a time zone: {instant.isoformat()}")
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise InstantError(f"outside the years 1 to 9999: {instant.isoformat()}") from error


def shifted(instant: datetime, delta: timedelta) -> datetime:
    """Return the instant that much later, at most the first or last possible one."""
    try:
        return instant + delta
    except OverflowError:
        return FIRST if delta < timedelta(0) else LAST


def to_micros(instant: datetime) -> int:
    """Return microseconds since 1970; `InstantError` for a naive datetime."""
    return (utc(instant) - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the instant so many microseconds after 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def parse_instant(lexical: str) -> datetime:
    """Parse an ``xsd:dateTime``, truncated to microseconds."""
    match = _LEXICAL.fullmatch(lexical.strip(" \t\r\n"))
    if match is None:
        raise InstantError(f"not an xsd:dateTime: {lexical!r}")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if zone is None:
        raise InstantError(f"an instant needs a time zone: {lexical!r}")
    try:
        midnight_after = (int(hour), int(minute), int(second), int(fraction or 0)) == (24, 0, 0, 0)
        value = datetime(
            int(year), int(month), int(day), 0 if midnight_after else int(hour), int(minute),
            int(second), int(f"{fraction or 0:0<6}"[:6]), tzinfo=_zone(zone),
        )  # fmt: skip
        return (value + timedelta(days=midnight_after)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InstantError(f"not an xsd:dateTime: {lexical!r} ({error})") from None


def _zone(text: str) -> timezone:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    offset = timedelta(hours=hours, minutes=minutes)
    if minutes > 59 or offset > timedelta(hours=14):
        raise ValueError("time zone beyond 14:00, or minutes beyond 59")
    return timezone(-offset if text[0] == "-" else offset)


def format_instant(instant: datetime) -> str:
    """Return the lexical form in UTC: ``2015-12-08T10:20:00Z``."""
    return utc(instant).replace(tzinfo=None).isoformat() + "Z"


def instant_term(instant: datetime) -> Term:
    """Return the ``xsd:dateTime`` literal of an instant."""
    return Term(f'"{format_instant(instant)}"^^<{XSD_DATE_TIME}>')


def instant_of_term(term: str) -> datetime:
    """Return the instant of a literal."""
    if not is_literal(term):
        raise InstantError(f"not an instant: {term}")
    try:
        parts = literal_parts(term)
    except TermError as error:
        raise InstantError(f"not an instant: {term}") from error
    if parts.datatype not in _DATATYPES:
        raise InstantError(f"not an instant: {term}")
    return parse_instant(parts.lexical)
