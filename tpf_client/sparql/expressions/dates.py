"""Dates, times and durations: values, comparison and arithmetic.

Sources: XML Schema 1.1 part 2, sections 3.3.6 to 3.3.9 and appendix E; XPath functions and
operators 3.1, sections 8 to 10. Years may be negative or beyond 9999.
"""

import math
import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final, NamedTuple

from annotations.namespaces import XSD

_DAY = 86_400
# A value without a time zone may lie in any: up to fourteen hours to either side.
_UNKNOWN_ZONE = 14 * 3600
EXACT: Final = Context(prec=1000)
"""The arithmetic of all digits that are read; Python's own has 28."""


class DateTime(NamedTuple):
    """A date and time; `zone` in minutes east of UTC, or ``None``."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: Decimal
    zone: int | None


class Date(NamedTuple):
    """A date; `zone` as in `DateTime`."""

    year: int
    month: int
    day: int
    zone: int | None


class Time(NamedTuple):
    """A time of day; `zone` as in `DateTime`."""

    hour: int
    minute: int
    second: Decimal
    zone: int | None


class Duration(NamedTuple):
    """Months and seconds, of one sign; `datatype` is the local name."""

    months: int
    seconds: Decimal
    datatype: str = "duration"


# -------------------------------------------------------------------------------- reading

_ZONE = r"(Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?"
_YEAR = r"(-?(?:[1-9]\d{3,}|0\d{3}))"
_CLOCK = r"(?:([01]\d|2[0-3]):([0-5]\d):([0-5]\d(?:\.\d+)?)|(24:00:00(?:\.0+)?))"
_DATE_TIME = re.compile(rf"{_YEAR}-(\d\d)-(\d\d)T{_CLOCK}{_ZONE}", re.ASCII)
_DATE = re.compile(rf"{_YEAR}-(\d\d)-(\d\d){_ZONE}", re.ASCII)
_TIME = re.compile(rf"{_CLOCK}{_ZONE}", re.ASCII)
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


def days_in_month(year: int, month: int) -> int:
    """Return the days of a month in the proleptic Gregorian calendar."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _valid_day(year: int, month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= days_in_month(year, month)


def read_date_time(lexical: str) -> DateTime | None:
    """Parse an xsd:dateTime; ``None`` if invalid."""
    match = _DATE_TIME.fullmatch(lexical)
    if match is None:
        return None
    year, month, day, hour, minute, second, midnight, zone = match.groups()
    date = (int(year), int(month), int(day))
    if not _valid_day(*date):
        return None
    if midnight:
        return _from_seconds(_days(*date) * _DAY + _DAY, Decimal(0), _zone(zone))
    return DateTime(*date, int(hour), int(minute), Decimal(second), _zone(zone))


def read_date(lexical: str) -> Date | None:
    """Parse an xsd:date; ``None`` if invalid."""
    match = _DATE.fullmatch(lexical)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.groups()[:3])
    return Date(year, month, day, _zone(match[4])) if _valid_day(year, month, day) else None


def read_time(lexical: str) -> Time | None:
    """Parse an xsd:time; ``None`` if invalid."""
    match = _TIME.fullmatch(lexical)
    if match is None:
        return None
    hour, minute, second, midnight, zone = match.groups()
    if midnight:
        return Time(0, 0, Decimal(0), _zone(zone))
    return Time(int(hour), int(minute), Decimal(second), _zone(zone))


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

DATE_READERS: dict[str, Callable[[str], DateTime | Date | Time | Duration | None]] = {
    XSD + "dateTime": read_date_time,
    XSD + "dateTimeStamp": lambda text: (
        None if (value := read_date_time(text)) is None or value.zone is None else value
    ),
    XSD + "date": read_date,
    XSD + "time": read_time,
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


def seconds_text(second: Decimal) -> str:
    """Write seconds without trailing zeros, two digits before the point."""
    text = digits_of(second)
    return text if len(text.partition(".")[0]) > 1 else f"0{text}"


def _year_text(year: int) -> str:
    return f"{'-' if year < 0 else ''}{abs(year):04}"


def write_date_value(value: DateTime | Date | Time | Duration) -> tuple[str, str]:
    """Return the lexical form and the datatype of a value."""
    match value:
        case DateTime(year, month, day, hour, minute, second, zone):
            clock = f"{hour:02}:{minute:02}:{seconds_text(second)}"
            date = f"{_year_text(year)}-{month:02}-{day:02}"
            return f"{date}T{clock}{zone_name(zone)}", XSD + "dateTime"
        case Date(year, month, day, zone):
            return f"{_year_text(year)}-{month:02}-{day:02}{zone_name(zone)}", XSD + "date"
        case Time(hour, minute, second, zone):
            clock = f"{hour:02}:{minute:02}:{seconds_text(second)}"
            return f"{clock}{zone_name(zone)}", XSD + "time"
        case Duration(months, seconds, datatype):
            return _duration_text(months, seconds, datatype), XSD + datatype


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


def _days(year: int, month: int, day: int) -> int:
    """Count from 0000-03-01, so that the leap day ends the year."""
    year -= month <= 2
    month = (month + 9) % 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 1


def _civil(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year_of_era + era * 400 + (month <= 2), month, day


def _from_seconds(whole: int, fraction: Decimal, zone: int | None) -> DateTime:
    days, rest = divmod(whole, _DAY)
    return DateTime(
        *_civil(days), rest // 3600, rest % 3600 // 60, EXACT.add(rest % 60, fraction), zone
    )


def _at(seconds: Decimal, zone: int | None) -> DateTime:
    whole = math.floor(seconds)
    return _from_seconds(whole, EXACT.subtract(seconds, whole), zone)


def zone_seconds(value: DateTime | Date | Time, zone: int) -> Decimal:
    """Return seconds on the time line, as if the value were in this time zone."""
    match value:
        case DateTime(year, month, day, hour, minute, second):
            minutes = hour * 60 + minute - zone
            return EXACT.add(_days(year, month, day) * _DAY + minutes * 60, second)
        case Date(year, month, day):
            return Decimal(_days(year, month, day) * _DAY - zone * 60)
        case Time(hour, minute, second):
            return EXACT.add((hour * 60 + minute - zone) * 60, second)


def difference(left: DateTime | Date | Time, right: DateTime | Date | Time) -> Decimal | None:
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


def add_duration(
    value: DateTime | Date | Time, duration: Duration, sign: int
) -> DateTime | Date | Time:
    """Move a point in time by a duration (backwards with `sign` -1)."""
    if isinstance(value, Time):
        moved = _at(EXACT.fma(sign, duration.seconds, zone_seconds(value, 0)), value.zone)
        return Time(moved.hour, moved.minute, moved.second, value.zone)
    year, month = _add_months(value.year, value.month, sign * duration.months)
    day = min(value.day, days_in_month(year, month))
    if isinstance(value, Date):
        start = DateTime(year, month, day, 0, 0, Decimal(0), value.zone)
    else:
        start = value._replace(year=year, month=month, day=day)
    moved = _at(EXACT.fma(sign, duration.seconds, zone_seconds(start, 0)), value.zone)
    if isinstance(value, Date):
        return Date(moved.year, moved.month, moved.day, value.zone)
    return moved
