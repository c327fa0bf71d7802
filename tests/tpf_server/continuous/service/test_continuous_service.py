"""Both engines behind one service: whose time it is, what is late, who feeds whom."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock, SystemClock
from annotations.follower_slots import FollowerSlots
from annotations.terms import Term
from tests.support.examples import examples
from tpf_server.continuous.continuous_engine import Engine, EngineSettings, InstantSettings
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.runtime.errors import ElementError, EngineClosedError
from tpf_server.continuous.runtime.semantics import EngineLimits
from tpf_server.continuous.service.assembly import Ticker
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
START = int(NOON.timestamp() * 1000)
COUNT = """REGISTER QUERY count COMPUTED EVERY 1s AS
SELECT (COUNT(*) AS ?n) FROM STREAM <s> [RANGE 2s STEP 1s] { ?a <urn:p> ?b }"""
LEAVING = "SELECT ?a { STREAM <http://localhost/s> [RANGE 2s] { ?a <urn:p> ?b } }"


class Hall:
    """A service on a clock that is set by hand; times are milliseconds after noon."""

    def __init__(self, *, skip_idle=False, eager=True, **policies):
        self.clock = ManualClock(NOON)
        settings = EngineSettings(lateness=policies.pop("lateness", 0), skip_idle=skip_idle)
        engine = Engine(settings, instants=InstantSettings(eager=eager))
        self.service = ContinuousService(engine, self.clock, Policies(**policies))

    def pass_to(self, at):
        self.clock.advance_to(NOON + timedelta(milliseconds=at))
        self.service.advance()

    def push(self, *elements, stream="s"):
        return self.service.push(
            stream,
            [
                Element(START + at, ((Term(f"<urn:{name}>"), Term("<urn:p>"), Term("<urn:o>")),), n)
                for n, (at, name) in enumerate(elements, 1)
            ],
        )

    def found(self, name):
        """Instant and first values of each emission."""
        log = self.service.query(name).log
        return [
            (event.emission.at - START, sorted(_short(row[0]) for row in event.emission.rows))
            for event in log.read(log.oldest - 1, 0.0) or ()
            if event.emission is not None
        ]


def _short(term):
    return term.split("^^")[0].strip('"<>').removeprefix("urn:")


def test_queries_are_evaluated_although_nothing_comes():
    hall = Hall(delay=0)
    hall.service.register(COUNT)
    hall.pass_to(0)
    hall.pass_to(2_500)
    assert hall.found("count") == [(0, ["0"]), (1_000, ["0"]), (2_000, ["0"])]
    hall.push((2_600, "a"))
    hall.pass_to(4_999)
    hall.pass_to(5_000)
    assert hall.found("count")[3:] == [(3_000, ["1"]), (4_000, ["1"]), (5_000, ["0"])]


def test_stream_time_stays_behind_the_clock_by_the_delay():
    hall = Hall(delay=500)
    hall.service.register(COUNT)
    hall.pass_to(1_499)
    assert hall.found("count") == []
    hall.push((999, "a"))  # it was under way for half a second
    hall.pass_to(1_500)
    assert hall.found("count")[-1] == (1_000, ["1"])
    receipt = hall.push((999, "b"))
    assert (receipt.accepted, receipt.late) == (1, 1)


def test_time_by_elements_does_not_move_with_the_clock():
    hall = Hall(time="elements", eager=False, skip_idle=True)
    hall.service.register(COUNT)
    hall.push((100, "a"))
    hall.pass_to(60_000)
    assert hall.found("count") == []
    hall.push((1_001, "b"), (3_600_000, "c"))
    # Nothing is answered for the hour in which the window is empty.
    assert hall.found("count") == [
        (1_000, ["1"]), (2_000, ["2"]), (3_000, ["1"]), (4_000, ["0"]),
    ]  # fmt: skip
    assert hall.push((-(10**12), "long-ago"), (3_600_001, "d")).late == 1
    assert hall.found("count")[4:] == [(3_600_000, ["1"])]


def test_an_element_from_the_future_is_refused():
    hall = Hall()
    with pytest.raises(ElementError, match=r"line 2: 2020-01-01T12:01:00\.001Z is in the future"):
        hall.push((0, "a"), (60_001, "b"))
    lenient = Hall(whole_batches=False)
    assert lenient.push((60_000, "a"), (60_001, "b")).accepted == 1
    assert Hall(time="elements").push((10**12, "a")).accepted == 1
    # How far ahead is a setting.
    assert Hall(ahead=600_000).push((600_000, "a")).accepted == 1
    with pytest.raises(ElementError, match="in the future"):
        Hall(ahead=5).push((6, "a"))


def test_what_came_too_late_is_told_of_each_stream():
    hall = Hall()
    for text in (COUNT, LEAVING):
        hall.service.register(text)
    hall.push((5_000, "a"), (6_000, "b"))
    hall.push((4_000, "c"), (6_000, "d"))
    hall.push((6_000, "e"), stream="t")
    late = {each["stream"]: (each["dropped"], each["late"]) for each in hall.service.streams()}
    assert late == {"http://localhost/s": (1, 1), "http://localhost/t": (0, 0)}


def test_a_clock_that_is_set_back_makes_nothing_late():
    hall = Hall()
    query = hall.service.register(LEAVING)
    hall.pass_to(0)
    times = []
    for back in (0, -60_000, -30_000, 1_000):
        hall.clock._now = NOON + timedelta(milliseconds=back)
        hall.service.advance()
        times.append(hall.service.now - START)
        assert hall.push((times[-1], f"at{back}")).dropped == 0
    assert times == [0, 0, 0, 1_000]
    assert cast(Any, query.running).emitted == 4


def test_an_element_from_long_ago_does_not_start_an_old_clock():
    hall = Hall(delay=0)
    hall.service.register(COUNT)
    hall.pass_to(0)
    assert hall.push((-(10**11), "a")).late == 1
    hall.pass_to(1_000)
    assert hall.found("count") == [(0, ["0"]), (1_000, ["0"])]


def test_elements_wait_to_be_put_in_order():
    hall = Hall(time="elements", eager=False, lateness=300)
    hall.service.register(LEAVING, name="native")
    hall.service.register(COUNT)
    hall.push((200, "b"), (100, "a"), (1_100, "d"), (950, "c"))
    assert hall.found("native") == [(100, ["a"]), (200, ["b"])]
    receipt = hall.push((1_400, "e"), (600, "x"), (199, "late"))
    # 1,100 was processed when 1,400 came: what is older than that comes too late.
    assert hall.found("native")[2:] == [(950, ["c"]), (1_100, ["d"])]
    assert (receipt.dropped, receipt.late) == (2, 2)
    assert hall.found("count") == [(1_000, ["3"])]


def test_the_clock_releases_elements_that_wait():
    hall = Hall(delay=100, lateness=300)
    hall.service.register(LEAVING, name="native")
    hall.push((200, "b"), (100, "a"))
    hall.pass_to(400)
    assert hall.found("native") == [(100, ["a"])]
    hall.pass_to(500)
    assert hall.found("native") == [(100, ["a"]), (200, ["b"])]


def test_the_ticker_lets_time_pass():
    hall = Hall(delay=0)
    hall.service.register(COUNT)
    ticker = Ticker(hall.service, hall.clock, timedelta(milliseconds=250))
    hall.clock.schedule(NOON + timedelta(milliseconds=2_600), ticker.stop)
    ticker.run()
    assert hall.found("count") == [(1_000, ["0"]), (2_000, ["0"])]


class SetBack(SystemClock):
    """A clock that is set back by an hour whenever somebody has looked at it."""

    def __init__(self) -> None:
        self._shown = NOON

    def now(self) -> datetime:
        self._shown -= timedelta(hours=1)
        return self._shown


def test_a_clock_that_is_set_back_stops_no_ticker(monkeypatch):
    hall = Hall()
    ticker = Ticker(hall.service, SetBack(), timedelta(milliseconds=1))
    monkeypatch.setattr(hall.service, "advance", ticker.stop)
    thread = threading.Thread(target=ticker.run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("query", [COUNT, LEAVING])
def test_a_clock_that_is_set_back_makes_nothing_late_and_is_logged_once(query, caplog, monkeypatch):
    hall = Hall(delay=0)
    hall.service.register(query)
    hall.pass_to(4_500)
    monkeypatch.setattr(hall.service, "_clock", ManualClock(NOON - timedelta(hours=1)))
    for _ in range(2):
        hall.service.advance()
        receipt = hall.push((hall.service.now - START, "a"))
        assert (receipt.accepted, receipt.dropped, receipt.late) == (1, 0, 0)
    (record,) = caplog.records
    assert "streams wait until it is 2020-01-01T12:00:04.500Z" in record.getMessage()


def test_time_goes_on_after_an_error(caplog, monkeypatch):
    """An error is logged once while it stays the same."""
    hall = Hall()
    ticker = Ticker(hall.service, hall.clock, timedelta(seconds=1))
    errors = [RuntimeError("odd"), RuntimeError("odd"), RuntimeError("even")]

    def advance():
        if errors:
            raise errors.pop(0)
        ticker.stop()

    monkeypatch.setattr(hall.service, "advance", advance)
    ticker.run()
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert (errors, logged) == ([], ["odd", "even"])


def test_who_follows_a_service_that_stops_is_told_so():
    hall = Hall()
    hall.service.register(COUNT)
    log = hall.service.query("count").log
    hall.service.close()
    hall.service.advance()
    with pytest.raises(EngineClosedError):
        log.read(log.last, 60.0)
    with pytest.raises(EngineClosedError):
        hall.push((0, "a"))
    with pytest.raises(EngineClosedError):
        hall.service.register(LEAVING)


def test_a_signal_closes_the_service():
    code = """
