"""Clocks: time passes only where it is told to."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from annotations.clock import ManualClock, SystemClock
from annotations.errors import InstantError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_manual_clock_stands_until_it_is_advanced() -> None:
    clock = ManualClock(NOON)
    assert clock.now() == NOON
    assert clock.wait_until(NOON - MINUTE)
    assert clock.now() == NOON
    clock.advance_to(NOON + MINUTE)
    assert clock.now() == NOON + MINUTE
    with pytest.raises(ValueError, match="go back"):
        clock.advance_to(NOON)


def test_naive_instants_are_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InstantError):
        ManualClock(naive)
    clock = ManualClock(NOON)
    with pytest.raises(InstantError):
        clock.advance_to(naive)
    with pytest.raises(InstantError):
        clock.schedule(naive, lambda: None)


def test_what_is_scheduled_happens_in_order_at_its_own_instant() -> None:
    clock = ManualClock(NOON)
    happened: list[tuple[str, datetime]] = []

    def note(name: str) -> None:
        happened.append((name, clock.now()))

    clock.schedule(NOON + 3 * MINUTE, lambda: note("last"))
    clock.schedule(NOON + 2 * MINUTE, lambda: note("later"))
    clock.schedule(NOON + MINUTE, lambda: note("first"))
    clock.schedule(NOON + MINUTE, lambda: note("second"))
    clock.schedule(NOON + MINUTE, lambda: clock.schedule(NOON, lambda: note("overdue")))
    clock.schedule(NOON + 9 * MINUTE, lambda: note("never"))
    assert clock.wait_until(NOON + 3 * MINUTE)
    assert happened == [
        ("first", NOON + MINUTE),
        ("second", NOON + MINUTE),
        ("overdue", NOON + MINUTE),
        ("later", NOON + 2 * MINUTE),
        ("last", NOON + 3 * MINUTE),
    ]
    assert clock.now() == NOON + 3 * MINUTE


def test_a_cancelled_wait_on_a_manual_clock() -> None:
    clock = ManualClock(NOON)
    cancelled = threading.Event()
    clock.schedule(NOON + MINUTE, cancelled.set)
    assert not clock.wait_until(NOON + 2 * MINUTE, cancelled)
    assert not clock.wait_until(NOON + 3 * MINUTE, cancelled)
    assert clock.now() == NOON + 2 * MINUTE


def test_the_clock_of_the_machine() -> None:
    clock = SystemClock()
    start = clock.now()
    assert start.tzinfo is UTC
    assert clock.wait_until(start + timedelta(milliseconds=5))
    assert clock.now() >= start + timedelta(milliseconds=5)
    cancelled = threading.Event()
    assert clock.wait_until(start, cancelled)
    assert clock.wait_until(clock.now() + timedelta(milliseconds=5), cancelled)
    cancelled.set()
    assert not clock.wait_until(start, cancelled)
    assert not clock.wait_until(clock.now() + timedelta(hours=1), cancelled)
