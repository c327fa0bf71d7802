"""Validity and overlaps of labels."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import InstantError, LabelError, OverlapError
from annotations.instants import LAST as LAST_OF_ALL
from annotations.labels import (
    Expiration,
    Fact,
    Interval,
    Label,
    at_instant,
    check_no_overlap,
    key_of,
    overlaps,
)
from annotations.terms import Quad, iri, literal

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
S, P, G = (iri(f"http://example.org/{name}") for name in "spg")
QUAD = Quad(S, P, literal("1"))
# Far off, where a floating-point number of seconds no longer tells microseconds apart.
AGES = timedelta(days=365 * 7000)
LAST = NOON + AGES
MICROSECOND = timedelta(microseconds=1)


def hours(count: int) -> datetime:
    return NOON + timedelta(hours=count)


SMALL_LABELS: st.SearchStrategy[Label] = st.one_of(
    st.builds(Expiration, st.integers(0, 6).map(hours)),
    st.builds(
        lambda start, length: Interval(hours(start), hours(start + length)),
        st.integers(0, 6),
        st.integers(1, 3),
    ),
)


def test_when_a_fact_holds() -> None:
    assert Fact(QUAD).valid_at(NOON)
    assert Fact(QUAD, Expiration(hours(1))).valid_at(NOON)
    assert not Fact(QUAD, Expiration(NOON)).valid_at(NOON)
    interval = Fact(QUAD, Interval(NOON, hours(1)))
    assert [interval.valid_at(hours(count)) for count in (-1, 0, 1)] == [False, True, False]


def test_kinds_of_labels() -> None:
    assert Expiration(NOON).labelling == "expiration"
    assert Expiration(NOON).start is None
    assert Interval(NOON, hours(1)).labelling == "interval"


def test_an_instant_is_the_interval_of_a_microsecond() -> None:
    label = at_instant(NOON)
    assert (label.instant, Interval(NOON, hours(1)).instant) == (NOON, None)
    assert [label.valid_at(NOON + n * MICROSECOND) for n in (-1, 0, 1)] == [False, True, False]
    with pytest.raises(LabelError):
        at_instant(LAST_OF_ALL)
    with pytest.raises(InstantError):
        at_instant(NOON.replace(tzinfo=None))


def test_naive_and_impossible_labels_are_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InstantError):
        Expiration(naive)
    with pytest.raises(InstantError):
        Interval(naive, NOON)
    with pytest.raises(InstantError):
        Interval(NOON, naive)
    for end in (NOON, hours(-1)):
        with pytest.raises(LabelError, match="end after"):
            Interval(NOON, end)


def test_labels_are_in_utc() -> None:
    there = timezone(timedelta(hours=2))
    assert Expiration(NOON.astimezone(there)) == Expiration(NOON)
    assert Interval(NOON.astimezone(there), hours(1)).start.tzinfo is UTC


def test_keys() -> None:
    quad = QUAD._replace(graph=G)
    assert key_of(quad) == key_of(quad._replace(object=literal("2")))
    assert key_of(quad, "triple") != key_of(quad._replace(object=literal("2")), "triple")
    assert key_of(quad) != key_of(QUAD)


@pytest.mark.parametrize(
    "labels",
    [
        [Expiration(hours(2)), Interval(hours(1), hours(3))],
        [Interval(LAST, LAST + 2 * MICROSECOND), Interval(LAST + MICROSECOND, hours(1) + AGES)],
    ],
)
def test_overlapping_labels_of_one_fact_are_refused(labels: list[Label]) -> None:
    other = QUAD._replace(object=literal("2"))
    facts = [Fact(QUAD, labels[0]), Fact(other, labels[1])]
    for ordered in (facts, facts[::-1]):
        with pytest.raises(OverlapError, match="overlap"):
            check_no_overlap(ordered)
    check_no_overlap(facts, "triple")
    check_no_overlap([facts[0], Fact(other._replace(graph=G), labels[1])])


@given(labels=st.lists(SMALL_LABELS, max_size=5, unique=True))
def test_an_overlap_is_an_instant_at_which_two_versions_hold(labels: list[Label]) -> None:
    facts = [Fact(QUAD._replace(object=literal(str(n))), label) for n, label in enumerate(labels)]
    instants = [hours(count) for count in range(-1, 10)]
    crowded = any(sum(fact.valid_at(now) for fact in facts) > 1 for now in instants)
    found = list(overlaps(facts))
    assert bool(found) == crowded
    left = [fact for fact in facts if fact not in {later for _, later in found}]
    check_no_overlap(left)
    assert all(any(earlier.valid_at(now) for now in instants) for earlier, _ in found)
