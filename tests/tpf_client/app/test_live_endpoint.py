"""Live answers over HTTP: server-sent events of the endpoint."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest
import rdflib
import requests

from annotations.clock import ManualClock, SystemClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.endpoint import serving, until
from tests.support.live_server import START, LiveServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client
from tpf_client.app.endpoint import EndpointLimits, SparqlEndpoint
from tpf_client.errors import ClosedError
from tpf_client.fragments.fetcher import Statistics
from tpf_client.live_answers import LINGER, LiveAnswer
from tpf_client.planner.budget import Allowance

EX = "http://example.org/"
DELAYS = f"SELECT ?train ?delay {{ ?train <{EX}delay> ?delay }}"
ORDERED = f"{DELAYS} ORDER BY DESC(?delay)"
EVENTS = {"Accept": "text/event-stream"}


SHORT = 3.0
"""Seconds that a fact holds which is to be seen, and to end."""


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def delays(ends: datetime, **trains: int) -> list[Fact]:
    quads = (Quad(iri(EX + name), iri(EX + "delay"), literal(f"{n:03}")) for name, n in
             trains.items())  # fmt: skip
    return [Fact(quad, Expiration(ends)) for quad in quads]


class Broken:
    """A connection between endpoint and fragments that can be cut."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.cut = False

    def __call__(self, environ: Any, start: Any) -> Any:
        if self.cut:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"cut"]
        return self.app(environ, start)


