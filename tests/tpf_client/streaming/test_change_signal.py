from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import requests

from tests.support.running_server import TOKEN, RunningServer
from tpf_client import Client
from tpf_client.stream import Stream, Update
from tpf_client.streaming import change_signal

QUERY = "SELECT ?s ?d { ?s <urn:delay> ?d . ?s <urn:headsign> ?h }"
CONFIG = "[datasets.trains]\nlive = true\nmax_age = "


def publish(server: RunningServer, body: str) -> None:
    answer = requests.post(
        f"{server.url}trains/facts?expiration=2999-01-01T00:00:00Z",
        body.encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/turtle"},
        timeout=60,
    )
    assert answer.ok, answer.text


class Followed:
    """A started stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.updates: SimpleQueue[Update] = SimpleQueue()
        stream.start(self.updates.put)

    def next(self) -> Update:
        """The next update, which comes in time."""
        return self.updates.get(timeout=60)

    def answer(self, expected: set[str]) -> None:
        """Wait until the delays are these."""
        found: set[str] | None = None
        while found != expected:
            found = {str(each["d"]) for each in self.next().results}


@contextmanager
def following(server: RunningServer, *, signal: bool = True) -> Iterator[tuple[Client, Followed]]:
    with Client(f"{server.url}trains", signal=signal) as client:
        yield client, Followed(client.stream(QUERY, quiet=True))


def test_a_change_is_seen_at_once_and_others_are_not_looked_at(tmp_path: Path) -> None:
    # Without a signal, it would be seen when a page stops being fresh.
    with RunningServer(tmp_path, f"change_followers = 1\n{CONFIG}3600.0\n") as server:
        publish(server, '<urn:a> <urn:delay> "1" . <urn:a> <urn:headsign> "x" .')
        with following(server) as (client, followed):
            followed.answer({"1"})
            followed.answer({"1"})  # the second look is when changes begin to be told
            publish(server, '<urn:a> <urn:delay> "2" .')
            followed.answer({"2"})
            before = client.statistics.requests
            for number in range(5):
                publish(server, f'<urn:a> <urn:other> "{number}" .')
            publish(server, '<urn:a> <urn:delay> "3" .')
            followed.answer({"3"})
            assert client.statistics.requests - before == 1


def test_whoever_hears_nothing_polls(tmp_path: Path) -> None:
    with RunningServer(tmp_path, f"change_followers = 1\n{CONFIG}1.0\n") as server:
        publish(server, '<urn:a> <urn:delay> "1" . <urn:a> <urn:headsign> "x" .')
        url = f"{server.url}trains/changes"
        with (
            requests.get(url, stream=True, timeout=60) as other,
            following(server) as (_, followed),
        ):
            assert other.status_code == 200
            followed.answer({"1"})
            publish(server, '<urn:a> <urn:delay> "2" .')
            followed.answer({"2"})


def test_a_signal_that_ends_is_polling_and_comes_back(tmp_path: Path) -> None:
    with RunningServer(tmp_path, f"change_followers = 1\n{CONFIG}1.0\n") as server:
        publish(server, '<urn:a> <urn:delay> "1" . <urn:a> <urn:headsign> "x" .')
        with following(server) as (_, followed):
            followed.answer({"1"})
            server.process.terminate()
            assert server.process.wait(90) == 0
            with RunningServer(tmp_path, f"{CONFIG}1.0\n", port=server.port) as again:
                publish(again, '<urn:a> <urn:delay> "2" .')
                followed.answer({"2"})


def test_lines_that_are_no_events_are_no_harm() -> None:
    for data in ("", "x", "[]", "{}", '{"predicates": 5}', '{"predicates": null}', "[" * 100_000):
        assert change_signal._predicates(data) is None
    assert change_signal._predicates('{"predicates": ["urn:p"]}') == frozenset({"<urn:p>"})
