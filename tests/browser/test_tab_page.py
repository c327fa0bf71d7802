"""The page that evaluates queries in the browser: from any host, over fragments of any server."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Event
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from annotations.labels import Expiration
from annotations.terms import Quad, iri, literal
from tests.browser.chromium import Browser
from tests.browser.test_live_page import cells, state, type_query, until, view, violations
from tests.support.examples import TIMES
from tests.support.peers import CHROMIUM
from tests.support.random_sparql import QueryWriter, random_quads
from tests.support.running_server import RunningServer
from tests.support.threaded import in_thread
from tpf_client import Client, Solutions
from tpf_client.errors import QueryError
from tpf_client.page_files import Example, PageSettings, write_page
from tpf_client.page_runtime import runtime_folder

pytestmark = [
    pytest.mark.peers,
    CHROMIUM.skip,
    pytest.mark.skipif(
        runtime_folder() is None,
        reason="Python for browsers was not fetched: python -m tpf_client.page_runtime",
    ),
]

EX = "http://example.org/"
CONFIG = (
    '[datasets.trains]\nsource = "trains.nt"\nlive = true\nmax_age = 1\naccept_past = true\n'
    '[datasets.stations]\nsource = "stations.nt"\n'
)
QUERY = (
    f"PREFIX : <{EX}>\nSELECT ?train ?name ?delay WHERE {{ ?train :name ?name ; :delay ?delay }}\n"
    "ORDER BY ?name"
)
TRAINS = 20
FOREVER = timedelta(hours=1)
SIZE = (1200, 1200)
"""Of a screen on which all rows are in sight."""
STARTED = 240
"""Seconds in which Python has started in the browser, on a machine that has much to do."""


_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
}


class StaticHost(ThreadingHTTPServer):
    """Serves a folder, compressed for those who take it.

    Attributes:
        asked: the paths that were asked for.
        away: a proxy answers that it is not there.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.asked: list[str] = []
        self.away = Event()


class _Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, StaticHost)
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        file = Path(self.directory) / (path.lstrip("/") or "index.html")
        packed = file.with_name(file.name + ".br")
        if self.server.away.is_set() or not file.is_file():
            self.send_error(502 if self.server.away.is_set() else 404)
            return
        takes = "br" in self.headers.get("Accept-Encoding", "") and packed.is_file()
        body = (packed if takes else file).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", _TYPES.get(file.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        if takes:
            self.send_header("Content-Encoding", "br")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def publish(server: RunningServer, train: int, delay: str, holds: timedelta) -> None:
    quad = Quad(iri(f"{EX}train/{train}"), iri(EX + "delay"), literal(delay))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + holds))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("tab-page")
    trains = [f'<{EX}train/{n}> <{EX}name> "Train {n:02}" .\n' for n in range(TRAINS)]
    trains += [f"<{EX}train/{n}> <{EX}to> <{EX}station/{n % 3}> .\n" for n in range(TRAINS)]
    (folder / "trains.nt").write_text("".join(trains))
    stations = [f'<{EX}station/{n}> <{EX}called> "Station {n}" .\n' for n in range(3)]
    (folder / "stations.nt").write_text("".join(stations))
    with RunningServer(folder, CONFIG) as server:
        for n in range(TRAINS):
            publish(server, n, f"{n}", FOREVER)
        yield server


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticHost]:
    """A static host with the page, which is of another origin than the fragments."""
    folder = tmp_path_factory.mktemp("page")
    write_page(folder, PageSettings(examples=[Example("All delays", QUERY)]))
    with in_thread(host := StaticHost(folder)):
        yield host


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    chromium.resize(*SIZE)
    return chromium


def link(url: str, query: str, *sources: str) -> str:
    named = "".join(f"source={quote(each, safe='')}&" for each in sources)
    return f"{url}#{named}query={quote(query)}"


def go(browser: Browser, address: str) -> None:
    """Follow a link and wait for its answer, which nobody watches where nothing is labelled."""
    browser.open("about:blank")
    browser.open(address)
    until(lambda: state(browser) in ("up to date", "answered once"), "no answer", STARTED)


def test_a_page_of_the_server_evaluates_nothing_there(
    browser: Browser, server: RunningServer
) -> None:
    go(browser, link(server.origin + "trains/query/", QUERY))
    assert [row[1:] for row in cells(browser)] == [[f"Train {n:02}", f"{n}"] for n in range(TRAINS)]
    assert browser.problems() == []
    # What changes is shown by itself, in its place.
    publish(server, 3, "99", FOREVER)
    until(lambda: cells(browser)[3][2] == "99", "the change is not shown", 60)
    used = browser.evaluate("document.getElementById('used').textContent")
    assert re.search(
        r"[1-9]\d* requests for fragments \([\d.]+ kB\).*server computed no query", used
    )
    hosts = {url.split("/")[2] for url in browser.requested()}
    assert hosts == {server.origin.split("/")[2]}
    # There is no address that curl could ask.
    browser.evaluate("document.getElementById('share').open = true")
    disabled = "[...document.querySelectorAll('#share button:disabled')].map((e) => e.textContent)"
    until(lambda: browser.evaluate(disabled) == ["Copy as curl"], "it is offered")
    browser.evaluate("document.getElementById('share').open = false")
    # The past, the plan and an answer that is asked for once come from the same engine.
    view(browser, "plan")
    until(lambda: browser.evaluate("document.querySelectorAll('#steps code').length"), "no plan")
    view(browser, "table")
    browser.evaluate("document.getElementById('once').click()")
    until(lambda: state(browser) == "answered once", "no answer")
    # Rows are drawn as far as they are in sight, which the browser tells a moment later.
    until(lambda: len(cells(browser)) == TRAINS, "rows are missing")
    assert violations(browser) == []


