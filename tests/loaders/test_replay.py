import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from annotations.clock import ManualClock
from annotations.labels import Expiration
from annotations.terms import Quad, Term
from loaders.errors import (
    PublishRefusedError,
    ReplayError,
    ServerUnreachableError,
    SettingError,
    StateError,
)
from loaders.publisher import Publisher
from loaders.replay import ReplaySettings, ReplaySummary, replay, replay_line
from loaders.sources.base import Feed, FeedBatch
from loaders.sources.irail import Irail
from tests.loaders.facts_server import FactsServer
from tests.loaders.recordings import irail_recording
from tests.support.wsgi_adapter import WsgiAdapter

THEN = datetime(2014, 12, 5, 9, 0, tzinfo=UTC)
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
URL = "http://server.test/trains"


def quad(number: int, subject: str = "<http://e/s>") -> Quad:
    return Quad(Term(subject), Term("<http://e/p>"), Term(f'"{number}"'))


class Recording(Feed):
    """A feed with a poll every minute, some of them `silent`."""

    name = "recording"

    def __init__(
        self, polls: int, silent: frozenset[int] = frozenset(), subject: str = "<http://e/s>"
    ) -> None:
        self.polls = polls
        self.silent = silent
        self.subject = subject

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        for n in range(self.polls):
            at = THEN + n * MINUTE
            if (start is None or at >= start) and (until is None or at < until):
                yield FeedBatch(
                    at, at + MINUTE, () if n in self.silent else (quad(n, self.subject),)
                )


class Setting:
    """A server, a feed and a clock that they share."""

    def __init__(self, polls: int = 5, **options: object) -> None:
        self.clock = ManualClock(NOW)
        self.server = FactsServer(self.clock)
        self.session = requests.Session()
        self.session.mount("http://server.test/", WsgiAdapter(self.server))
        self.feed = Recording(polls)
        self.options = options

    def publisher(self, token: str | None = "secret", attempts: int = 10) -> Publisher:
        return Publisher(URL + "/", self.clock, token, self.session, attempts=attempts)

    def play(self, cancelled: Event | None = None, **options: object) -> ReplaySummary:
        settings = ReplaySettings(**(self.options | options))  # type: ignore[arg-type]
        return replay(self.feed, self.publisher(), self.clock, settings, cancelled)

    def objects(self) -> list[str]:
        return [line.split('"')[1] for posted in self.server.accepted for line in posted.lines]


def test_instants_are_mapped_on_the_present() -> None:
    setting = Setting()
    summary = setting.play()
    assert summary == ReplaySummary(5, 5, 0, timedelta(0), completed=True)
    for n, posted in enumerate(setting.server.accepted):
        assert posted.at == NOW + n * MINUTE
        assert posted.label == {"expiration": NOW + (n + 1) * MINUTE}
        assert posted.lines == [f'<http://e/s> <http://e/p> "{n}" .']


def test_the_time_in_the_feed_is_published_too() -> None:
    setting = Setting(3, clock="http://e/clock", zone=timezone(timedelta(hours=-4)))
    setting.play(speed=60.0)
    value = "http://www.w3.org/1999/02/22-rdf-syntax-ns#value"
    for n, posted in enumerate(setting.server.accepted):
        assert posted.label == {"expiration": NOW + (n + 1) * SECOND}
        time = (
            f'<http://e/clock> <{value}> "2014-12-05T05:0{n}:00-04:00"'
            "^^<http://www.w3.org/2001/XMLSchema#dateTime> ."
        )
        assert posted.lines == [f'<http://e/s> <http://e/p> "{n}" .', time]


@given(st.floats(0.25, 400), st.integers(0, 3), st.integers(4, 6))
def test_speed_and_span(speed: float, first: int, last: int) -> None:
    setting = Setting(6)
    setting.play(
        speed=speed, start=THEN + first * MINUTE, until=THEN + last * MINUTE, labelling="interval"
    )
    assert setting.objects() == [str(n) for n in range(first, last)]
    period = MINUTE / speed
    for n, posted in enumerate(setting.server.accepted):
        assert abs(posted.at - (NOW + n * period)) < timedelta(milliseconds=1)
        assert posted.label["initial"] == posted.at
        assert abs(posted.label["final"] - posted.at - period) < timedelta(milliseconds=1)
    ends = [posted.label["final"] for posted in setting.server.accepted]
    starts = [posted.label["initial"] for posted in setting.server.accepted]
    assert ends[:-1] == starts[1:]


