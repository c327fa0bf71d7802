"""Recent update counts against a list of all updates."""

from hypothesis import given
from hypothesis import strategies as st

from tpf_server.store.live.log import Record, Version
from tpf_server.store.live.store import MINUTES, UpdateCounts

MINUTE = 60_000_000
VERSION = Version(0, 0, "<s>", "<p>", "<o>", "", 0, 1, 0)


def record(at: int, added: int, removed: int) -> Record:
    return Record(1, at, [VERSION] * added, range(removed))


@given(
    st.lists(st.tuples(st.integers(0, 200 * MINUTE), st.integers(0, 3), st.integers(0, 3))),
    st.integers(0, 250 * MINUTE),
)
def test_counts_are_those_of_the_last_hour(batches: list[tuple[int, int, int]], now: int) -> None:
    batches.sort()
    counts = UpdateCounts()
    expected = [0] * MINUTES
    newest = max((at // MINUTE for at, *changed in batches if any(changed)), default=0)
    for at, added, removed in batches:
        counts.note(record(at, added, removed))
        place = MINUTES - 1 - (now // MINUTE - at // MINUTE)
        # What is an hour older than the newest is forgotten.
        if 0 <= place < MINUTES and at // MINUTE > newest - MINUTES:
            expected[place] += max(added, removed)
    assert counts.until(now) == expected
    came = sum(
        added
        for at, added, _ in batches
        if 0 <= now // MINUTE - at // MINUTE < MINUTES and at // MINUTE > newest - MINUTES
    )
    assert counts.of_predicates(now)["<p>"] == came


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    counts = UpdateCounts()
    counts.note(record(90 * MINUTE, 2, 0))
    counts.note(record(10 * MINUTE, 3, 0))
    assert counts.until(90 * MINUTE)[-1] == 5
    assert sum(counts.until(10 * MINUTE)) == 0
