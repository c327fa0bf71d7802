"""Instants: xsd:dateTime with a time zone, microseconds, and nothing naive."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import InstantError
from annotations.instants import (
    format_instant,
    from_micros,
    instant_of_term,
    instant_term,
    parse_instant,
    to_micros,
    utc,
)

ANY = st.datetimes(timezones=st.just(UTC))


@given(instant=ANY)
def test_instants_are_read_back(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant
    assert instant_of_term(instant_term(instant)) == instant
    assert from_micros(to_micros(instant)) == instant


@pytest.mark.parametrize(
    ("lexical", "expected"),
    [
        ("2015-12-08T10:20:00Z", datetime(2015, 12, 8, 10, 20, tzinfo=UTC)),
        (" 2015-12-08T10:20:00Z\n", datetime(2015, 12, 8, 10, 20, tzinfo=UTC)),
        ("2015-12-08T10:20:00+02:00", datetime(2015, 12, 8, 8, 20, tzinfo=UTC)),
        ("2015-12-08T10:20:00-00:30", datetime(2015, 12, 8, 10, 50, tzinfo=UTC)),
        ("2015-12-08T10:20:00.5Z", datetime(2015, 12, 8, 10, 20, 0, 500_000, tzinfo=UTC)),
        ("2015-12-08T10:20:00.1234567Z", datetime(2015, 12, 8, 10, 20, 0, 123_456, tzinfo=UTC)),
        ("2015-12-08T10:20:00+14:00", datetime(2015, 12, 7, 20, 20, tzinfo=UTC)),
        ("2015-12-08T10:20:00-00:59", datetime(2015, 12, 8, 11, 19, tzinfo=UTC)),
        ("2015-12-31T24:00:00Z", datetime(2016, 1, 1, tzinfo=UTC)),
    ],
)
def test_forms_of_one_instant(lexical: str, expected: datetime) -> None:
    assert parse_instant(lexical) == expected


@pytest.mark.parametrize(
    "lexical",
    [
        "",
        "soon",
        "2015-12-08",
        "2015-12-08T10:20:00",
        "2015-12-08 10:20:00Z",
        "2015-13-08T10:20:00Z",
        "2015-02-30T10:20:00Z",
        "2015-12-08T24:00:01Z",
        "2015-12-08T10:20:60Z",
        "2015-12-08T10:20:00+15:00",
        "2015-12-08T10:20:00-14:01",
        "2015-12-08T10:20:00+00:60",
        "2015-12-08T10:20:00-00:99",
        "9999-12-31T23:59:59-14:00",
        "12015-12-08T10:20:00Z",
        "-0044-03-15T10:20:00Z",
        "٢٠١٥-12-08T10:20:00Z",
    ],
)
def test_no_instant(lexical: str) -> None:
    with pytest.raises(InstantError):
        parse_instant(lexical)


@pytest.mark.parametrize("term", ["<urn:x>", '"2015-12-08T10:20:00Z"', '"5"^^<urn:d>', '"x'])
def test_no_instant_term(term: str) -> None:
    with pytest.raises(InstantError):
        instant_of_term(term)


def test_naive_datetimes_are_refused() -> None:
    naive = datetime(2015, 12, 8, tzinfo=UTC).replace(tzinfo=None)
    for refuse in (utc, to_micros, format_instant, instant_term):
        with pytest.raises(InstantError, match="time zone"):
            refuse(naive)


def test_other_zones_become_utc() -> None:
    there = datetime(2015, 12, 8, 12, tzinfo=timezone(timedelta(hours=2)))
    assert utc(there).tzinfo is UTC
    assert format_instant(there) == "2015-12-08T10:00:00Z"
    with pytest.raises(InstantError, match="outside"):
        utc(datetime.max.replace(tzinfo=timezone(-timedelta(hours=2))))
