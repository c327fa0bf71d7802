"""Limits of an endpoint for queries, readers and web pages."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest
import requests
from typer.testing import CliRunner

from annotations.clock import ManualClock, SystemClock
from annotations.terms import Quad, iri, literal
from tests.support.endpoint import serving, until
from tests.support.live_server import START, LiveServer
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.app.serving import app as command
from tpf_client.errors import ClientError, ClosedError, LimitError
from tpf_client.planner.budget import Allowance, Budget, BudgetWatch
from tpf_client.queries import QueryOptions
from tpf_client.sparql.expressions.functions import FUNCTIONS

EX = "http://example.org/"
ROWS = 400
SELECT = f"SELECT ?s ?n {{ ?s <{EX}name> ?n }}"
# 400 to the third: far more than anybody waits for.
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
MANY = "SELECT * { ?a ?b ?c . ?d ?e ?f }"
ENDLESS_ROWS = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"


@pytest.fixture(scope="module")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"é{n}")) for n in range(ROWS)]
    with LiveServer(
        tmp_path_factory.mktemp("limits"), data, live=False, clock=SystemClock(), page_size=1000
    ) as server:
        yield server


@pytest.fixture
def client(fragments: LiveServer) -> Iterator[Client]:
    with Client(fragments.url, session=fragments.session(), services=()) as client:
        yield client


def test_preflight_and_options(client: Client) -> None:
    app = SparqlEndpoint(client, origins=["https://page.example"], hosts=["data.example"])
    code, headers, body = call(
        app,
        "OPTIONS",
        HTTP_HOST="data.example",
        HTTP_ORIGIN="https://page.example",
        HTTP_ACCESS_CONTROL_REQUEST_METHOD="POST",
    )
    assert (code, body) == (204, b"")
    assert headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert {"Content-Type", "Last-Event-ID"} <= set(
        headers["Access-Control-Allow-Headers"].split(", ")
    )
    code, headers, _ = call(app, "OPTIONS")
    assert (code, headers["Allow"]) == (204, "GET, HEAD, POST, OPTIONS")
    for path in ("/", "/words.json"):
        code, refused, _ = call(app, "POST", PATH_INFO=path)
        assert (code, refused["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert not any(name.startswith("Access-Control") for name in headers)
    # A page that we serve ourselves is no other origin.
    same: dict[str, Any] = {"HTTP_HOST": "127.0.0.1:8890", "HTTP_ORIGIN": "http://127.0.0.1:8890"}
    assert call(app, query="query=ASK%7B%7D", **same)[0] == 200
    own: dict[str, Any] = {"HTTP_SEC_FETCH_MODE": "no-cors", "HTTP_SEC_FETCH_SITE": "same-origin"}
    assert call(app, query="query=ASK%7B%7D", **own)[0] == 200


def test_any_page_may_ask_where_that_is_wanted(client: Client) -> None:
    app = SparqlEndpoint(client, origins=["*"])
    for origin in ("https://page.example", "null"):
        code, headers, _ = call(app, query="query=ASK%7B%7D", HTTP_ORIGIN=origin)
        assert (code, headers["Access-Control-Allow-Origin"]) == (200, "*")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8890", "me"])
def test_its_own_names(client: Client, host: str) -> None:
    app = SparqlEndpoint(client, hosts=["me"])
    assert call(app, query="query=ASK%7B%7D", HTTP_HOST=host)[0] == 200


def test_service_asks_only_whom_it_may(client: Client, fragments: LiveServer) -> None:
    app = SparqlEndpoint(client)

    def ask(query: str) -> tuple[int, bytes]:
        code, _, body = call(app, query=urlencode({"query": query}))
        return code, body

    asked = len(fragments.log)
    inside = "http://10.0.0.1:1/d"
    code, body = ask(f"SELECT * {{ SERVICE <{inside}> {{ ?s ?p ?o }} }}")
    assert (code, inside in body.decode()) == (400, True)
    assert len(fragments.log) == asked
    where = f"VALUES ?where {{ <{inside}> }} SERVICE ?where {{ ?s ?p ?o }}"
    code, body = ask(f"SELECT * {{ {where} }}")
    assert (code, inside in body.decode()) == (502, True)
    assert ask(f"ASK {{ {where.replace('SERVICE', 'SERVICE SILENT')} }}") == (
        200,
        b'{"head": {}, "boolean": true}',
    )
    assert ask(f"ASK {{ SERVICE <{fragments.url}> {{ ?s ?p 'é7' }} }}")[0] == 200


def test_connections_are_kept(client: Client) -> None:
    with serving(SparqlEndpoint(client)) as url:
        parts = urlsplit(url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        for _ in range(3):
            connection.request("GET", "/sparql?query=ASK%7B%7D")
            response = connection.getresponse()
            assert (response.version, response.status) == (11, 200)
            assert b"true" in response.read()
            assert connection.sock is not None
        connection.request("GET", f"/sparql?query={quote(SELECT)}")
        response = connection.getresponse()
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert "é399" in response.read().decode()
        connection.request("HEAD", f"/sparql?query={quote(SELECT)}")
        assert connection.getresponse().read() == b""
        connection.close()


@pytest.mark.parametrize(
    "query",
    [
        ENDLESS,
        "ASK { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(CONCAT(STR(?c), STR(?f), STR(?i)) = 'x') }",
        "CONSTRUCT { ?a ?b ?f } { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }",
    ],
)
def test_time_is_limited(client: Client, query: str) -> None:
    with serving(SparqlEndpoint(client, Allowance(seconds=0.3))) as url:
        response = requests.get(url, {"query": query}, timeout=60)
        assert (response.status_code, response.text) == (503, "no complete answer within 0.3 s")
        # The next one is answered, if not within this time at once.
        for _ in range(100):
            response = requests.get(url, {"query": "ASK { ?s ?p ?o }"}, timeout=60)
            if response.status_code == 200:
                break
        assert response.json()["boolean"]


def test_rows_are_limited(client: Client) -> None:
    endpoint = SparqlEndpoint(client, Allowance(rows=ROWS))
    with serving(endpoint) as url:
        assert requests.get(url, {"query": SELECT}, timeout=60).text.count("é") == ROWS
        response = requests.get(url, {"query": ENDLESS_ROWS}, timeout=60)
        assert (response.status_code, response.text) == (503, f"more than {ROWS} solutions")
        assert not endpoint.under_way


def test_an_answer_that_began_breaks_off(client: Client) -> None:
    endpoint = SparqlEndpoint(client, Allowance(rows=ROWS))
    query = f"SELECT * {{ {{ ?s <{EX}name> ?n }} UNION {{ ?a ?b ?c . ?d ?e ?f }} }}"
    with serving(endpoint) as url, pytest.raises(requests.exceptions.ChunkedEncodingError):
        requests.get(url, {"query": query}, timeout=60)
    assert not endpoint.under_way


@pytest.mark.parametrize("query", [ENDLESS, ENDLESS_ROWS])
def test_a_query_ends_when_its_reader_goes(client: Client, query: str) -> None:
    endpoint = SparqlEndpoint(client)
    with serving(endpoint) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port)) as reader:
            reader.sendall(f"GET /sparql?query={quote(query)} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                           .encode())  # fmt: skip
            until(lambda: endpoint.under_way, "the query does not begin")
        until(lambda: not endpoint.under_way, "the query goes on")


def test_a_reader_that_reads_nothing_is_cut_off(client: Client) -> None:
    endpoint = SparqlEndpoint(client, Allowance(seconds=3))
    with serving(endpoint) as url:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port)) as reader:
            # Some 16 MB, more than is kept for who does not read.
            reader.sendall(f"GET /sparql?query={quote(MANY)} HTTP/1.1\r\n"
                           "Host: localhost\r\n\r\n".encode())  # fmt: skip
            until(lambda: endpoint.under_way, "the query does not begin")
            until(lambda: not endpoint.under_way, "its reader is waited for")


def test_budgets() -> None:
    clock = ManualClock(START)
    gone: list[bool] = []
    budget = Budget(clock, Allowance(seconds=2, rows=2), reader_gone=lambda: bool(gone))
    stopped: list[int] = []
    budget.on_stop(lambda: stopped.append(1))
    budget.look()
    seen: list[int] = []
    sink = budget.counting(lambda _solution, count: seen.append(count))
    for count in (1, 1, -1, 1):
        sink((), count)
    with pytest.raises(LimitError, match="more than 2 solutions"):
        sink((), 1)
    assert (seen, stopped) == ([1, 1, -1, 1], [1])
    with pytest.raises(LimitError):
        next(budget.stoppable(iter("abc")))
    # The first reason counts, and who comes late is told at once.
    clock.advance_to(clock.now() + timedelta(seconds=2))
    budget.look()
    budget.on_stop(lambda: stopped.append(2))
    assert stopped == [1, 2]
    assert "solutions" in str(budget.error)

    slow = Budget(clock, Allowance(seconds=2), reader_gone=lambda: bool(gone))
    clock.advance_to(clock.now() + timedelta(seconds=2))
    slow.look()
    with pytest.raises(LimitError, match="2 s"), slow.explaining():
        raise ClosedError("the query was closed")

    left = Budget(clock, Allowance(), reader_gone=lambda: bool(gone))
    gone.append(True)
    left.look()
    with pytest.raises(ClosedError, match="reader"):
        left.pass_change((), 1)


def test_a_query_that_cannot_be_looked_at_leaves_the_others_their_limits() -> None:
    looked, stopped = threading.Event(), threading.Event()

    def gone() -> bool:
        looked.set()
        raise OSError(errno.EMFILE, "Too many open files")

    clock, watch = ManualClock(START), BudgetWatch(0.001)
    watch.add(Budget(clock, Allowance(), gone))
    assert looked.wait(10)
    late = Budget(clock, Allowance(), lambda: True)
    late.on_stop(stopped.set)
    watch.add(late)
    assert stopped.wait(10)
    watch.close()


def test_memory_is_limited_and_that_which_is_not_told_at_first_is_no_growth() -> None:
    told = [0, 2**30, 2**30 + 2**20, 0, 2**30 + 2**20 + 1]
    budget = Budget(ManualClock(START), Allowance(memory=2**20), measure=lambda: told.pop(0))
    for _ in range(3):
        budget.look()
        budget.pass_change((), 1)
    budget.look()
    with pytest.raises(LimitError, match="more than 1 MiB"):
        budget.pass_change((), 1)


def test_a_watch_that_cannot_begin_begins_with_the_next_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock, watch, stopped = ManualClock(START), BudgetWatch(0.001), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with (
            pytest.raises(RuntimeError, match="new thread"),
            watch.watching(Budget(clock, Allowance())),
        ):
            pass
    assert not len(watch)
    budget = Budget(clock, Allowance(), lambda: True)
    budget.on_stop(stopped.set)
    watch.add(budget)
    assert stopped.wait(10)
    watch.close()


def test_the_library_takes_a_budget(client: Client) -> None:
    budget = Budget(client.clock, Allowance(rows=10))
    with pytest.raises(LimitError):
        list(client.query(SELECT, options=QueryOptions(budget=budget)))  # type: ignore[arg-type]
    waiting = Budget(client.clock, Allowance())
    threading.Timer(0.1, waiting.stop, [LimitError("enough")]).start()
    with pytest.raises(ClientError, match="enough"):
        list(client.query(ENDLESS, options=QueryOptions(budget=waiting)))  # type: ignore[arg-type]


NESTED = {
    "REPLACE": 'REPLACE({x}, "(.)", "$1$1")',
    "CONCAT": "CONCAT({x}, {x})",
    "UCASE": "UCASE({x})",
    "ENCODE_FOR_URI": "ENCODE_FOR_URI({x})",
    "REGEX": 'IF(REGEX({x}, "(a|b)*c"), {x}, STR({x}))',
    "SHA1": "CONCAT(SHA1({x}), {x})",
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("place", ["SELECT ({e} AS ?v) {{ {p} }}", "ASK {{ {p} FILTER({e} = 1) }}"])
def test_a_budget_ends_within_one_expression(client: Client, name: str, place: str) -> None:
    """Not only between operators: one row may take as long as one likes."""
    budget = Budget(client.clock, Allowance())
    expression = f'CONCAT(?n, "{"a" * 300}")'
    for _ in range(4 if name == "CONCAT" else 7 if name in ("REGEX", "SHA1") else 12):
        expression = NESTED[name].format(x=expression)
    calls = 0
    function = FUNCTIONS[name]

    def count(*values: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            budget.stop(LimitError("enough"))
        return function(*values)

    query = place.format(e=expression, p=f"?s <{EX}name> ?n")
    options = QueryOptions(budget=budget)
    with patch.dict(FUNCTIONS, {name: count}), pytest.raises(LimitError, match="enough"):
        list(client.query(query, options=options))  # type: ignore[arg-type]
    assert calls <= 4


SERVE = [sys.executable, "-m", "tpf_client.commands", "tpf-query", "serve", "http://127.0.0.1:9/d"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_well(number: int) -> None:
    tiles = ["--map-tiles", "https://tiles.example.org/{z}/{x}/{y}.png", "--map-attribution", "us"]
    arguments = [*SERVE, "--port", "0", *tiles]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = line.split()[-1]
        assert requests.get(url, {"query": "ASK {}"}, timeout=30).json()["boolean"] is True
        policy = requests.get(urljoin(url, "/"), timeout=30).headers["Content-Security-Policy"]
        assert policy.endswith("; img-src data: https://tiles.example.org")
        os.kill(process.pid, number)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_tiles_that_cannot_be_had_are_refused_at_start() -> None:
    options = ["--map-tiles", "ftp://e.org/{z}", "--map-attribution", "us", "--port", "0"]
    done = CliRunner().invoke(command, ["http://127.0.0.1:9/d", *options])
    assert done.exit_code == 2
    assert "--map-tiles" in done.output
    assert "'ftp://e.org/{z}'" in done.output


@pytest.mark.parametrize("option", ["--seconds", "--min-interval"])
def test_seconds_that_nobody_can_wait_for_are_refused_at_start(option: str) -> None:
    done = CliRunner().invoke(command, ["http://127.0.0.1:9/d", "--port", "0", option, "0"])
    assert done.exit_code == 2
    assert option in done.output
    assert "seconds, not 0" in done.output


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*SERVE, "--port", port], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert port in done.stderr