import os, signal
from annotations.clock import SystemClock
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.app import close_on_signals
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import EngineClosedError
engine = Engine()
service = ContinuousService(engine, SystemClock())
log = service.register("SELECT * { STREAM <s> [NOW] { ?a ?b ?c } }").log
signal.signal(signal.SIGTERM, lambda number, frame: None)
close_on_signals(service)
os.kill(os.getpid(), signal.SIGTERM)
try:
    log.read(log.last, 60.0)
except EngineClosedError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "the server stops\n"


CHAIN = {
    "made": "REGISTER STREAM made COMPUTED EVERY 20ms AS CONSTRUCT { ?a <urn:p> <urn:o> }"
    " FROM STREAM <s> [RANGE 40ms STEP 20ms] { ?a <urn:p> ?b }",
    "periodic": "SELECT ?a FROM STREAM <again> [RANGE 40ms STEP 10ms] { ?a <urn:p> ?b }",
    "beside": "SELECT ?a { STREAM <http://localhost/made> [RANGE 20ms] { ?a <urn:p> ?b }"
    " STREAM <http://localhost/s> [NOW] { ?c <urn:p> ?b } }",
}
AGAIN = "CONSTRUCT { ?a <urn:p> ?b } { STREAM <http://localhost/made> [NOW] { ?a <urn:p> ?b } }"


