"""The estimate of a server's clock."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock
from tpf_client.fragments.fetcher import ServerClock
from tpf_client.fragments.freshness import age, directives, lifetime, read_http_date

START = datetime(2020, 1, 1, tzinfo=UTC)
SECONDS = st.integers(0, 3_000_000).map(lambda micros: timedelta(microseconds=micros))


@given(
    skew=st.integers(-3600_000_000, 3600_000_000).map(lambda u: timedelta(microseconds=u)),
    steps=st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=12),
)
def test_the_estimate_is_never_ahead_of_the_server_and_gets_better(
    skew: timedelta, steps: list[tuple[timedelta, timedelta, timedelta, timedelta]]
) -> None:
    clock = ManualClock(START)
    server = ServerClock(clock)
    previous = timedelta(days=1)
    for pause, there, back, before in steps:
        clock.advance_to(clock.now() + pause)
        sent = clock.now()
        answered = sent + there + skew
        clock.advance_to(sent + there + back)
        date, made = answered.replace(microsecond=0), answered - before
        server.observe_date(date, sent, clock.now(), made)
        truth = clock.now() + skew
        drift = timedelta(seconds=0.01)
        assert truth - timedelta(seconds=1) - there - back - drift <= server.now() <= truth
        assert truth - before - back - drift <= server.now()
        error = truth - server.now()
        assert error <= previous + drift
        previous = error
        instant = truth + timedelta(seconds=60)
        assert server.local(instant) + skew >= instant


def test_an_exact_instant_tells_all_and_a_clock_that_was_set_is_believed() -> None:
    clock = ManualClock(START)
    server = ServerClock(clock)
    assert server.now() == START
    assert not server.synchronized
    server.observe_instant(START + timedelta(hours=1), START, START)
    assert server.now() == START + timedelta(hours=1)
    server.observe_date(START - timedelta(hours=1), START, START)
    assert server.now() == START - timedelta(hours=1)
    # An instant in the future of its answer is none.
    server.observe_date(START, START, START, made=START + timedelta(days=1))
    assert server.now() == START


def test_the_exact_instant_is_asked_for_seldom_and_when_the_clock_was_set() -> None:
    clock = ManualClock(START)
    server = ServerClock(clock)
    assert [server.asks() for _ in range(3)] == [True, False, False]
    server.observe_instant(START, START, START)
    clock.advance_to(START + timedelta(seconds=19))
    server.observe_date(START + timedelta(seconds=19), clock.now(), clock.now())
    assert not server.asks()
    clock.advance_to(START + timedelta(seconds=20))
    assert [server.asks(), server.asks()] == [True, False]
    server.observe_date(START, clock.now(), clock.now())
    assert [server.asks(), server.asks()] == [True, False]


def test_freshness() -> None:
    assert directives('max-age=10, Private, x="y"') == {"max-age": "10", "private": "", "x": "y"}
    date = "Wed, 01 Jan 2020 00:00:00 GMT"
    assert read_http_date(date) == START
    assert read_http_date("yesterday") is None
    assert lifetime({"Cache-Control": "max-age=5"}) == timedelta(seconds=5)
    assert lifetime({"Cache-Control": "no-store, max-age=5"}) == timedelta(0)
    assert lifetime({"Cache-Control": "max-age=soon"}) == timedelta(0)
    later = "Wed, 01 Jan 2020 00:01:00 GMT"
    assert lifetime({"Date": date, "Expires": later}) == timedelta(minutes=1)
    assert lifetime({"Date": later, "Expires": date}) == timedelta(0)
    assert lifetime({}) == timedelta(0)
    assert age({"Age": "7"}) == timedelta(seconds=7)
    assert age({}) == timedelta(0)
