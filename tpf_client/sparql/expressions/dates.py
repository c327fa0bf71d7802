"""Dates, times and durations: values, comparison and arithmetic.

Sources: XML Schema 1.1 part 2, sections 3.3.6 to 3.3.9 and appendix E; XPath functions and
operators 3.1, sections 8 to 10. Years may be negative or beyond 9999.
"""

import math
import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from typing import Final, NamedTuple, TypeVar

from annotations.namespaces import XSD

_DAY = 86_400
# A value without a time zone may lie in any: up to fourteen hours to either side.
_UNKNOWN_ZONE = 14 * 3600
EXACT: Final = Context(prec=1000)
"""The arithmetic of all digits that are read; Python's own has 28."""


class Moment(NamedTuple):
    """What lies on a line of time; `zone` in minutes east of UTC, or ``None``."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: Decimal
    zone: int | None


class DateTime(Moment):
    """A date and time."""

    __slots__ = ()


class Date(Moment):
    """A date: its first second."""

    __slots__ = ()


class Time(Moment):
    """A time of day, on an arbitrary day."""

    __slots__ = ()


MomentT = TypeVar("MomentT", bound=Moment)


def as_kind(kind: type[MomentT], value: Moment) -> MomentT:
    """Return the date of a moment, its time, or both."""
    year, month, day, hour, minute, second, zone = value
    if kind is Date:
        hour, minute, second = 0, 0, Decimal(0)
    elif kind is Time:
        year, month, day = 2000, 1, 1
    return kind(year, month, day, hour, minute, second, zone)


class Duration(NamedTuple):
    """Months and seconds, of one sign; `datatype` is the local name."""

    months: int
    seconds: Decimal
    datatype: str = "duration"


# -------------------------------------------------------------------------------- reading

_ZONE = r"(Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?"
_DAY_OF_YEAR = r"(-?(?:[1-9]\d{3,}|0\d{3}))-(\d\d)-(\d\d)"
_CLOCK = r"(?:([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:\.\d+)?)|(24:00:00(?:\.0+)?))"
_DURATION = re.compile(
    r"(-?)P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)


def _zone(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "Z":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[4:6])
    return -minutes if text[0] == "-" else minutes


def _days_in_month(year: int, month: int) -> int:
    # The standard library knows years from 1 to 9999; the calendar repeats after 400.
    return monthrange(400 + year % 400, month)[1]


def _reader(
    kind: type[MomentT], day: str = "", clock: str = "", *, zoned: bool = False
) -> Callable[[str], MomentT | None]:
    pattern = re.compile(day + clock + _ZONE, re.ASCII)

    def read(lexical: str) -> MomentT | None:
        match = pattern.fullmatch(lexical)
        if match is None:
            return None
        *parts, zone = match.groups()
        year, month, day_of_month = map(int, parts[:3]) if day else (2000, 1, 1)
        if not 1 <= month <= 12 or not 1 <= day_of_month <= _days_in_month(year, month):
            return None
        hour, minute, second, midnight = parts[-4:] if clock else (0, 0, 0, None)
        moment = DateTime(
            *(year, month, day_of_month, int(hour or 0), int(minute or 0)),
            Decimal(second or 0),
            _zone(zone),
        )
        if midnight:
            moment = _at(zone_seconds(moment, 0) + _DAY, moment.zone)
        return None if zoned and not zone else as_kind(kind, moment)

    return read


read_date_time = _reader(DateTime, f"{_DAY_OF_YEAR}T", _CLOCK)
"""Parses an xsd:dateTime; ``None`` if invalid."""


def _read_duration(datatype: str) -> Callable[[str], Duration | None]:
    def read(lexical: str) -> Duration | None:
        match = _DURATION.fullmatch(lexical)
        if match is None or lexical.endswith(("P", "T")):
            return None
        sign, years, months, days, hours, minutes, seconds = match.groups()
        if datatype == "dayTimeDuration" and (years or months):
            return None
        if datatype == "yearMonthDuration" and (days or hours or minutes or seconds):
            return None
        factor = -1 if sign else 1
        total = int(days or 0) * _DAY + int(hours or 0) * 3600 + int(minutes or 0) * 60
        return Duration(
            factor * (int(years or 0) * 12 + int(months or 0)),
            EXACT.fma(factor, Decimal(seconds or 0), factor * total),
            datatype,
        )

    return read


_DURATIONS = ("duration", "dayTimeDuration", "yearMonthDuration")

DATE_READERS: dict[str, Callable[[str], Moment | Duration | None]] = {
    XSD + "dateTime": read_date_time,
    XSD + "dateTimeStamp": _reader(DateTime, f"{_DAY_OF_YEAR}T", _CLOCK, zoned=True),
    XSD + "date": _reader(Date, _DAY_OF_YEAR),
    XSD + "time": _reader(Time, clock=_CLOCK),
    **{XSD + name: _read_duration(name) for name in _DURATIONS},
}

# -------------------------------------------------------------------------------- writing


def zone_name(zone: int | None) -> str:
    """Write the time zone as TZ() does: empty, ``Z`` or ``+hh:mm``."""
    if zone is None:
        return ""
    if zone == 0:
        return "Z"
    return f"{'-' if zone < 0 else '+'}{abs(zone) // 60:02}:{abs(zone) % 60:02}"


def digits_of(number: Decimal) -> str:
    """Write a number without exponent and trailing zeros."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def write_date_value(value: Moment | Duration) -> tuple[str, str]:
    """Return the lexical form and the datatype of a value."""
    if isinstance(value, Duration):
        return _duration_text(value.months, value.seconds, value.datatype), XSD + value.datatype
    year, month, day, hour, minute, second, zone = value
    date = f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day:02}"
    whole, point, fraction = digits_of(second).partition(".")
    clock = f"{hour:02}:{minute:02}:{whole:>02}{point}{fraction}"
    match value:
        case Date():
            text, datatype = date, "date"
        case Time():
            text, datatype = clock, "time"
        case _:
            text, datatype = f"{date}T{clock}", "dateTime"
    return text + zone_name(zone), XSD + datatype