def _played(gaps, ticks, order):
    hall = Hall(delay=0, eager=False)
    for name in order:
        if name == "again":
            hall.service.register(AGAIN, name=name, into="http://localhost/again")
        else:
            hall.service.register(CHAIN[name], name=name)
    at, looks = 0, sorted(ticks)
    for number, gap in enumerate(gaps):
        at += gap
        while looks and looks[0] < at:
            hall.pass_to(looks.pop(0))
        hall.clock.advance_to(NOON + timedelta(milliseconds=at))
        hall.push((at, f"x{number % 3}"))
    hall.pass_to(at + 100)
    return {name: hall.found(name) for name in (*CHAIN, "again")}


@examples(20)
@given(
    st.lists(st.integers(0, 35), min_size=1, max_size=12),
    st.sets(st.integers(1, 400), max_size=12),
    st.permutations([*CHAIN, "again"]),
)
def test_when_the_clock_is_looked_at_changes_nothing(gaps, ticks, order):
    """Through both engines and back: what a look at the clock lets happen would happen anyway."""
    plain = _played(gaps, set(), [*CHAIN, "again"])
    assert plain["periodic"]
    assert _played(gaps, ticks, order) == plain


def test_elements_with_times_of_their_own_are_not_late_when_the_clock_is_set_back():
    hall = Hall(delay=0)
    hall.service.register(LEAVING, name="leaving")
    hall.push((0, "a"))
    hall.pass_to(60_000)
    assert hall.push((1_000, "b")).dropped == 1
    hall.clock._now = NOON
    hall.service.advance()
    assert hall.push((1_000, "c")).dropped == 0
    assert hall.found("leaving") == [(0, ["a"]), (1_000, ["c"])]


