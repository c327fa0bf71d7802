"""Facts that come later than the query, and pages that are due before it has been evaluated."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Client
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.streaming.streamer import Schedule, Streamer

TRAIN = iri("http://example.org/departure/1")
SIGN = Quad(TRAIN, iri("http://example.org/train#headSign"), literal("Gent"))
DELAY = Quad(TRAIN, iri("http://example.org/train#delay"), literal("300"))


def _delays(end: float) -> list[Fact]:
    return [
        Fact(DELAY._replace(subject=iri(f"http://example.org/departure/{number}")),
             Expiration(START + timedelta(seconds=end)))
        for number in range(3)
    ]  # fmt: skip


def test_a_feed_that_is_a_little_late_leaves_the_board_empty_for_that_little(
    tmp_path: Path,
) -> None:
    with LiveServer(tmp_path, [], max_age=10) as server, server.client() as client:
        server.publish(_delays(10))
        # Each time later, and always when the pages that tell of nothing are fresh for long.
        for end, late in ((10, 0.4), (20, 0.9), (30, 2.0)):
            at = START + timedelta(seconds=end + late)
            server.clock.schedule(at, lambda end=end: server.publish(_delays(end + 10)))
        stream = client.stream(
            "SELECT * { ?d <http://example.org/train#delay> ?delay }",
            until=START + timedelta(seconds=100),
        )
        states, requests = [], []
        for update in stream:
            states.append(((update.at - START).total_seconds(), len(update.results)))
            requests.append(len(server.log))
    # Back within twice the delay, at the cost of one request each time it looks.
    empty = [(at, back) for (at, n), (back, _) in pairwise(states) if n == 0]
    assert [at for at, _ in empty] == [10, 20, 30]
    assert all(
        back - at <= 2 * late + 0.01
        for (at, back), late in zip(empty, (0.4, 0.9, 2.0), strict=True)
    )
    assert [after - before for before, after in pairwise(requests)] == [
        1, 2, 1, 3, 1, 4, 1,
    ]  # fmt: skip
    # When it does not come back, five such looks, then one per freshness of the empty page.
    assert len(server.log) - requests[-1] == 5 + 5


@pytest.mark.parametrize("page_labels", [True, False])
def test_what_is_withdrawn_is_gone_at_the_next_look(tmp_path: Path, page_labels: bool) -> None:
    server = LiveServer(
        tmp_path, [SIGN], page_labels=page_labels, annotation="named-graph", max_age=10
    )
    other = DELAY._replace(subject=iri("http://example.org/departure/2"))
    until = START + timedelta(seconds=100)
    server.publish([Fact(DELAY, Expiration(until)), Fact(other, Expiration(until))])
    # A third fact is why it looks before that.
    tick = DELAY._replace(subject=iri("http://example.org/departure/3"))
    server.publish([Fact(tick, Expiration(START + timedelta(seconds=20)))])
    gone = START + timedelta(seconds=12)
    server.clock.schedule(gone, lambda: server.publish([], [Fact(DELAY)]))
    query = "SELECT * { ?d <http://example.org/train#delay> ?delay }"
    with server.client() as client:
        updates = iter(client.stream(query))
        first, second = next(updates), next(updates)
    server.close()
    assert len(first.added) == 3
    assert (len(second.removed), len(second.results)) == (2, 1)
    assert second.at - START == timedelta(seconds=20)


@pytest.mark.parametrize("name", ["every", "max_interval", "keep_checking"])
def test_no_period_is_zero(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with Client("http://server.test/") as client, pytest.raises(ValueError, match=name):
        client.stream("ASK { ?s ?p ?o }", **options)


def test_looking_again_soon_keeps_to_the_least_interval(tmp_path: Path) -> None:
    with LiveServer(tmp_path, [], max_age=10) as server, server.client() as client:
        server.publish(_delays(10))
        stream = client.stream(
            "SELECT * { ?d <http://example.org/train#delay> ?delay }",
            until=START + timedelta(seconds=20),
            min_interval=3,
            quiet=True,
        )
        instants = [(update.at - START).total_seconds() for update in stream]
    assert instants[:2] == [0, 10]
    assert all(later - at >= 3 for at, later in pairwise(instants))
    assert len(instants) <= 5


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
