import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from annotations.clock import ManualClock
from annotations.event_reader import ServerEvent
from annotations.terms import QuadPattern, Variable
from tests.support.eventually import eventually
from tests.support.live_server import START
from tests.support.running_server import TOKEN, RunningServer
from tpf_client import Client
from tpf_client.errors import SourceError
from tpf_client.planner.driver import Driver, Task
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.live_fragment import MOMENT, Freshness
from tpf_client.planner.reading import Content, ReadRequest
from tpf_client.stream import Stream, Update
from tpf_client.streaming import change_signal
from tpf_client.streaming.change_signal import ChangeSignals, Heard
from tpf_client.streaming.streamer import SAFETY, ChangeListener, Schedule

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
def following(server: RunningServer) -> Iterator[tuple[Client, Followed]]:
    with Client(f"{server.url}trains", signal=True) as client:
        yield client, Followed(client.stream(QUERY, quiet=True))


def test_a_change_is_seen_at_once_and_others_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A signal that begins before the first look causes no second one.
    looked, run = Event(), change_signal._Signal.run
    monkeypatch.setattr(change_signal._Signal, "run", lambda self: looked.wait(60) and run(self))
    # Without a signal, it would be seen when a page stops being fresh.
    with RunningServer(tmp_path, f"change_followers = 1\n{CONFIG}3600.0\n") as server:
        publish(server, '<urn:a> <urn:delay> "1" . <urn:a> <urn:headsign> "x" .')
        with following(server) as (client, followed):
            followed.answer({"1"})
            looked.set()
            followed.answer({"1"})  # the second look is when changes begin to be told
            publish(server, '<urn:a> <urn:delay> "2" .')
            followed.answer({"2"})
            before = client.statistics.requests
            for number in range(5):
                publish(server, f'<urn:a> <urn:other> "{number}" .')
            publish(server, '<urn:a> <urn:delay> "3" .')
            followed.answer({"3"})
            assert client.statistics.requests - before == 1


def test_whoever_hears_nothing_polls_also_when_its_signal_has_ended(tmp_path: Path) -> None:
    with RunningServer(tmp_path, f"change_followers = 1\n{CONFIG}1.0\n") as server:
        publish(server, '<urn:a> <urn:delay> "1" . <urn:a> <urn:headsign> "x" .')
        # The server tells one of them, and refuses the other.
        with following(server) as (_, one), following(server) as (_, other):
            for each in (one, other):
                each.answer({"1"})
            publish(server, '<urn:a> <urn:delay> "2" .')
            for each in (one, other):
                each.answer({"2"})
            server.process.terminate()
            assert server.process.wait(90) == 0
            with RunningServer(tmp_path, f"{CONFIG}1.0\n", port=server.port) as again:
                publish(again, '<urn:a> <urn:delay> "3" .')
                for each in (one, other):
                    each.answer({"3"})


class Telling:
    """In place of a fetcher: what it reads is given.

    Args:
        connections: the events of each; an error is raised. After the last one it waits.
    """

    def __init__(self, *connections: list[ServerEvent | Exception]) -> None:
        self._connections = list(connections)
        self.resumed: SimpleQueue[str | None] = SimpleQueue()
        self.followed = Event()

    def events(
        self, _url: str, last: str | None, _seconds: float, over: Event, _most: int
    ) -> Iterator[ServerEvent]:
        assert self.followed.wait(10)
        self.resumed.put(last)
        if not self._connections:
            over.wait(60)
            return
        for each in self._connections.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each


def _event(number: str | None, *predicates: str) -> ServerEvent:
    return ServerEvent("message", number, json.dumps({"predicates": predicates}))


def test_a_signal_goes_on_where_it_was_whatever_broke_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_signal, "_PAUSES", (0.0,))
    telling = Telling(
        [_event("1", "urn:a"), _event(None, "urn:b"), KeyError("a defect")],
        [_event("2", "urn:c"), SourceError("urn:x", "lost")],
        [_event("", "urn:d")],
        [_event("3", "urn:e")],
    )
    heard: SimpleQueue[tuple[bool, frozenset[str] | None]] = SimpleQueue()
    signals = ChangeSignals(cast(Any, telling))
    signals.follow("urn:x", lambda *told: heard.put(told))
    telling.followed.set()
    lost = (False, frozenset[str]())
    expected = [
        # What was missed before the first is not known, nor what was before one without a number.
        (True, None), (True, frozenset({"<urn:b>"})), lost,
        (True, frozenset({"<urn:c>"})), lost,
        (True, frozenset({"<urn:d>"})), lost,
        (True, None), lost,
    ]  # fmt: skip
    assert [heard.get(timeout=60) for _ in expected] == expected
    assert [telling.resumed.get(timeout=60) for _ in range(5)] == [None, "1", "2", None, "3"]
    signals.close()


def test_a_signal_that_breaks_off_now_and_then_is_soon_followed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_signal, "_PAUSES", (0.0, 0.0, 60.0))
    lost = SourceError("urn:x", "lost")
    connections: list[list[ServerEvent | Exception]] = [
        [_event(str(number), "urn:a"), lost] for number in range(5)
    ]
    telling = Telling(*connections)
    heard: SimpleQueue[bool] = SimpleQueue()
    signals = ChangeSignals(cast(Any, telling))
    signals.follow("urn:x", lambda up, _: heard.put(up))
    telling.followed.set()
    assert [heard.get(timeout=10) for _ in range(10)] == [True, False] * 5
    signals.close()