def test_places_are_given_back_and_waited_for():
    slots = FollowerSlots(2)
    assert [slots.take(address) for address in ("a", "b", "a")] == [True, True, False]
    assert not slots.wait_until_empty(0.0)
    slots.leave("a")
    assert slots.take("b")
    slots.leave("b")
    slots.leave("b")
    assert slots.wait_until_empty(60.0)


def test_plans_are_out_of_the_collectors_sight_until_queries_are_deleted():
    """Else a full collection looks through a thousand plans again and again."""
    hall = Hall()
    gc.unfreeze()  # what other tests have left
    gc.collect()
    gc.freeze()
    frozen = gc.get_freeze_count()
    for number in range(48):
        hall.service.register(
            COUNT.replace("count", f"q{number}").replace("urn:p", f"urn:p{number}")
        )
    alive = [weakref.ref(each.running) for each in hall.service.queries()]
    assert len(gc.get_objects()) < gc.get_freeze_count() - frozen
    for number in range(48):
        hall.service.delete(f"q{number}")
    assert sum(each() is not None for each in alive) <= 16


class Ending:
    """A service that ends while elements are pushed; who pushes them is told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limits: EngineLimits) -> None:
        monkeypatch.setattr("tpf_server.continuous.service.continuous_service._PATIENCE", 0.0)
        self.engine = Engine(limits=limits)
        self.service = ContinuousService(self.engine, ManualClock(NOON), Policies(time="elements"))

    def end(self, instants: Iterable[int], under_way: Callable[[], bool]) -> None:
        elements = [
            Element(at, ((Term(f"<urn:{at}>"), Term("<urn:p>"), Term("<urn:o>")),), at)
            for at in instants
        ]
        refused: list[Exception] = []

        def push() -> None:
            try:
                self.service.push("http://localhost/s", elements)
            except EngineClosedError as error:
                refused.append(error)

        thread = threading.Thread(target=push, daemon=True)
        thread.start()
        while not under_way():
            assert thread.is_alive()
            time.sleep(0.001)
        self.service.close()
        thread.join(30)
        assert not thread.is_alive()
        assert [str(each) for each in refused] == ["the server stops"]


def test_an_end_does_not_wait_for_a_batch_that_is_under_way(monkeypatch):
    ending = Ending(monkeypatch, EngineLimits())
    engine = ending.engine
    working = threading.Event()

    def work(_emission):
        working.set()
        for _ in range(100_000):
            if engine.abandoned:
                break
            time.sleep(0.0001)

    engine.register("SELECT ?a { STREAM <http://localhost/s> [NOW] { ?a <urn:p> ?b } }", work)
    product = engine.register(
        "SELECT * { STREAM <http://localhost/s> [ALL] { ?a <urn:p> ?b }"
        " STREAM <http://localhost/s> [ALL] { ?c <urn:p> ?d } }"
    )
    ending.end(range(1, 50), lambda: working.wait(30))
    assert (engine.arrivals, product.state) == (1, "closed")


def test_an_end_does_not_wait_for_an_answer_that_is_worked_out(monkeypatch):
    """It would have 64 million rows; its query is closed, and not stopped by a limit."""
    ending = Ending(monkeypatch, EngineLimits(join_rows=10**9))
    stream = "FROM STREAM <http://localhost/s> [RANGE 1s STEP 1s]"
    product = ending.engine.register_csparql(
        f"SELECT * {stream} {{ ?a <urn:p> ?b . ?c <urn:p> ?d . ?e <urn:p> ?f }}"
    )
    least = 10**9 - 10**5
    instants = [*range(1, 400), 2_000, 3_000]
    ending.end(instants, lambda: product.evaluation._main.work.left <= least)
    assert (product.emitted, product.state) == (0, "closed")
