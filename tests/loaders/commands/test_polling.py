"""Polled URLs: ``tpf-load irail`` and ``tpf-load json``."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import requests
import responses

from annotations.clock import ManualClock, SystemClock
from annotations.terms import Quad, Term
from loaders.commands.options import warn
from loaders.errors import InputError
from loaders.sources.polling import LiveFeed, Poller
from tests.loaders.facts_server import FactsServer, listening
from tests.loaders.test_cli import run

T = "http://example.org/train#"
DEPARTURE = "http://irail.be/connections/8892007/20141205/IC1832"
GRAPH = {
    "@id": DEPARTURE, "stop": "http://irail.be/stations/NMBS/008892007", "headsign": "Antwerp",
    "routeLabel": "IC 1832", "scheduledDepartureTime": "2014-12-05T10:36:00+01:00",
    "platform": "11",
}  # fmt: skip
LISTED = {
    "departureConnection": DEPARTURE, "station": "Antwerp", "time": "1417772160",
    "vehicle": "BE.NMBS.IC1832", "vehicleinfo": {"shortname": "IC 1832"}, "platform": "11",
}  # fmt: skip
STATION = {"@id": "http://irail.be/stations/NMBS/008892007", "name": "Ghent"}


def graph(delay: str) -> Any:
    return {"@graph": [{**GRAPH, "delay": delay}]}


def listed(delay: str) -> Any:
    said = {"delay": "0", "canceled": "1"} if delay == "cancel" else {"delay": delay}
    return {"stationinfo": STATION, "departures": {"departure": [{**LISTED, **said}]}}


def reading(delay: str) -> Any:
    return {"id": "s1", "value": int(delay)}


def linked(delay: str) -> Any:
    context = {"@vocab": "http://sensors.example/", "id": "@id"}
    return {"@context": {**context, "@base": "http://sensors.example/"}, **reading(delay)}


class Board:
    """A polled page, and a server of facts."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.accepts: list[str] = []
        self.server = FactsServer(SystemClock())

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "POST":
            return self.server(environ, start_response)
        self.accepts.append(environ.get("HTTP_ACCEPT", ""))
        answer = self.answers.pop(0)
        start_response("200 OK" if answer is not None else "503 Service Unavailable", [])
        return [json.dumps(answer).encode()]

    @contextmanager
    def polled(self, *command: Any) -> Iterator[int]:
        polls = str(len(self.answers))
        with listening(self) as origin:
            arguments = [command[0], f"{origin}board", *command[1:], "--push", f"{origin}trains"]
            arguments += ["--token", "secret", "--period", "0.01", "--polls", polls]
            yield run("load", *arguments)

    @property
    def told(self) -> list[set[str]]:
        """Return published facts by batch; numbers without datatypes."""
        number = "^^<http://www.w3.org/2001/XMLSchema#integer>"
        return [
            {line.replace(number, "").removesuffix(" .") for line in posted.lines}
            for posted in self.server.accepted
        ]


@pytest.mark.parametrize("made", [graph, listed], ids=["linked data", "the API's own"])
def test_a_liveboard_is_polled_and_told_to_a_server(
    capsys: pytest.CaptureFixture[str], made: Any
) -> None:
    board = Board([made("60"), None, made("cancel"), {"@graph": "x"}])
    with board.polled("irail") as status:
        assert status == 0
    *failed, summary = capsys.readouterr().err.splitlines()
    assert [line.partition("/board: ")[2].split()[0] for line in failed] == ["HTTP", "no"]
    assert summary == "14 facts in 2 batches"
    first, second = board.told
    assert f'<{DEPARTURE}> <{T}delay> "60"' in first
    assert f'<{DEPARTURE}> <{T}headSign> "Antwerp"' in first
    assert f'<{DEPARTURE}> <{T}routeLabel> "IC 1832"' in first
    assert f'<{DEPARTURE}> <{T}status> "cancelled"' in second
    assert len(first) == len(second) == 7
    assert not any("delay" in line for line in second)
    wanted = "2014-12-05T10:36:00+01:00" if made is graph else "2014-12-05T09:36:00Z"
    (scheduled,) = [line for line in first if "departureTime" in line]
    assert f'"{wanted}"^^' in scheduled
    assert all("ld+json" in accept for accept in board.accepts)


@pytest.mark.parametrize("own", [True, False], ids=["JSON-LD", "JSON with a context"])
def test_any_json_is_polled(capsys: pytest.CaptureFixture[str], tmp_path: Path, own: bool) -> None:
    made = linked if own else reading
    board = Board([made("1"), made("2")])
    context = tmp_path / "context.json"
    context.write_text(json.dumps({"@context": linked("0")["@context"]}))
    options = [] if own else ["--context", context]
    with board.polled("json", *options) as status:
        assert status == 0, capsys.readouterr().err
    said = "<http://sensors.example/s1> <http://sensors.example/value>"
    assert board.told == [{f'{said} "1"'}, {f'{said} "2"'}]


@responses.activate
@pytest.mark.parametrize("takes", [0, 40])
def test_an_answer_holds_a_little_longer_than_until_the_next(takes: int) -> None:
    clock, url = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), "http://h.example/board"
    said = Quad(Term("<http://e/s>"), Term("<http://e/p>"), Term('"1"'))
    responses.get(url, body="{}")

    def read(_content: bytes, _source: str) -> list[Quad]:
        clock.advance_to(clock.now() + timedelta(seconds=takes))
        return [said]

    with requests.Session() as session:
        live = LiveFeed(clock, Event(), most=2)
        poller = Poller("board", url, read, timedelta(seconds=30), session, live)
        first, second = poller.batches(None, None)
    assert second.at - first.at == timedelta(seconds=max(30, takes))
    assert first.end == second.at + timedelta(seconds=5)