def test_a_signal_whose_thread_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    heard: SimpleQueue[tuple[bool, frozenset[str] | None]] = SimpleQueue()
    telling = Telling([_event("1", "urn:a")])
    signals = ChangeSignals(cast(Any, telling))
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            signals.follow("urn:x", lambda *told: heard.put(told))
    signals.follow("urn:x", lambda *told: heard.put(told))
    telling.followed.set()
    assert heard.get(timeout=60) == (True, None)
    signals.close()


def test_lines_that_are_no_events_are_no_harm() -> None:
    for data in ("", "x", "[]", "{}", '{"predicates": 5}', '{"predicates": null}', "[" * 100_000):
        assert change_signal._predicates(data) is None
    assert change_signal._predicates('{"predicates": ["urn:p"]}') == frozenset({"<urn:p>"})


def test_whoever_comes_as_a_signal_ends_hears_the_end_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_signal, "_PAUSES", (60.0,))
    goes_on, heard = Event(), SimpleQueue[bool]()

    class Ending:
        def events(self, *_: object) -> Iterator[ServerEvent]:
            yield _event("1", "urn:a")
            assert goes_on.wait(10)

    signals, told = ChangeSignals(cast(Any, Ending())), []

    def slow(up: bool, _predicates: object) -> None:
        if up:
            goes_on.set()
            with suppress(Empty):
                heard.get(timeout=0.2)
        told.append(up)

    signals.follow("urn:x", lambda up, _: heard.put(up))
    assert heard.get(timeout=60)
    signals.follow("urn:x", slow)
    eventually(lambda: len(told) == 2)
    signals.close()
    assert told == [True, False]


class LookedAt:
    """In place of signals, and of an evaluation that looks at the predicates `names`."""

    def __init__(self) -> None:
        self.names = {"<urn:p>"}
        self.marked: list[frozenset[str] | None] = []

    def follow(self, _url: str, heard: Heard) -> Callable[[], None]:
        self.hear = heard
        return lambda: None

    def predicates(self) -> frozenset[str]:
        return frozenset(self.names)

    def expect_signals(self, _period: object) -> None:
        """Nothing is read."""

    def mark(self, predicates: frozenset[str] | None) -> None:
        self.marked.append(predicates)


def test_a_signal_is_acted_on_once_and_not_before_its_time() -> None:
    """Also one of what an evaluation comes to look at while it runs."""
    clock, world = ManualClock(START), cast(Any, LookedAt())
    schedule, wake = Schedule(min_interval=timedelta(seconds=5)), START + timedelta(minutes=5)
    listener = ChangeListener(world, lambda: None)
    listener.follow(["urn:x"])
    world.hear(True, None)
    listener.tell(world)
    assert world.marked.pop() is None

    def news() -> bool:
        return listener.news

    for predicate in ("urn:p", "urn:q"):
        waiting = listener.wait(wake, clock, schedule, world)
        assert next(waiting) == wake
        world.hear(True, frozenset({"<urn:other>"}))
        assert not news()
        if predicate == "urn:p":
            world.hear(True, frozenset({"<urn:p>"}))
        else:
            waiting.close()
            listener.tell(world)
            world.names.add("<urn:q>")
            world.hear(True, frozenset({"<urn:q>"}))
            waiting = listener.wait(wake, clock, schedule, world)
        assert news()
        soonest = clock.now() + timedelta(seconds=5)
        assert next(waiting) == soonest
        # It waits for that instant, and does not ask again and again whether it has come.
        assert not news()
        clock.advance_to(soonest)
        with pytest.raises(StopIteration) as ended:
            next(waiting)
        assert ended.value.value is True
        listener.tell(world)
        assert world.marked.pop() == frozenset({f"<{predicate}>"})


class Read:
    """A source that a signal may tell of.

    Attributes:
        cached: a cache on the way answers.
        anew: of each reading, whether it was to be a new one.
    """

    url = "urn:x"

    def __init__(self) -> None:
        self.cached = False
        self.anew: list[bool] = []

    def read(self, asked: ReadRequest) -> Task[Content]:
        yield from ()
        self.anew.append(asked.anew)
        at = asked.at or START
        return Content((), at, at + FRESH, None, None, dynamic=True, cached=self.cached)


FRESH = timedelta(seconds=10)


def followed(*sources: Read) -> Evaluation:
    """An evaluation that has read a fragment of each source, and hears signals of the first."""
    driver = Driver(cast(Any, SimpleNamespace(parallelism=0)))
    evaluation = Evaluation(driver, cast(Any, sources[0]), freshness=Freshness())
    pattern = QuadPattern(*map(Variable, ("?s", "?p", "?o", "?g")))
    for source in sources:
        evaluation.subscribe(pattern, lambda _: None, cast(Any, source))
    assert not list(evaluation.bring_up_to(START))
    evaluation.expect_signals(SAFETY)
    return evaluation


def test_a_signal_tells_nothing_of_services() -> None:
    assert followed(Read()).wake_at() == START + SAFETY
    told, service = Read(), Read()
    evaluation = followed(told, service)
    assert evaluation.wake_at() == START + FRESH
    evaluation.mark(None)
    assert not list(evaluation.bring_up_to(START + MOMENT))
    assert (told.anew, service.anew) == ([False, True], [False])


def test_what_a_cache_had_at_a_signal_is_read_again_when_it_is_no_longer_fresh() -> None:
    source, at = Read(), START
    evaluation = followed(source)
    evaluation.mark(None)
    for cached in (True, False):
        source.cached, at = cached, at + FRESH
        assert not list(evaluation.bring_up_to(at))
        assert evaluation.wake_at() == at + (FRESH if cached else SAFETY)
    assert source.anew == [False, True, True]
