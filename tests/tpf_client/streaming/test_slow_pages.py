"""Continuous queries whose evaluations take longer than some page of theirs is fresh."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from annotations.clock import ManualClock
from tests.support.live_server import START
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.streaming.streamer import Schedule, Streamer


@pytest.mark.parametrize(("due", "looks"), [(-1, 0.1), (0, 0.1), (2, 2), (None, None)])
def test_what_was_due_before_an_evaluation_ended_is_looked_at_soon(
    due: float | None, looks: float | None
) -> None:
    """Pages are read one after the other: the first may be due when the last one came."""
    clock = ManualClock(START)
    unbuilt: Any = None
    streamer = Streamer(ThreadedFetcher(clock=clock), ["http://server.test/d"], unbuilt, clock)
    wake = None if due is None else START + timedelta(seconds=due)
    running: Any = SimpleNamespace(evaluation=SimpleNamespace(wake_at=lambda: wake))
    found = streamer._valid_until(running, START)
    expected = None if looks is None else START + timedelta(seconds=looks)
    assert Schedule().next(START, found) == expected