def test_sources_of_another_origin_are_federated_and_a_wrong_query_is_marked(
    browser: Browser, server: RunningServer, host: StaticHost
) -> None:
    query = f"SELECT ?name {{ <{EX}train/4> <{EX}to> ?station . ?station <{EX}called> ?name }}"
    sources = [server.origin + "trains", server.origin + "stations"]
    go(browser, link(host.url, query, *sources))
    assert cells(browser) == [["Station 1"]]
    assert browser.evaluate("document.getElementById('sources').value").split() == sources
    # The address goes on to name what is asked.
    assert quote(sources[1], safe="") in browser.evaluate("location.hash")
    assert browser.problems() == []
    # Of what never answered nothing is said.
    browser.open("about:blank")
    browser.open(link(host.url, query, "http://127.0.0.1:1/away"))
    until(lambda: state(browser).startswith("late: "), "it does not fail", STARTED)
    texts = "['why-empty', 'valid'].map((id) => document.getElementById(id).textContent)"
    assert browser.evaluate(texts) == ["No answer so far.", ""]
    go(browser, link(host.url, query, *sources))
    type_query(browser, "SELECT * {\n  ?s ?p }")
    until(lambda: state(browser) == "this query was refused", "it is not refused")
    assert "line 2" in browser.evaluate("document.getElementById('problem').textContent")


def test_cells_lead_into_the_data_and_tabs_share_one_engine(
    browser: Browser, server: RunningServer, host: StaticHost
) -> None:
    address = link(host.url, QUERY, server.origin + "trains")
    go(browser, address)
    title = "document.querySelector('#table tbody tr.row td').title"
    until(lambda: browser.evaluate(title) == f"Train 00\n{EX}train/0", "no label")
    hrefs = "[...document.querySelector('#table tbody tr.row td').children].map(a => a.href)"
    about = f"{server.origin}trains?subject={quote(f'{EX}train/0', safe='')}"
    assert browser.evaluate(hrefs) == [about, f"{EX}train/0"]
    other = "window.other.document.getElementById('state')?.textContent"
    host.asked.clear()
    opening = f"void (window.other = window.open({json.dumps(address)}))"
    browser.call("Runtime.evaluate", expression=opening, userGesture=True)
    try:
        until(lambda: browser.evaluate(other) == "up to date", "the second tab has no answer")
        assert [path for path in host.asked if "python" in path or "packages" in path] == []
        publish(server, 5, "second", FOREVER)
        shown = "window.other.document.getElementById('table').textContent.includes('second')"
        until(lambda: browser.evaluate(shown), "the second tab is not told")
        until(lambda: cells(browser)[5][2] == "second", "the first tab is not told")
    finally:
        browser.evaluate("window.other.close()")


def test_a_frozen_tab_catches_up_and_the_state_cannot_lie(
    browser: Browser, server: RunningServer, host: StaticHost
) -> None:
    go(browser, link(host.url, QUERY, server.origin + "trains"))
    browser.call("Page.setWebLifecycleState", state="frozen")
    publish(server, 7, "while frozen", FOREVER)
    time.sleep(1.5)  # beyond `max_age`
    browser.call("Page.setWebLifecycleState", state="active")
    until(lambda: cells(browser)[7][2] == "while frozen", "it does not catch up", 60)
    assert state(browser) == "up to date"
    processes = [server.process.pid]
    processes += [each.pid for each in psutil.Process(processes[0]).children(recursive=True)]
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    try:
        kind = "document.getElementById('state').dataset.kind"
        until(lambda: browser.evaluate(kind) == "late", "it does not say that it is late", 30)
        until(lambda: browser.evaluate(kind) == "bad", "it does not say that it failed", 60)
        assert "out of date" in state(browser)
        assert len(cells(browser)) == TRAINS
        assert not browser.evaluate("document.getElementById('try').hidden")
        browser.evaluate("document.getElementById('try').click()")
    finally:
        for each in processes:
            os.kill(each, signal.SIGCONT)
    until(lambda: state(browser) == "up to date", "it does not come back", 120)