class Polls:
    """A page on a clock of its own that is polled every 30 seconds."""

    def __init__(self, mocked: responses.RequestsMock, page: Any) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.page = page
        self.asked: list[tuple[float, dict[str, str]]] = []
        self.read: list[bytes] = []
        self.failures: list[str] = []
        mocked.add_callback("GET", re.compile("http://h.example/"), self.answer)

    def answer(self, request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        conditions = {name: value for name, value in request.headers.items() if "If-" in name}
        seconds = (self.clock.now() - datetime(2026, 1, 1, tzinfo=UTC)).total_seconds()
        self.asked.append((seconds, conditions))
        answer: tuple[int, dict[str, str], str] = self.page(len(self.asked), request)
        return answer

    def batches(self, most: int) -> list[Any]:
        def read(content: bytes, source: str) -> list[Quad]:
            self.read.append(content)
            if content == b"malformed":
                raise InputError("malformed", source)
            said = Term(f'"{content.decode()}"')
            return [Quad(Term("<http://e/s>"), Term("<http://e/p>"), said)]

        live = LiveFeed(self.clock, Event(), self.failures.append, most)
        period = timedelta(seconds=30)
        with requests.Session() as session:
            url = "http://h.example/board"
            return list(Poller("board", url, read, period, session, live).batches(None, None))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("wish", "pause"),
    [("90", 90), ("Thu, 01 Jan 2026 00:01:10 GMT", 70), ("5", 30), ("9999", 300), ("soon", 30)],
)
def test_a_poll_comes_when_the_server_wishes(status: int, wish: str, pause: int) -> None:
    def page(number: int, _request: object) -> tuple[int, dict[str, str], str]:
        return (status, {"Retry-After": wish}, "") if number == 1 else (200, {}, "a")

    with responses.RequestsMock() as mocked:
        polls = Polls(mocked, page)
        assert len(polls.batches(3)) == 2
    assert [seconds for seconds, _ in polls.asked] == [0, pause, pause + 30]


def test_what_has_not_changed_is_not_sent_again() -> None:
    date = "Thu, 01 Jan 2026 00:00:00 GMT"
    contents = ["a", "a", "b", "malformed", "b", "b"]

    def page(number: int, request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        content = contents[number - 1]
        if request.headers.get("If-None-Match") == f'"{content}"':
            return 304, {}, ""
        return 200, {"ETag": f'"{content}"', "Last-Modified": date}, content

    with responses.RequestsMock() as mocked:
        polls = Polls(mocked, page)
        batches = polls.batches(6)
    assert [each.quads[0].object for each in batches] == ['"a"', '"a"', '"b"', '"b"', '"b"']
    assert polls.read == [b"a", b"b", b"malformed", b"b"]
    # What could not be read is not what is known.
    tags = [asked.get("If-None-Match") for _, asked in polls.asked]
    assert tags == [None, '"a"', '"a"', '"b"', None, '"b"']
    assert [asked.get("If-Modified-Since") for _, asked in polls.asked] == [
        tag and date for tag in tags
    ]


def test_what_is_elsewhere_may_be_other_content_with_the_same_tag() -> None:
    def page(number: int, request: requests.PreparedRequest) -> tuple[int, dict[str, str], str]:
        if str(request.url).endswith("/board"):
            return 302, {"Location": f"http://h.example/{number}"}, ""
        return (304, {}, "") if "If-None-Match" in request.headers else (200, {"ETag": '"1"'}, "a")

    with responses.RequestsMock() as mocked:
        polls = Polls(mocked, page)
        assert len(polls.batches(3)) == 3
    assert all(not asked for _, asked in polls.asked)
    assert len(polls.asked) == 6


def test_an_answer_without_content_is_a_failed_poll() -> None:
    def page(number: int, _request: object) -> tuple[int, dict[str, str], str]:
        return [(304, {}, "a"), (300, {}, "a"), (200, {}, "b")][number - 1]

    with responses.RequestsMock() as mocked:
        polls = Polls(mocked, page)
        (batch,) = polls.batches(3)
    assert batch.quads[0].object == '"b"'
    assert [each.partition("HTTP ")[2][:3] for each in polls.failures] == ["304", "300"]


def test_a_poll_into_a_file(tmp_path: Path) -> None:
    board, facts = Board([graph("60")]), tmp_path / "facts.nq"
    with listening(board) as origin:
        arguments = ["irail", f"{origin}board", "--facts", facts, "--polls", "1", "--quiet"]
        assert run("load", *arguments) == 0
    assert "#delay>" in facts.read_text()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"value": 1, "@context": {"@vocab": "http://e/"}}, "a thing without an @id"),
        ({"@id": "http://e/a", "@context": "http://e/context"}, "no JSON-LD"),
        ([1], "no JSON-LD"),
    ],
)
def test_json_that_says_nothing_usable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: Any, reason: str
) -> None:
    context = tmp_path / "context.json"
    context.write_text("{}")
    with Board([answer]).polled("json", "--context", context) as status:
        assert status == 1
    failed, last = capsys.readouterr().err.splitlines()
    assert reason in failed
    assert last.endswith("every poll failed")


def test_what_feeds_say_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    warn("a\x07b")
    assert capsys.readouterr().err == "tpf-load: a\ufffdb\n"
