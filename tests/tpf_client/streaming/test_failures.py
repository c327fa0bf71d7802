"""Servers that fail: errors are updates, nothing goes by mistake, and the answer recovers."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from annotations.clock import ManualClock, SystemClock
from annotations.labels import Expiration, Fact, Labelling
from annotations.terms import Quad, Term, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.wsgi_adapter import WholeAnswer, changing
from tests.tpf_client.streaming.test_train_query import PERIOD, QUERY, Feed, _rows, _static
from tpf_client.errors import ConnectionFailedError, LimitError, UnstableError
from tpf_client.fragments.responses import Limits
from tpf_client.planner.budget import Allowance, Budget
from tpf_client.stream import Update
from tpf_client.streaming.streamer import Schedule, Streamer, Tick
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings
from tpf_server.store.live.store import open_live_store


class Faulty:
    """A WSGI application that fails as `fault` says, and is the real one otherwise."""

    def __init__(self, app: Callable[..., Iterable[bytes]], fault: Callable[[], str]) -> None:
        self._app = app
        self._fault = fault
        self.failed = 0

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        fault = self._fault()
        if not fault:
            return self._app(environ, start)
        self.failed += 1
        if fault == "refused":
            raise requests.ConnectionError("refused")
        if fault == "garbage":
            start("200 OK", [("Content-Type", "application/trig")])
            return [b"<<<<"]
        if fault == "truncated":
            body = b"".join(self._app(environ, start))
            start("200 OK", [("Content-Type", "application/trig")], True)
            return [body[: len(body) // 2]]
        start("503 Busy", [("Content-Type", "text/plain"), ("Retry-After", "1")])
        return [b"busy"]


@pytest.mark.parametrize("kind", ["refused", "busy", "garbage", "truncated"])
def test_an_outage_is_told_and_survived(tmp_path: Path, kind: str) -> None:
    server = LiveServer(tmp_path, _static())
    feed = Feed(server, "expiration", early=False)
    down = (START + 2 * PERIOD, START + 2 * PERIOD + timedelta(seconds=14))

    def fault() -> str:
        return kind if down[0] <= server.clock.now() < down[1] else ""

    faulty = Faulty(server.app, fault)
    seen = Counter[frozenset[tuple[str, Term]]]()
    errors, recovered = 0, False
    with server.client(app=faulty, limits=Limits(retries=1)) as client:
        for update in client.stream(QUERY, until=START + 6 * PERIOD):
            added, removed = _rows(update.added), _rows(update.removed)
            assert not removed - seen
            seen = seen + added - removed
            if update.error is not None:
                errors += 1
                assert server.url in str(update.error)
                assert not added
                assert not removed
                assert _rows(update.results) == seen
                continue
            recovered = recovered or bool(errors)
            assert seen == _rows(update.results) == feed.expected(update.at)
    assert errors
    assert recovered
    assert faulty.failed
    server.close()


@pytest.mark.parametrize(
    ("form", "solutions"),
    [("SELECT ?s ?a ?b", 1), ("ASK", 1), ("CONSTRUCT WHERE", 2), ("DESCRIBE ?s", 2)],
)
@pytest.mark.parametrize("outage", [False, True])
def test_facts_that_expire_too_fast_at_first_are_told_and_read_later(
    tmp_path: Path, form: str, solutions: int, outage: bool
) -> None:
    """While each request takes longer than any fact holds, there is no answer to be told.

    Once that was told, whatever else fails is told and tried again, too.
    """
    ex, second = "http://example.org/", timedelta(seconds=1)
    calm = START + 60 * second
    server = LiveServer(tmp_path)

    def publish() -> None:
        now = server.clock.now()
        end = now + (3600 * second if now >= calm else second)
        names = (iri(f"{ex}{name}") for name in "ab")
        quads = [Quad(iri(ex + "x"), name, literal(now.isoformat())) for name in names]
        server.publish([Fact(quad, Expiration(end)) for quad in quads])
        if now < calm:
            server.clock.schedule(now + second, publish)

    seen: list[Update] = []

    def slow() -> str:
        now = server.clock.now()
        if outage and len(seen) == 1:
            return "refused"
        if now < calm:
            server.clock.advance_to(now + 2 * second)
        return ""

    publish()
    with server.client(app=Faulty(server.app, slow), limits=Limits(retries=0)) as client:
        query = f"{form} {{ ?s <{ex}a> ?a . ?s <{ex}b> ?b }}"
        stream = client.stream(query, until=calm + 120 * second, explain=True)
        for update in stream:
            seen.append(update)
            # There is a plan, if not much to say of it.
            assert server.url in stream.explain()
            assert stream.plan()["steps"]
            if update.error is None:
                break
            assert update.wakes_at is not None
            assert (update.added, update.results, update.boolean) == ((), [], None)
            assert update.to_json().get("boolean", 0) is (None if form == "ASK" else 0)
    server.close()
    *failed, answer = seen
    kinds = [type(update.error) for update in failed]
    assert kinds.pop(0) is UnstableError
    if outage:
        assert kinds.pop(0) is ConnectionFailedError
    assert set(kinds) <= {UnstableError}
    assert len(answer.added) == len(answer.results) == solutions
    assert answer.boolean is (True if form == "ASK" else None)
    assert answer.to_json().get("boolean", 0) is (True if form == "ASK" else 0)


@pytest.mark.parametrize("hiccup", [0, 3, 6])
def test_a_silent_service_that_fails_is_left_out_for_some_time(tmp_path: Path, hiccup: int) -> None:
    """The rest of the query goes on without its values, and gets them when it is back.

    Also where the dataset itself fails once: right after the service, or when that is tried again.
    """
    ex, other = "http://example.org/", "http://other.test/"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here = LiveServer(tmp_path / "a", server={"max_values": 0})
    sizes = [Quad(iri(f"{ex}{n}"), iri(ex + "size"), literal(str(n))) for n in range(30)]
    more = [Quad(iri(f"{ex}x{n}"), iri(ex + "size"), literal("x")) for n in range(300)]
    there = LiveServer(
        tmp_path / "b", sizes + more, clock=here.clock, live=False,
        page_size=5,
        server={"base_url": other, "max_values": 0, "max_page_size": 5},
    )  # fmt: skip
    minute = timedelta(minutes=1)

    # Item `now` stands on the board for a minute.
    here.publish_rounds(
        minute, lambda now: [Quad(iri(f"{ex}{now}"), iri(ex + "board"), literal("1"))]
    )
    out = range(3, 6)
    faulty = there.app = Faulty(
        there.app, lambda: "garbage" if (here.clock.now() - START) // minute in out else ""
    )
    hiccups: Faulty

    def fails_once() -> str:
        now = (here.clock.now() - START) // minute
        return "garbage" if faulty.failed and 0 < hiccup <= now and not hiccups.failed else ""

    hiccups = here.app = Faulty(here.app, fails_once)
    sized = f"SERVICE SILENT <{other}trains> {{ ?s <{ex}size> ?z }}"
    query = f"SELECT ?s ?z {{ ?s <{ex}board> ?b {sized} }}"
    seen, errors = {}, 0
    added_up = Counter[tuple[str | None, ...]]()
    with here.client(session=here.session(there)) as client:
        for update in client.stream(query, until=START + 9.5 * minute):
            if update.error is not None:
                errors += 1
                continue
            now = round((update.at - START) / minute)
            added_up.update(each.row for each in update.added)
            added_up.subtract(each.row for each in update.removed)
            (row,) = update.results
            assert {each: n for each, n in added_up.items() if n} == {row.row: 1}
            assert str(row["s"]) == f"{ex}{now}"
            seen[now] = str(row["z"]) if "z" in row else None
    here.close()
    there.close()
    assert seen == {n: None if n in out else str(n) for n in range(10)}
    assert faulty.failed
    assert errors == hiccups.failed == min(hiccup, 1)


def test_a_limit_that_is_met_as_an_evaluation_ends_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(SystemClock(), Allowance())
    tick = Streamer._tick

    def slowly(*arguments: Any) -> Tick:
        budget.stop(LimitError("enough"))
        return tick(*arguments)

    monkeypatch.setattr(Streamer, "_tick", slowly)
    with LiveServer(tmp_path) as server, server.client() as client:
        stream = client.stream("SELECT * { ?s ?p ?o }", budgets=lambda: nullcontext(budget))
        with pytest.raises(LimitError, match="enough"):
            next(iter(stream))


STREAM_TIME = timedelta(minutes=2)
RESTARTS = 4
DOWN = timedelta(seconds=8)


class Mortal:
    """A WSGI server that is killed now and then and comes back with what its disk holds.

    Args:
        server: the server at first.
        path: where its stores are.
        settings: how it serves them.
        chance: every tenth request fails by this.
    """

    def __init__(
        self, server: LiveServer, path: Path, settings: DatasetSettings, chance: random.Random
    ) -> None:
        self._settings = settings
        self._server = server
        self._path = path
        self._chance = chance
        self.failed = 0
        self.killed = 0
        self.down = False
        every = STREAM_TIME / (RESTARTS + 1)
        for number in range(1, RESTARTS + 1):
            # Not together with what the feed publishes, mostly.
            at = START + number * every + timedelta(seconds=number / 3)
            server.clock.schedule(at, self._kill)
            server.clock.schedule(at + DOWN, self._restart)

    def _kill(self) -> None:
        self.down = True
        self.killed += 1

    def _restart(self) -> None:
        server = self._server
        assert server.live is not None
        server.live.close()
        server.live = open_live_store(self._path / "live.sqlite")
        dataset = OpenDataset(self._settings, server.static, server.live)
        server.app = create_app(server.settings, [dataset], server.clock)
        self.down = False

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if self.down:
            self.failed += 1
            raise requests.ConnectionError("refused")
        if self._server.clock.now() > START and self._chance.random() < 0.1:
            self.failed += 1
            start("503 Busy", [("Content-Type", "text/plain")])
            return [b"busy"]
        return self._server.app(environ, start)


@pytest.mark.parametrize(
    ("view", "page_labels", "labelling"),
    [
        ("plain", True, "expiration"),
        ("plain", True, "interval"),
        ("named-graph", False, "expiration"),
        ("singleton-property", False, "interval"),
    ],
)
def test_two_minutes_with_four_restarts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    view: str,
    page_labels: bool,
    labelling: Labelling,
) -> None:
    """Whatever is told is right, nothing is taken away by mistake, and the end is right."""
    server = LiveServer(tmp_path, _static(), page_labels=page_labels)
    feed = Feed(server, labelling, early=False)
    settings = DatasetSettings(name="trains", page_labels=page_labels)
    mortal = Mortal(server, tmp_path, settings, random.Random(11))
    # How long one waits after a failure is up to chance, too: the same in every run.
    monkeypatch.setattr(
        "tpf_client.streaming.streamer.Schedule", partial(Schedule, chance=random.Random(12))
    )
    limits = Limits(retries=1, backoff=0.01)
    seen = Counter[frozenset[tuple[str, Term]]]()
    right = errors = 0
    last = START
    with server.client(f"/{view}", app=mortal, limits=limits) as client:
        for update in client.stream(QUERY, until=START + STREAM_TIME, quiet=True):
            added, removed = _rows(update.added), _rows(update.removed)
            assert not removed - seen
            seen = seen + added - removed
            assert seen == _rows(update.results)
            if update.error is not None:
                errors += 1
                assert not added
                assert not removed
                continue
            right += 1
            last = update.at
            assert seen == feed.expected(update.at)
    server.close()
    assert mortal.killed == RESTARTS
    assert mortal.failed >= RESTARTS
    assert errors >= 3
    # Most of the twelve periods were shown, and the end.
    assert right >= STREAM_TIME / PERIOD * 0.6
    assert last >= START + STREAM_TIME - 3 * PERIOD


class SkewedClock:
    """A clock that is ahead of another, and goes at another speed.

    Args:
        clock: the right one.
        ahead: by how much at first.
        drift: seconds gained per second.
    """

    def __init__(self, clock: ManualClock, ahead: timedelta, drift: float) -> None:
        self._clock = clock
        self._began = clock.now()
        self._ahead = ahead
        self._drift = drift

    def now(self) -> datetime:
        """What it shows."""
        now = self._clock.now()
        return now + self._ahead + (now - self._began) * self._drift

    def schedule(self, instant: datetime, action: Callable[[], None]) -> None:
        """Call `action` when it shows this instant."""
        elapsed = (instant - self._began - self._ahead) / (1 + self._drift)
        self._clock.schedule(self._began + elapsed + timedelta(microseconds=1), action)

    def wait_until(self, instant: datetime, cancelled: object = None) -> bool:
        """Nobody waits by it."""
        raise NotImplementedError

    def wait(self, duration: timedelta, cancelled: object = None) -> bool:
        """Nobody waits by it."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("ahead", "drift", "view"),
    [
        (timedelta(hours=1), 1e-4, "plain"),
        (timedelta(hours=-1), -1e-4, "named-graph"),
        (timedelta(hours=-1), 1e-4, "plain"),
        (timedelta(0), 0.0, "named-graph"),
    ],
)
def test_the_date_alone_tells_the_servers_time(
    tmp_path: Path, view: str, ahead: timedelta, drift: float
) -> None:
    ours = ManualClock(START - ahead - timedelta(seconds=0.37))
    clock = SkewedClock(ours, ahead, drift)
    server = LiveServer(tmp_path, _static(), page_labels=view == "plain", clock=clock)
    feed = Feed(server, "expiration", early=False)
    began = clock.now()
    dropped: list[bytes] = []

    def in_quads(environ: dict[str, Any], start: Any) -> Any:
        return server.app(environ | {"HTTP_ACCEPT": "application/n-quads"}, start)

    def undated(_: dict[str, Any], answer: WholeAnswer) -> WholeAnswer:
        """Pages do not say when they were made; only ``Date`` does, in seconds."""
        status, headers, body = answer
        lines = body.splitlines(keepends=True)
        dropped.extend(line for line in lines if b"#evaluatedAt>" in line)
        return status, headers, b"".join(each for each in lines if b"#evaluatedAt>" not in each)

    seen = Counter[frozenset[tuple[str, Term]]]()
    late: list[timedelta] = []
    with server.client(f"/{view}", app=changing(in_quads, undated), clock=ours) as client:
        for update in client.stream(QUERY, until=START + 12 * PERIOD):
            assert update.error is None
            seen = seen + _rows(update.added) - _rows(update.removed)
            there = clock.now()
            # The client knows the server's time to the second.
            assert timedelta(0) <= there - update.at <= timedelta(seconds=1.1)
            assert seen in (feed.expected(there), feed.expected(update.at))
            late.append((there - began) % PERIOD)
    server.close()
    assert dropped
    assert len(late) >= 11
    # Every change was seen within little more than a second.
    assert max(late) <= timedelta(seconds=1.1)