def test_a_first_visit_a_second_one_and_one_without_webassembly(
    server: RunningServer, host: StaticHost, tmp_path: Path
) -> None:
    address = link(host.url, QUERY, server.origin + "trains")
    with Browser(tmp_path) as first:
        slow = {"offline": False, "latency": 50, "downloadThroughput": 6_000_000,
                "uploadThroughput": 6_000_000}  # fmt: skip
        first.call("Network.emulateNetworkConditions", **slow)
        first.open(address)
        seen = set()
        end = time.monotonic() + STARTED
        while (now := state(first)) not in ("up to date", "answered once"):
            assert time.monotonic() < end, now
            seen.add(re.sub(r"[\d.]+", "N", now))
            time.sleep(0.02)
        # The engine is loaded in sight.
        assert {"loading: N of N MB", "starting…"} <= seen
        kept = "caches.open('page').then((cache) => cache.keys()).then((keys) => keys.length)"
        until(lambda: first.resolve(kept), "nothing is kept", STARTED)
        snapshot = kept.replace("'page'", "'snapshot'")
        until(lambda: first.resolve(snapshot), "no snapshot is kept", STARTED)
    host.asked.clear()
    (tmp_path / "profile/DevToolsActivePort").unlink()
    with Browser(tmp_path) as second:
        # Behind a proxy the host may answer although it is away: what it last said counts.
        host.away.set()
        try:
            go(second, address)
        finally:
            host.away.clear()
        assert second.evaluate("document.getElementById('offers').textContent") == "All delays"
        assert cells(second)[0] == [":train/0", "Train 00", "0"]
        # The second visit loads nothing. What the host says of itself, and whether there is a newer
        # page. Chromium itself asks for the page while the service worker starts, though that has
        # it.
        assert set(host.asked) <= {"/page.json", "/offline.js", "/"}
        # Without WebAssembly there is a command.
        second.call("Page.addScriptToEvaluateOnNewDocument", source="delete self.WebAssembly")
        second.open("about:blank")
        second.open(address)
        shown = "!document.getElementById('cannot').hidden"
        until(lambda: second.evaluate(shown), "it does not say what is missing")
        assert "WebAssembly" in second.evaluate("document.getElementById('why').textContent")
        command = second.evaluate("document.getElementById('command').textContent")
        assert command.startswith(f"tpf-query '{server.origin}trains' --watch -q '")
        assert QUERY in command
        assert violations(second) == []


@pytest.mark.parametrize(("width", "dark"), [(1200, True), (360, False)])
def test_who_has_asked_nothing_has_examples(
    browser: Browser, host: StaticHost, width: int, dark: bool
) -> None:
    browser.resize(width, 800, phone=width < 400, dark=dark)
    browser.open("about:blank")
    browser.open(host.url)
    until(lambda: browser.evaluate("document.querySelectorAll('#offers button').length"), "none")
    assert violations(browser) == []
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.evaluate(overflow) <= 0
    # Without a source there is nothing to ask, which is said where the answer would be.
    browser.evaluate("document.querySelector('#offers button').click()")
    until(lambda: state(browser) == "no source", "it does not say that there is no source")


def _shown(term: dict[str, str] | None) -> str:
    """The full text of a term, as a cell's tooltip has it."""
    if term is None:
        return ""
    if term["type"] == "bnode":
        return "_:"
    if "xml:lang" in term:
        direction = f"--{term['its:dir']}" if "its:dir" in term else ""
        return f"{term['value']} @{term['xml:lang']}{direction}"
    return f"{term['value']} ({term['datatype']})" if "datatype" in term else term["value"]


def test_random_queries_have_the_answers_of_cpython(
    browser: Browser, host: StaticHost, tmp_path: Path
) -> None:
    random = Random(20)
    lines = [f"{' '.join(quad).strip()} .\n" for quad in sorted(random_quads(random))]
    (tmp_path / "random.nq").write_text("".join(lines))
    titles = """JSON.stringify([...document.querySelectorAll('tr.row')].map(
      (row) => [...row.cells].slice(0, -1).map((cell) => cell.title.split('\\n').pop())))"""
    compared = rows = 0
    with (
        RunningServer(tmp_path, '[datasets.random]\nsource = "random.nq"\n') as server,
        Client(server.origin + "random") as client,
    ):
        while compared < 4 * TIMES:
            query = QueryWriter(random).query()
            with suppress(QueryError):
                answer = client.query(query)
                if not isinstance(answer, Solutions) or not 0 < len(answer) <= 15:
                    continue
                names, solutions = answer.variables, [row.to_json() for row in answer]
                expected = sorted([_shown(row.get(name)) for name in names] for row in solutions)
                browser.open("about:blank")
                browser.open(link(host.url, query, server.origin + "random"))
                drawn = f"document.querySelectorAll('tr.row').length == {len(expected)}"
                until(partial(browser.evaluate, drawn), query, STARTED)
                found = [
                    ["_:" if cell.startswith("_:") else cell for cell in row]
                    for row in json.loads(browser.evaluate(titles))
                ]
                assert sorted(found) == expected, query
                compared += 1
                rows += len(expected)
    assert rows > compared