@pytest.mark.parametrize(("speed", "pace"), [(1.0, MINUTE), (float("inf"), 0 * MINUTE)])
def test_original_instants_at_the_pace_of_the_feed_or_without_pauses(
    speed: float, pace: timedelta
) -> None:
    setting = Setting(labelling="interval", original_instants=True)
    setting.clock = setting.server.clock = ManualClock(THEN)
    setting.play(speed=speed)
    for n, posted in enumerate(setting.server.accepted):
        assert posted.at == THEN + n * pace
        assert posted.label == {"initial": THEN + n * MINUTE, "final": THEN + (n + 1) * MINUTE}
    assert setting.clock.now() == THEN + 4 * pace


def test_a_lead_sends_early_and_labels_alike() -> None:
    setting = Setting()
    setting.play(lead=5 * SECOND, labelling="interval")
    accepted = setting.server.accepted
    assert [posted.at for posted in accepted] == [
        NOW, *(NOW + n * MINUTE - 5 * SECOND for n in range(1, 5))
    ]  # fmt: skip
    assert [posted.label["initial"] for posted in accepted] == [NOW + n * MINUTE for n in range(5)]


def test_a_lead_is_at_most_half_a_period() -> None:
    setting = Setting(3)
    setting.play(lead=10 * MINUTE)
    assert [posted.at - NOW for posted in setting.server.accepted] == [
        timedelta(0), 30 * SECOND, 90 * SECOND,
    ]  # fmt: skip


def test_silent_polls_send_nothing() -> None:
    setting = Setting()
    setting.feed = Recording(5, frozenset({0, 3}))
    assert setting.play().batches == 3
    # The first batch with something in it is now.
    assert [posted.at - NOW for posted in setting.server.accepted] == [
        timedelta(0), MINUTE, 3 * MINUTE,
    ]  # fmt: skip
    assert setting.play(start=THEN + 99 * MINUTE) == ReplaySummary(0, 0, 0, timedelta(0), True)


def test_a_lost_answer_makes_no_duplicate() -> None:
    setting = Setting()
    setting.server.faults = ["lost", 503, "lost"]
    summary = setting.play()
    assert setting.objects() == ["0", "1", "2", "3", "4"]
    # Sent four times: taken, refused, met again, met again.
    assert summary.retries == 3
    assert len(setting.server.repeated) == 2
    assert summary.completed


def test_a_slow_server_slows_the_replay_down() -> None:
    setting = Setting()
    setting.server.takes = lambda: setting.clock.advance_to(setting.clock.now() + 90 * SECOND)
    setting.server.clock = ManualClock(NOW)  # judges labels by its own, so that none has ended
    summary = setting.play(labelling="interval")
    starts = [posted.label["initial"] for posted in setting.server.accepted]
    assert starts == [NOW + n * 90 * SECOND for n in range(5)]
    assert all(p.label["final"] - p.label["initial"] == MINUTE for p in setting.server.accepted)
    assert summary.slipped == 4 * 30 * SECOND
    assert "120.0 s behind the schedule" in replay_line(summary)


def test_an_outage_that_outlasts_the_label_is_survived() -> None:
    setting = Setting()
    # A tenth of a second, and twice as long each time: eight pauses are 20 seconds at least.
    setting.server.faults = [503] * 8
    summary = setting.play(speed=12)
    assert setting.objects() == ["0", "1", "2", "3", "4"]
    first = setting.server.accepted[0]
    assert first.label["expiration"] > first.at
    assert summary.slipped > 10 * SECOND


def test_labels_that_always_end_too_soon() -> None:
    setting = Setting()
    setting.server.takes = lambda: setting.clock.advance_to(setting.clock.now() + SECOND)
    with pytest.raises(ReplayError, match=r"holds for 0\.100 s, .* lower the speed"):
        setting.play(speed=600)


def test_what_is_too_short_for_the_speed_holds_for_a_microsecond() -> None:
    setting = Setting()
    setting.play(speed=1e9, labelling="interval")
    labels = [posted.label for posted in setting.server.accepted]
    assert [each["final"] - each["initial"] for each in labels] == [timedelta(microseconds=1)] * 5


def problem(_environ: object, start_response: Any) -> list[bytes]:
    kind = "application/problem+json; charset=utf-8"
    start_response("400 Bad Request", [("Content-Type", kind)])
    return [json.dumps({"title": "Bad", "detail": "line 3: no object"}).encode()]


def test_a_refusal_is_not_repeated_and_says_why() -> None:
    setting = Setting()
    setting.server.faults = [400]
    with pytest.raises(PublishRefusedError, match=r"trains refused a batch: 400 a fault$") as error:
        setting.play()
    assert (error.value.status, setting.server.requests) == (400, 1)
    with pytest.raises(PublishRefusedError, match=r"401 who are you\? \(give the token"):
        setting.publisher(token=None).publish((quad(1),), Expiration(NOW + MINUTE), "b")
    setting.session.mount("http://server.test/", WsgiAdapter(problem))
    with pytest.raises(PublishRefusedError, match="400 line 3: no object"):
        setting.play()