def _duration_text(months: int, seconds: Decimal, datatype: str) -> str:
    sign = "-" if months < 0 or seconds < 0 else ""
    years, months = divmod(abs(months), 12)
    whole, fraction = EXACT.divmod(seconds.copy_abs(), 1)
    days, rest = divmod(int(whole), _DAY)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    date = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if rest or fraction:
        clock += digits_of(EXACT.add(rest, fraction)) + "S"
    if not date and not clock:
        return "P0M" if datatype == "yearMonthDuration" else "PT0S"
    return f"{sign}P{date}{'T' if clock else ''}{clock}"


# ------------------------------------------------------------------- the line of time


_CYCLE = 146_097
"""Days of 400 years."""
_FIRST = date(400, 1, 1).toordinal()


def _days(year: int, month: int, day: int) -> int:
    cycle, year = divmod(year, 400)
    return cycle * _CYCLE + date(400 + year, month, day).toordinal() - _FIRST


def _at(seconds: Decimal, zone: int | None) -> DateTime:
    whole = math.floor(seconds)
    days, rest = divmod(whole, _DAY)
    cycle, days = divmod(days, _CYCLE)
    day = date.fromordinal(_FIRST + days)
    second = EXACT.add(rest % 60, EXACT.subtract(seconds, whole))
    year = day.year - 400 + cycle * 400
    return DateTime(year, day.month, day.day, rest // 3600, rest % 3600 // 60, second, zone)


def zone_seconds(value: Moment, zone: int) -> Decimal:
    """Return seconds on the time line, as if the value were in this time zone."""
    minutes = value.hour * 60 + value.minute - zone
    days = _days(value.year, value.month, value.day)
    return EXACT.add(days * _DAY + minutes * 60, value.second)


def difference(left: Moment, right: Moment) -> Decimal | None:
    """Return seconds from right to left; ``None`` where a missing zone leaves them open."""
    gap = EXACT.subtract(zone_seconds(left, left.zone or 0), zone_seconds(right, right.zone or 0))
    unknown = (left.zone is None) != (right.zone is None)
    return None if unknown and -_UNKNOWN_ZONE <= gap <= _UNKNOWN_ZONE else gap


_REFERENCES = ((1696, 9), (1697, 2), (1903, 3), (1903, 7))


def compare_durations(left: Duration, right: Duration) -> int | None:
    """Return -1, 0 or 1; ``None`` where the length of months leaves the order open."""
    if left.months == right.months:
        return (left.seconds > right.seconds) - (left.seconds < right.seconds)
    orders = set()
    for year, month in _REFERENCES:
        one, other = (
            EXACT.add(_days(*_add_months(year, month, each.months), 1) * _DAY, each.seconds)
            for each in (left, right)
        )
        orders.add((one > other) - (one < other))
    return orders.pop() if len(orders) == 1 else None


def _add_months(year: int, month: int, months: int) -> tuple[int, int]:
    years, month_index = divmod(month - 1 + months, 12)
    return year + years, month_index + 1


def add_duration(value: MomentT, duration: Duration, sign: int) -> MomentT:
    """Move a point in time by a duration (backwards with `sign` -1)."""
    year, month = _add_months(value.year, value.month, sign * duration.months)
    day = min(value.day, _days_in_month(year, month))
    start = value._replace(year=year, month=month, day=day)
    moved = _at(EXACT.fma(sign, duration.seconds, zone_seconds(start, 0)), value.zone)
    return as_kind(type(value), moved)
