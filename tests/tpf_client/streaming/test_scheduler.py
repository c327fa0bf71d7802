"""The threads of continuous queries: as many as there should be, and they go on."""

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

import pytest

from annotations.clock import SystemClock
from annotations.instants import LAST
from tests.support.eventually import eventually
from tpf_client import Client
from tpf_client.streaming import scheduler
from tpf_client.streaming.scheduler import Job, Scheduler

QUERY = "ASK { ?s ?p ?o }"
URL = "http://127.0.0.1:9/d"


class Waiting:
    """A query that waits until it is closed.

    Args:
        closed: whether it is.
    """

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed
        self.early = False
        self.waits = threading.Event()

    def looks(self, _wake: object) -> Iterator[object]:
        while True:
            self.waits.set()
            yield LAST

    def close(self) -> None:
        self.closed = True


def _never(_tick: object) -> Any:
    raise AssertionError


def _refused(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def _loops() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "tpf-streams"}


def test_streams_that_start_at_once_have_one_scheduler_and_one_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever makes something waits there for others who do, as long as these may take."""
    before, count = _loops(), 8
    made: list[object] = []

    def slowly(kind: Any) -> Any:
        met = threading.Barrier(2)

        def make(*arguments: Any, **options: Any) -> Any:
            made.append(kind)
            with suppress(threading.BrokenBarrierError):
                met.wait(0.2)
            return kind(*arguments, **options)

        return make

    monkeypatch.setattr(scheduler, "ThreadPoolExecutor", slowly(ThreadPoolExecutor))
    monkeypatch.setattr(scheduler, "Scheduler", slowly(Scheduler))
    client = Client(URL)
    begin, errors = threading.Barrier(count), []

    def start() -> None:
        begin.wait()
        try:
            client.stream(QUERY).start(lambda _: None)
        except Exception as error:  # noqa: BLE001 - told by the other thread
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    loops = _loops() - before
    client.close()
    assert errors == []
    assert sorted(each.__name__ for each in cast(Any, made)) == ["Scheduler", "ThreadPoolExecutor"]
    assert len(loops) == 1
    assert not any(each.is_alive() for each in loops)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_stream_of_a_closed_client_ends(earlier: bool) -> None:
    before = _loops()
    client = Client(URL)
    if earlier:
        client.stream(QUERY).start(lambda _: None)
    client.close()
    ended = threading.Event()
    stream = client.stream(QUERY).start(lambda _: None, lambda _: ended.set())
    assert stream.wait(10)
    assert ended.is_set()
    assert _loops() <= before


class Woken(Waiting):
    """One that is woken when it is closed."""

    def looks(self, _wake: Any) -> Iterator[object]:
        self._woken = _wake
        yield from super().looks(_wake)

    def close(self) -> None:
        super().close()
        self._woken()


def test_a_query_ends_that_begins_to_wait_as_another_one_closes_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, advance = Scheduler(SystemClock(), 1), Job.advance

    def closing(job: Job, now: datetime) -> datetime | None:
        at = advance(job, now)
        if at is not None:
            running.close()
        return at

    monkeypatch.setattr(Job, "advance", closing)
    job = running.add(cast(Any, Woken()), _never)
    assert job.wait(10)
    assert job.error is None


def test_what_fails_at_the_end_of_a_query_ends_nothing_else() -> None:
    running = Scheduler(SystemClock(), 1)
    query = Waiting()
    job = running.add(cast(Any, query), _never)
    told = threading.Event()
    job.when_ended(lambda: 1 / 0)
    job.when_ended(told.set)
    assert query.waits.wait(60)
    job.close()
    assert told.wait(10)
    running.close()


def test_a_loop_that_cannot_be_started_is_started_with_the_next_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, query = Scheduler(SystemClock(), 1), Waiting()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _refused)
        with pytest.raises(RuntimeError, match="new thread"):
            running.add(cast(Any, Waiting()), _never)
    running.add(cast(Any, query), _never)
    assert query.waits.wait(60)
    running.close()


def test_where_no_thread_can_be_started_for_them_queries_are_evaluated_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        if thread.name.startswith("tpf-stream_"):
            _refused(thread)
        start(thread)

    running, queries = Scheduler(SystemClock(), 1), [Waiting(), Waiting(), Waiting()]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", scarce)
        jobs = [running.add(cast(Any, query), _never) for query in queries[:2]]
        assert all(query.waits.wait(60) for query in queries[:2])
    # With a thread again, what was done is not done once more.
    jobs.append(running.add(cast(Any, queries[2]), _never))
    assert queries[2].waits.wait(10)
    running.close()
    assert all(job.ended and job.error is None for job in jobs)


def test_of_a_query_that_has_ended_nothing_is_kept() -> None:
    """However far the instant is that it was waiting for."""
    running = Scheduler(SystemClock(), 1)

    def ended() -> weakref.ref[Waiting]:
        query = Waiting()
        job = running.add(cast(Any, query), _never)
        assert query.waits.wait(60)
        job.close()
        assert job.wait(10)
        return weakref.ref(query)

    first, _ = ended(), ended()

    def is_gone() -> bool:
        gc.collect()
        return first() is None

    eventually(is_gone)
    running.close()
