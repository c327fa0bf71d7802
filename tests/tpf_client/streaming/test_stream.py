"""The ways to read a continuous query: a callback, ``async for``; and many at once."""

import asyncio
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from annotations.clock import SystemClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import AsyncClient, Client, Update
from tpf_client.errors import SourceError
from tpf_client.live_answers import applied
from tpf_client.stream import TimedSolution
from tpf_client.streaming.streamer import PlannedQuery

PERIOD = timedelta(seconds=10)
QUERY = "SELECT ?delay {{ <http://example.org/{}> <http://example.org/train#delay> ?delay }}"


def run_trains(server: LiveServer, trains: int) -> None:
    """Publish a delay of each train, the same for all, at every period."""
    delay = iri("http://example.org/train#delay")
    server.publish_rounds(
        PERIOD,
        lambda number: [
            Quad(iri(f"http://example.org/{train}"), delay, literal(str(number)))
            for train in range(trains)
        ],
    )


def _collect(seen: list[str], update: Update) -> None:
    seen.extend(_delays(update))


def _delays(update: Update) -> list[str]:
    return [str(solution["delay"]) for solution in update.results]


def test_a_thousand_queries_need_no_threads_of_their_own(tmp_path: Path) -> None:
    """They share requests: what all of them look at is asked for once per period."""
    with LiveServer(tmp_path) as server, server.client() as client:
        run_trains(server, 10)
        seen: list[list[str]] = [[] for _ in range(1000)]
        threads = threading.active_count()
        streams = [
            client.stream(QUERY.format(number % 10)).start(partial(_collect, seen[number]))
            for number in range(1000)
        ]
        client.scheduler.run(until=START + 3.5 * PERIOD)
        assert threading.active_count() == threads
        # Once the form, then ten fragments at each of four instants.
        assert len(server.log) <= 2 + 4 * 10
        for stream in streams[:500]:
            stream.close()
        client.scheduler.run(until=START + 4.5 * PERIOD)
        assert all(stream.wait(0) for stream in streams[:500])
    assert seen[:500] == [["0", "1", "2", "3"]] * 500
    assert seen[500:] == [["0", "1", "2", "3", "4"]] * 500


def test_a_callback_that_fails_ends_its_own_query_alone(tmp_path: Path) -> None:
    with LiveServer(tmp_path) as server, server.client() as client:
        run_trains(server, 1)
        seen: list[str] = []

        def fail(update: Update) -> None:
            raise LookupError(update.at.isoformat())

        bad = client.stream(QUERY.format(0)).start(fail)
        client.stream(QUERY.format(0)).start(lambda update: seen.extend(_delays(update)))
        client.scheduler.run(until=START + 1.5 * PERIOD)
        with pytest.raises(LookupError, match="2015-12-08"):
            bad.wait()
    assert seen == ["0", "1"]


def test_the_first_failure_is_raised_where_one_waits(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    url = server.url.replace("trains", "nothing")
    with Client(url, session=server.session(), clock=SystemClock(), parallelism=2) as client:
        stream = client.stream(QUERY.format(0)).start(print)
        with pytest.raises(SourceError, match="404"):
            stream.wait(30)
    server.close()


def test_async_for_goes_at_the_pace_of_its_reader(tmp_path: Path) -> None:
    """What changed while the reader was busy comes as one update."""
    clock = SystemClock()
    server = LiveServer(tmp_path, clock=clock)

    def publish(delay: int, seconds: float) -> None:
        quad = Quad(iri("http://example.org/0"), iri("http://example.org/train#delay"),
                    literal(str(delay)))  # fmt: skip
        server.publish([Fact(quad, Expiration(clock.now() + timedelta(seconds=seconds)))])

    seen: list[tuple[list[str], int, int]] = []

    async def read() -> None:
        client = AsyncClient(server.url, session=server.session(), clock=clock, parallelism=2)
        async with client:
            await updates(client)

    async def updates(client: AsyncClient) -> None:
        async for update in client.stream(QUERY.format(0)):
            seen.append((_delays(update), len(update.added), len(update.removed)))
            if len(seen) == 2:
                break
            for delay in range(1, 4):
                publish(delay, 60)
            await asyncio.sleep(2.2)

    publish(0, 2)
    asyncio.run(asyncio.wait_for(read(), 30))
    server.close()
    assert seen == [(["0"], 1, 0), (["3"], 1, 1)]


@pytest.mark.parametrize("anew", [False, True])
def test_a_solution_that_moves_in_an_order_by_what_is_not_seen_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """Also where the query is planned anew each time."""
    monkeypatch.setattr(PlannedQuery, "outgrown", anew)
    delay, delays = iri("http://example.org/train#delay"), [(1, 2, 3), (4, 2, 3), (4, 9, 3)]
    shown: list[TimedSolution] = []
    orders: list[str] = []

    def follow(update: Update) -> None:
        shown[:] = applied(shown, update)
        orders.append("".join(str(each["train"])[-1] for each in shown))

    with LiveServer(tmp_path) as server, server.client() as client:
        server.publish_rounds(
            PERIOD,
            lambda number: [
                Quad(iri(f"http://example.org/{name}"), delay, literal(str(each)))
                for name, each in zip("abc", delays[number], strict=True)
            ],
        )
        client.stream(f"SELECT ?train {{ ?train {delay} ?d }} ORDER BY ?d").start(follow)
        client.scheduler.run(until=START + 2.5 * PERIOD)
    assert orders == ["abc", "bca", "cab"]


def test_a_stream_has_one_consumer(tmp_path: Path) -> None:
    with LiveServer(tmp_path) as server, server.client() as client:
        stream = client.stream(QUERY.format(0)).start(print)
        with pytest.raises(RuntimeError, match="one consumer"):
            stream.start(print)
        with pytest.raises(RuntimeError, match="one consumer"):
            iter(stream)
        with pytest.raises(RuntimeError, match="not started"):
            client.stream(QUERY.format(0)).wait()


def test_closing_the_client_ends_its_streams(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    run_trains(server, 1)
    came = threading.Event()
    client = Client(server.url, session=server.session(), clock=SystemClock(), parallelism=2)
    # On the clock of the machine the labels have ended long ago: the query waits.
    stream = client.stream(QUERY.format(0), keep_checking=60).start(lambda _: came.set())
    assert came.wait(30)
    client.close()
    assert stream.wait(30)
    server.close()
