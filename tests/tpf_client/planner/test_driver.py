"""The tasks of a query: what they wait for."""

from contextlib import closing

import pytest

from annotations.clock import SystemClock
from tpf_client.errors import SourceError
from tpf_client.fragments.fetcher import Request
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.planner.driver import Driver, Task, finished


def test_a_request_that_cannot_be_sent_is_not_waited_for() -> None:
    def task() -> Task[None]:
        yield [Request("http://[x/")]

    with closing(ThreadedFetcher(clock=SystemClock())) as fetcher:
        driver = Driver(fetcher)
        with pytest.raises(SourceError, match="not a URL"):
            finished(driver.run(task()), driver)
        assert driver.idle
        assert not driver.step()
