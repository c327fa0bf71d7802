"""The thread that lets time pass for continuous queries."""

import logging
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from annotations.clock import ManualClock
from tpf_server.continuous.service.assembly import Ticker
from tpf_server.continuous.service.continuous_service import ContinuousService


class Service:
    """Fails twice in one way, once in another, then works."""

    def __init__(self) -> None:
        self.told = 0
        self.ticker = Ticker(
            cast("ContinuousService", self),
            ManualClock(datetime(2020, 1, 1, tzinfo=UTC)),
            timedelta(seconds=1),
        )

    def advance(self) -> None:
        self.told += 1
        if self.told <= 3:
            raise RuntimeError("odd" if self.told < 3 else "even")
        self.ticker.stop()


def test_time_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    with caplog.at_level(logging.ERROR):
        service.ticker.run()
    assert service.told == 4
    said = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert said == ["odd", "even"]
