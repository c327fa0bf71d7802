"""The proxy leaves bytes unchanged, counts and delays them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from experiments.free_port import free_port
from experiments.harness.processes import LOOPBACK, Process, child, started
from tests.experiments.harness.test_load_generator import Handler, port

__all__ = ["port"]
DELAY_MS = 60


@contextmanager
def proxy(port: int) -> Iterator[tuple[Process, str]]:
    own = free_port()
    order = child("experiments.harness.delay_proxy:DelayProxy", str(port), str(own))
    with started("proxy", order) as process:
        process.ask({"delay": 0}, 30)
        yield process, f"http://{LOOPBACK}:{own}/"


def passed(process: Process, delay: int) -> dict[str, int]:
    answer = process.ask({"delay": delay}, 30)
    return {name: value for name, value in answer.items() if name != "id"}


def test_requests_and_bytes_are_counted_and_every_round_trip_takes_longer(port: int) -> None:
    with proxy(port) as (process, url), requests.Session() as session:
        for name in "abc":
            assert session.get(url + name).content == b"x" * 1000
        counted = passed(process, 0)
        assert counted["requests"] == 3
        assert counted["connections"] == 1
        assert 3000 < counted["bytes"] < 4000
        session.get(url + "d")
        assert passed(process, 0)["requests"] == 1
        assert passed(process, DELAY_MS) == {"requests": 0, "bytes": 0, "connections": 0}
        for name in "efg":
            begin = time.perf_counter()
            session.get(url + name)
            assert time.perf_counter() - begin >= DELAY_MS / 1000
    assert [path for path, _ in Handler.seen] == [f"/{name}" for name in "abcdefg"]


def test_a_server_that_is_gone_ends_the_connection() -> None:
    with proxy(free_port()) as (process, url):
        with pytest.raises(requests.ConnectionError):
            requests.get(url, timeout=60)
        process.check()
