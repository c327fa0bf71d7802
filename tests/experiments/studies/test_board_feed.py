"""The feed of a board with a slow server."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import responses

from annotations.clock import ManualClock
from annotations.instants import parse_instant
from experiments.studies.processes import RenewedBoard
from loaders.errors import PublishRefusedError

BEGIN = datetime(2026, 11, 23, 12, tzinfo=UTC)
URL = "http://127.0.0.1:1/trains"


def feed(seconds: float) -> RenewedBoard:
    return RenewedBoard(
        {
            "mode": "facts", "url": URL, "token": "t", "departures": ["<http://example.org/d>"],
            "period": 10.0, "lead": 0.25, "seconds": seconds,
        }
    )  # fmt: skip


@pytest.mark.parametrize("takes", [1, 25])
def test_a_server_that_is_too_late_loses_renewals_and_the_feed_goes_on(takes: float) -> None:
    clock = ManualClock(BEGIN)
    ends = []

    def take(request: Any) -> tuple[int, dict[str, str], str]:
        end = parse_instant(request.params["expiration"])
        clock.advance_to(clock.now() + timedelta(seconds=takes))
        if clock.now() >= end:
            return 422, {}, "it ended"
        ends.append(end)
        return 201, {}, ""

    board = feed(60)
    with responses.RequestsMock() as server:
        server.add_callback("POST", f"{URL}/facts", take)
        board.publish(clock)
    # All count as sent, whether they will arrive or not, and keep their numbers.
    assert len(board.sent) == 7
    assert board.sent == sorted(board.sent)
    if takes == 1:
        assert ends == [BEGIN + timedelta(seconds=10 * number) for number in range(1, 8)]
    else:
        assert ends == []


def test_a_batch_that_is_refused_in_time_ends_the_feed() -> None:
    with responses.RequestsMock() as server:
        server.post(f"{URL}/facts", status=422, body="no such predicate")
        with pytest.raises(PublishRefusedError, match="422 no such predicate"):
            feed(60).publish(ManualClock(BEGIN))