def test_a_stopped_replay_goes_on_where_it_was(tmp_path: Path) -> None:
    setting = Setting(state=tmp_path / "state")
    stopped = Event()
    setting.clock.schedule(NOW + 2 * MINUTE + SECOND, stopped.set)
    summary = setting.play(stopped)
    assert (summary.batches, summary.completed) == (3, False)
    later = NOW + timedelta(hours=5)
    setting.clock.advance_to(later)
    assert setting.play().completed
    assert setting.objects() == ["0", "1", "2", "3", "4"]
    assert [posted.at for posted in setting.server.accepted[3:]] == [later, later + MINUTE]
    # Nothing is left to do.
    assert setting.play().batches == 0
    assert len(setting.server.accepted) == 5


def test_a_replay_that_was_killed_sends_the_batch_in_doubt_once(tmp_path: Path) -> None:
    setting = Setting(state=tmp_path / "state")

    class Killed(BaseException):
        pass

    def kill() -> None:
        if setting.server.requests == 3:
            setting.server.takes = lambda: None
            # Taken by the server; the answer never arrives.
            setting.server.faults = ["lost"]

    setting.server.takes = kill
    publisher = Publisher(URL, setting.clock, "secret", setting.session, attempts=1)
    settings = ReplaySettings(state=tmp_path / "state")
    with pytest.raises(ServerUnreachableError):
        replay(setting.feed, publisher, setting.clock, settings)
    assert len(setting.server.accepted) == 3
    assert setting.play().completed
    assert setting.objects() == ["0", "1", "2", "3", "4"]
    assert len(setting.server.repeated) == 1


def test_a_second_run_is_not_taken_for_a_repetition() -> None:
    setting = Setting(2)
    setting.play()
    setting.clock.advance_to(NOW + timedelta(hours=1))
    setting.play()
    assert setting.objects() == ["0", "1", "0", "1"]


def test_back_filling_twice_is_the_same_twice() -> None:
    setting = Setting(2)
    setting.clock = ManualClock(THEN)
    setting.server.clock = setting.clock
    for _ in range(2):
        setting.play(original_instants=True, speed=float("inf"))
    assert setting.objects() == ["0", "1"]
    assert len(setting.server.repeated) == 2
    # Another recording of the same polls is no repetition, nor is one with other labels.
    setting.feed = Recording(3, silent=frozenset({0}), subject="<http://e/other>")
    for labelling in ("expiration", "interval"):
        setting.play(original_instants=True, speed=float("inf"), labelling=labelling)
    assert setting.objects() == ["0", "1", "1", "2", "1", "2"]
    assert len(setting.server.repeated) == 2


def test_a_state_of_another_replay_is_refused(tmp_path: Path) -> None:
    setting = Setting(state=tmp_path / "state")
    setting.play()
    with pytest.raises(StateError, match="belongs to another replay: recording to"):
        setting.play(labelling="interval")
    (tmp_path / "state").write_text("{}")
    with pytest.raises(StateError, match="is no state"):
        setting.play()
    with pytest.raises(StateError, match="directory"):
        setting.play(state=tmp_path)
    with pytest.raises(StateError, match="No such file"):
        setting.play(state=tmp_path / "absent" / "state")


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 0},
        {"speed": -1},
        {"speed": float("nan")},
        {"speed": float("inf")},
        {"start": NOW, "until": NOW},
        {"lead": -SECOND},
    ],
)
def test_settings_that_make_no_sense(options: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        ReplaySettings(**options)  # type: ignore[arg-type]


def test_stopping_while_the_server_is_away() -> None:
    setting = Setting()
    setting.server.faults = [503] * 8
    stopped = Event()
    setting.clock.schedule(NOW + 3 * SECOND, stopped.set)
    summary = setting.play(stopped)
    assert (summary.batches, summary.completed) == (0, False)
    assert setting.server.requests < 8
    assert "stopped" in replay_line(summary)


def test_the_recorded_day_of_liveboards() -> None:
    setting = Setting()
    feed = Irail(irail_recording())
    settings = ReplaySettings(speed=60, labelling="interval")
    summary = replay(feed, setting.publisher(), setting.clock, settings)
    assert (summary.batches, summary.facts) == (1284, 49764)
    assert setting.server.requests == 1284
    posted = setting.server.accepted
    assert all(a.label["final"] == b.label["initial"] for a, b in pairwise(posted))
    assert setting.clock.now() - NOW < timedelta(minutes=24)