@pytest.fixture
def fragments(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    age = getattr(request, "param", None)
    with LiveServer(tmp_path, clock=SystemClock(), max_age=age) as server:
        server.app = Broken(server.app)
        yield server


# What is published is seen once the page that a client keeps is so many seconds old.
seen_soon = pytest.mark.parametrize("fragments", [1.0], indirect=True)


@pytest.fixture
def client(fragments: LiveServer) -> Iterator[Client]:
    with Client(fragments.url, session=fragments.session(), services=()) as client:
        yield client


@pytest.fixture
def endpoint(client: Client) -> SparqlEndpoint:
    return SparqlEndpoint(client, limits=EndpointLimits(min_interval=0.1))


@pytest.fixture
def url(endpoint: SparqlEndpoint) -> Iterator[str]:
    with serving(endpoint) as url:
        yield url


class Reader:
    """Reads the events of a stream."""

    def __init__(self, url: str, query: str, last: str | None = None, **parameters: str) -> None:
        headers = EVENTS | ({} if last is None else {"Last-Event-ID": last})
        self.response = requests.get(
            url, {"query": query, **parameters}, headers=headers, stream=True, timeout=30
        )
        self.status = self.response.status_code
        self.last = last
        self._lines = self.response.iter_lines(1, decode_unicode=True)

    def next(self) -> tuple[str, dict[str, Any]]:
        """The name and the data of the next event."""
        name, data = "", ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif field == "id":
                self.last = value
            elif not line and data:
                return name, json.loads(data)
        raise EOFError

    def until(self, name: str) -> dict[str, Any]:
        """The data of the next event of this name."""
        while True:
            found, data = self.next()
            if found == name:
                return data

    def close(self) -> None:
        self.response.close()


@contextmanager
def reading(url: str, query: str, last: str | None = None, **parameters: str) -> Iterator[Reader]:
    reader = Reader(url, query, last, **parameters)
    assert reader.status == 200, reader.response.text
    yield reader
    reader.close()


def rows(data: dict[str, Any], part: str = "added") -> list[tuple[str, ...]]:
    return [tuple(term["value"].removeprefix(EX) for term in row.values()) for row in data[part]]


@pytest.mark.parametrize("fragments", [2.0], indirect=True)
def test_who_is_late_is_told_and_what_it_took(
    fragments: LiveServer, client: Client, url: str
) -> None:
    fragments.publish(delays(soon(3600), b=2))
    with reading(url, DELAYS, **{"grace": "3600", "max-interval": "0.3"}) as reader:
        while "late" not in (told := reader.until("up-to-date")):
            if told["rows"] == 1:
                # Again, where nobody has looked before it ended.
                fragments.publish(delays(soon(SHORT), a=1))
        assert (rows(told, "late"), told["rows"]) == ([("a", "001")], 2)
        with reading(url, f"{DELAYS} # another\nLIMIT 5") as other:
            assert rows(other.until("initial")) == [("b", "002")]
            of_other = other.until("up-to-date")
        fragments.publish(delays(soon(3600), a=1))
        while "late" in (told := reader.until("up-to-date")):
            pass
        assert told["rows"] == 2
        # Pages that one query has read are kept for the other.
        assert of_other["cached"] > 0
        both = of_other["requests"] + told["requests"]
        assert 0 < told["requests"] < both <= client.statistics.requests
        assert 0 < told["bytes"] < told["endpoint"]["bytes"] <= client.statistics.bytes


@seen_soon
def test_the_plan_is_told_to_those_who_ask(
    fragments: LiveServer, endpoint: SparqlEndpoint, url: str
) -> None:
    fragments.publish(delays(soon(3600), b=2))
    with (
        reading(url, DELAYS, **{"max-interval": "0.3", "explain": "true"}) as reader,
        reading(url, DELAYS, **{"max-interval": "0.3"}) as other,
    ):
        (step,) = reader.until("plan")["steps"]
        assert (step["how"], step["done"]["rows"], step["change"]) == ("scan", 1, "dynamic")
        fragments.publish(delays(soon(3600), a=1))
        while reader.until("plan")["steps"][0]["done"]["rows"] != 2:
            pass
        # All read the same query; only who asks is told.
        assert endpoint.followed == 1
        names = []
        while len(names) < 6:
            names.append(other.next()[0])
        assert "plan" not in names


def test_facts_that_expire_too_fast_at_first_are_an_event(fragments: LiveServer, url: str) -> None:
    """The answer follows once it can be read."""
    hurried, one_by_one = threading.Event(), threading.Lock()
    broken = fragments.app
    app = broken.app

    def publish(seconds: float) -> None:
        quads = (Quad(iri(EX + "a"), iri(EX + name), literal("1")) for name in ("delay", "track"))
        fragments.publish([Fact(quad, Expiration(soon(seconds))) for quad in quads])

    def hurry(environ: Any, start: Any) -> Any:
        if not hurried.is_set():
            return app(environ, start)
        with one_by_one:
            publish(0.02)
            body = app(environ, start)
            time.sleep(0.03)
        return body

    broken.app = hurry
    hurried.set()
    query = f"SELECT * {{ ?train <{EX}delay> ?delay ; <{EX}track> ?track }}"
    with reading(url, query) as reader:
        name, told = reader.next()
        assert name == "error"
        assert "expire faster" in told["error"]
        assert told["next_look"] > told["at"]
        hurried.clear()
        publish(3600)
        assert rows(reader.until("initial")) == [("a", "1", "1")]
        assert reader.next()[0] == "up-to-date"
        with reading(url, query) as later:
            assert later.next()[0] == "initial"


def test_an_answer_that_cannot_begin_keeps_nobody_waiting() -> None:
    class Unable:
        def start(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    over: list[LiveAnswer] = []
    answer = LiveAnswer(cast(Any, Unable()), None, dict, over.append)
    follower = answer.follow(None, explain=False)
    with pytest.raises(RuntimeError, match="new thread"):
        answer.start()
    assert over == [answer]
    assert answer.is_over
    with pytest.raises(ClosedError):
        follower.begin()


def test_an_answer_is_kept_up_to_date_for_all_its_readers(
    fragments: LiveServer, endpoint: SparqlEndpoint, url: str
) -> None:
    fragments.publish(delays(soon(SHORT + 1), a=5) + delays(soon(60), b=4, c=2))
    before, news = [("a", "005"), ("b", "004"), ("c", "002")], [("a", "003"), ("d", "009")]
    with reading(url, DELAYS) as reader, reading(url, ORDERED) as board:
        assert reader.response.headers["Content-Type"] == "text/event-stream"
        assert reader.response.headers["Cache-Control"] == "no-store"
        name, data = reader.next()
        assert (name, data["vars"], sorted(rows(data))) == ("initial", ["train", "delay"], before)
        assert data["removed"] == []
        assert sorted(span[1] for span in data["valid"])[0] == data["valid_until"]
        name, told = reader.next()
        assert (name, told["rows"], told["dynamic"]) == ("up-to-date", 3, True)
        assert told["valid_until"] <= told["next_look"]
        seen = rows(board.until("initial"))
        assert seen == before
        # Equal queries are computed once.
        readers = [Reader(url, f"# mine\n  {DELAYS}"), Reader(url, DELAYS.replace(" ", "\n"))]
        for each in readers:
            assert sorted(rows(each.until("initial"))) == before
        assert endpoint.followed == 2
        with reading(url, DELAYS) as away:
            away.until("up-to-date")
        fragments.publish(delays(soon(60), a=3, d=9))
        data = reader.until("update")
        assert (sorted(rows(data)), rows(data, "removed")) == (news, [("a", "005")])
        last, pages = reader.last, {reader.until("up-to-date")["pages"]}
        for each in readers:
            assert sorted(rows(each.until("update"))) == news
            pages.add(each.until("up-to-date")["pages"])
        assert len(pages) == 1
        # Places tell where solutions are.
        data = board.until("update")
        for gone in rows(data, "removed"):
            seen.remove(gone)
        for place, row in zip(data["places"], rows(data), strict=True):
            seen.insert(place, row)
        assert seen == [("d", "009"), ("b", "004"), ("a", "003"), ("c", "002")]
        with reading(url, ORDERED) as late:
            assert rows(late.until("initial")) == seen
        # Who comes back is told what came meanwhile, and nothing else.
        with reading(url, DELAYS, away.last) as again:
            name, data = again.next()
            assert (name, sorted(rows(data))) == ("update", news)
            assert again.last == last
            assert again.next()[0] == "up-to-date"
        with reading(url, DELAYS, last) as again:
            assert again.next()[0] == "up-to-date"
        # An id of another run, or none: the whole answer.
        for unknown in ("0000-1", "x", "-", f"{away.last}9", f"{away.last}²"):
            with reading(url, DELAYS, unknown.encode().decode("latin-1")) as again:
                assert again.next()[0] == "initial"
        # Who comes later hears what time it is, and not only when it was looked.
        readers += [Reader(url, DELAYS), Reader(url, DELAYS)]
        first, second = (later.until("up-to-date") for later in readers[-2:])
        assert first["at"] <= first["now"] < second["now"]
        with reading(url, DELAYS, **{"max-interval": "20"}) as other:
            other.until("initial")
            assert endpoint.followed == 3
        for each in readers:
            each.close()


@seen_soon
def test_a_boolean_and_triples_are_kept_up_to_date(fragments: LiveServer, url: str) -> None:
    ask = f"ASK {{ ?train <{EX}delay> '002' }}"
    made = f"CONSTRUCT {{ ?train a <{EX}Late> }} WHERE {{ ?train <{EX}delay> ?delay }}"
    fragments.publish(delays(soon(SHORT), a=1))
    with (
        reading(url, ask) as answer,
        reading(url, made) as graph,
        reading(url, f"DESCRIBE <{EX}a>") as described,
    ):
        data = described.until("initial")
        assert data["vars"] == ["subject", "predicate", "object"]
        assert rows(data) == [("a", "delay", "001")]
        data = answer.until("initial")
        assert (data["boolean"], data["vars"], data["added"]) == (False, [], [])
        data = graph.until("initial")
        assert data["vars"] == ["subject", "predicate", "object"]
        assert [row[0] for row in rows(data)] == ["a"]
        fragments.publish(delays(soon(30), b=2))
        assert answer.until("update")["boolean"] is True
        # Who comes later is told the present answer.
        with reading(url, ask) as later:
            assert later.until("initial")["boolean"] is True
        changed = graph.until("update")
        while ("a",) not in [row[:1] for row in rows(changed, "removed")]:
            changed = graph.until("update")
        assert rows(described.until("update"), "removed") == [("a", "delay", "001")]


def test_a_server_that_fails_is_an_event(fragments: LiveServer, url: str) -> None:
    fragments.publish(delays(soon(SHORT), a=1))
    app: Any = fragments.app
    with reading(url, DELAYS) as reader:
        reader.until("up-to-date")
        app.cut = True
        data = reader.until("error")
        assert (fragments.url in data["error"], data["next_look"] > data["at"]) == (True, True)
        # Who comes now gets what was known, and the error.
        with reading(url, DELAYS) as late:
            assert [late.next()[0], late.next()[0]] == ["initial", "error"]
        app.cut = False
        assert rows(reader.until("update"), "removed") == [("a", "001")]
    app.cut = True
    failed = Reader(url, f"SELECT * {{ ?a <{EX}other> ?b }}")
    assert (failed.status, fragments.url in failed.response.text) == (502, True)


@pytest.mark.parametrize(
    ("query", "parameters", "words"),
    [
        ("SELECT * { ?s ?p }", {}, "line 1, column 18"),
        (DELAYS, {"max-interval": "soon"}, "soon"),
        (DELAYS, {"max-interval": "0"}, "max-interval"),
        (DELAYS, {"grace": "-1"}, "grace: not a number of seconds from 0 to 604800: '-1'"),
        (DELAYS, {"grace": "604801"}, "604801"),
        (DELAYS, {"explain": "yes"}, "explain: not true or false: 'yes'"),
        (DELAYS, {"max-interval": "1e400"}, "1e400"),
        (DELAYS, {"at": "2015-12-08T10:20:00Z"}, "at:"),
        ("SELECT * { SERVICE <http://10.0.0.1/d> { ?s ?p ?o } }", {}, "10.0.0.1"),
    ],
)
def test_what_cannot_be_followed(
    endpoint: SparqlEndpoint, url: str, query: str, parameters: dict[str, str], words: str
) -> None:
    reader = Reader(url, query, **parameters)
    assert (reader.status, words in reader.response.text) == (400, True)
    # Nobody's place is taken.
    assert endpoint.followed == 0


def test_readers_are_limited(fragments: LiveServer, client: Client) -> None:
    with (
        serving(SparqlEndpoint(client, limits=EndpointLimits(streams=2))) as url,
        reading(url, DELAYS) as one,
        reading(url, ORDERED),
    ):
        third = Reader(url, DELAYS)
        assert (third.status, third.response.headers["Retry-After"]) == (503, "10")
        assert "2 readers" in third.response.text
        # Who asks once is answered.
        assert requests.get(url, {"query": "ASK { ?s ?p ?o }"}, timeout=30).status_code == 200
        one.close()
        until(lambda: Reader(url, DELAYS).status == 200, "no place became free")
    with (
        serving(SparqlEndpoint(client, limits=EndpointLimits(streams_per_reader=1))) as url,
        reading(url, DELAYS),
    ):
        assert "1 of this address" in Reader(url, ORDERED).response.text


def test_rows_time_and_memory_are_limited(fragments: LiveServer, client: Client) -> None:
    fragments.publish(delays(soon(SHORT), a=1, b=2))
    with serving(
        SparqlEndpoint(client, Allowance(rows=2), limits=EndpointLimits(min_interval=0.1))
    ) as url:
        with reading(url, DELAYS) as reader:
            reader.until("up-to-date")
            fragments.publish(delays(soon(60), a=1, b=2, c=3))
            data = reader.until("error")
            assert (data["error"], data["next_look"]) == ("more than 2 solutions", None)
            with pytest.raises(EOFError):
                reader.next()
        assert (Reader(url, DELAYS).status, Reader(url, DELAYS).response.text) == (
            503,
            "more than 2 solutions",
        )
    fragments.publish(delays(soon(60), **{f"t{n}": n for n in range(300)}))
    endless = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
    for allowance, words in (
        (Allowance(seconds=0.5), "0.5 s"),
        (Allowance(memory=1), "0 MiB"),
    ):
        endpoint = SparqlEndpoint(client, allowance)
        with serving(endpoint) as url:
            reader = Reader(url, endless)
            assert (reader.status, words in reader.response.text) == (503, True)
            until(lambda: not endpoint.under_way, "the query goes on")  # noqa: B023


def test_a_query_ends_some_time_after_its_readers_went(
    fragments: LiveServer, endpoint: SparqlEndpoint, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpf_client.live_answers.LINGER", timedelta(seconds=1))
    fragments.publish(delays(soon(60), a=1))
    with reading(url, DELAYS, **{"max-interval": "0.2"}) as reader:
        reader.until("up-to-date")
        reader.until("up-to-date")
    with reading(url, DELAYS, reader.last, **{"max-interval": "0.2"}) as again:
        assert again.next()[0] == "up-to-date"
    until(lambda: not endpoint.followed, "nobody reads it, and it goes on")


def test_a_reader_that_reads_nothing_is_dropped(
    fragments: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpf_client.live_answers._HEARTBEAT", 0.05)
    text = "x" * 200_000
    fragments.publish(
        [Fact(Quad(iri(f"{EX}{n}"), iri(EX + "delay"), literal(f"{text}{n}")), Expiration(soon(90)))
         for n in range(60)]
    )  # fmt: skip
    endpoint = SparqlEndpoint(client, limits=EndpointLimits(streams=1))
    listening: list[Any] = []
    with serving(endpoint, listening) as url:
        listening[0].adj.channel_timeout = 1
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port)) as reader:
            reader.sendall(f"GET /sparql?query={quote(DELAYS)} HTTP/1.1\r\nHost: localhost\r\n"
                           "Accept: text/event-stream\r\n\r\n".encode())  # fmt: skip
            until(lambda: endpoint.followed, "nothing begins")
            # Its place becomes free although it keeps its connection.
            until(lambda: Reader(url, DELAYS).status == 200, "it is waited for")


def test_closing_ends_every_stream(
    fragments: LiveServer, endpoint: SparqlEndpoint, url: str
) -> None:
    fragments.publish(delays(soon(60), a=1))
    with reading(url, DELAYS) as reader:
        reader.until("up-to-date")
        threading.Timer(0.2, endpoint.close).start()
        # No error: whoever wants comes back.
        with pytest.raises(EOFError):
            reader.next()
        assert Reader(url, DELAYS).status == 503


def test_head_follows_nothing(endpoint: SparqlEndpoint) -> None:
    code, headers, body = call(
        endpoint, "HEAD", f"query={quote(DELAYS)}", HTTP_ACCEPT="text/event-stream"
    )
    assert (code, headers["Content-Type"], body) == (200, "text/event-stream", b"")
    endpoint.close()
    assert endpoint.followed == 0


def test_answers_that_nobody_follows_are_no_more_than_readers_may_be(client: Client) -> None:
    endpoint = SparqlEndpoint(client, limits=EndpointLimits(streams=2))
    for name in "abcd":
        query = quote(f"SELECT ?{name} {{ ?{name} ?p ?o }}")
        call(endpoint, "HEAD", f"query={query}", HTTP_ACCEPT="text/event-stream")
        assert 1 <= endpoint.followed <= 2
    endpoint.close()


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")  # rdflib's own parser
@pytest.mark.parametrize(
    "accept", ["*/*", "text/turtle", "application/ld+json", "application/rdf+xml"]
)
def test_the_endpoint_describes_itself(url: str, accept: str) -> None:
    response = requests.get(url, headers={"Accept": accept}, timeout=30)
    graph = rdflib.Graph().parse(data=response.text, format=response.headers["Content-Type"])
    found: Any = graph.query(
        """PREFIX sd: <http://www.w3.org/ns/sparql-service-description#>
        SELECT ?endpoint { ?endpoint a sd:Service ; sd:endpoint ?endpoint ;
          sd:supportedLanguage sd:SPARQL11Query ; sd:resultFormat [
            <http://www.w3.org/ns/formats/media_type> "text/event-stream" ] }"""
    )
    assert [str(row[0]) for row in found] == [url]


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
def test_how_long_nobody_reads_goes_by_our_clock(ahead: timedelta) -> None:
    clock, over = ManualClock(START), list[LiveAnswer]()
    told = dict.fromkeys(("at", "valid_until", "next_look", "dynamic", "vars"))

    def update() -> Any:
        """An evaluation without changes, at an instant of the server's clock."""
        return SimpleNamespace(
            at=clock.now() + ahead, error=None, removed=(), added=(), pages=0, work=Statistics(),
            placed=list, head=lambda _: told,
        )  # fmt: skip

    stream = SimpleNamespace(
        streamer=SimpleNamespace(clock=clock), now=clock.now, plan=dict, close=lambda: None
    )
    answer = LiveAnswer(cast(Any, stream), None, dict, over.append)
    answer.leave(answer.follow(None, explain=False), clock.now())
    clock.advance_to(START + LINGER - timedelta(seconds=1))
    answer._take(update())
    assert over == []
    clock.advance_to(START + LINGER)
    answer._take(update())
    assert over == [answer]
