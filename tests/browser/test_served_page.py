"""The page that the fragment server has itself: from a dataset to an answer, and over streams."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
import requests

from annotations.labels import Expiration
from annotations.terms import Quad, iri, literal
from tests.browser.chromium import Browser
from tests.browser.test_live_page import cells, state, type_query, until, view, violations
from tests.support.peers import CHROMIUM
from tests.support.running_server import TOKEN, RunningServer
from tests.support.threaded import in_thread

pytestmark = [pytest.mark.peers, CHROMIUM.skip]

EX = "http://example.org/"
CONFIG = 'continuous = true\n{}[datasets.trains]\nsource = "trains.nt"\nlive = true\n'
CQELS = (
    f"SELECT ?train ?delay {{ STREAM <delays> [RANGE 60s] {{ ?train <{EX}delay> ?delay }}\n"
    f"STREAM <delays> [RANGE 60s] {{ ?train <{EX}at> ?station }} }}"
)
CSPARQL = (
    "REGISTER QUERY longest COMPUTED EVERY 1s AS SELECT (MAX(?delay) AS ?most)\n"
    f"FROM STREAM <delays> [RANGE 1h STEP 1s] WHERE {{ ?train <{EX}delay> ?delay }}"
)
RSPQL = (
    "REGISTER RSTREAM <late> REPORT CONTENT CHANGE TICK TUPLE AS SELECT ?train ?delay\n"
    "FROM NAMED WINDOW <w> ON <delays> [RANGE PT1H STEP PT1S]\n"
    f"WHERE {{ WINDOW <w> {{ ?train <{EX}delay> ?delay }} FILTER(?delay > 100) }}"
)
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"


class Tiles(ThreadingHTTPServer):
    """Tiles of one colour, as long as there are any."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Tile)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[tuple[str, str | None]] = []
        self.has_some = True


class _Tile(BaseHTTPRequestHandler):
    server: Tiles

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Referer"]))
        if not self.server.has_some:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "image/svg+xml")
        self.end_headers()
        ground = '<rect width="256" height="256" fill="#cde"/>'
        self.wfile.write(f'<svg xmlns="http://www.w3.org/2000/svg">{ground}</svg>'.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def tiles() -> Iterator[Tiles]:
    with in_thread(tiles := Tiles()):
        yield tiles


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiles: Tiles) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served-page")
    (folder / "trains.nt").write_text(f'<{EX}a> <{EX}name> "<b>first</b>" .\n')
    tiled = (
        f'query_map_tiles = "{tiles.origin}/{{z}}/{{x}}/{{y}}.svg"\n'
        'query_map_attribution = "\u00a9 <b>us</b>, see https://us.example/."\n'
    )
    with RunningServer(folder, CONFIG.format(tiled)) as server:
        yield server


def push(server: RunningServer, train: str, delay: int) -> None:
    lines = [
        f'{{"triples": [["<{EX}{train}>", "<{EX}delay>", "\\"{delay}\\"^^<{INTEGER}>"], '
        f'["<{EX}{train}>", "<{EX}at>", "<{EX}here>"]]}}\n'
    ]
    requests.post(
        f"{server.origin}streams/delays", "".join(lines), timeout=60,
        headers={"Content-Type": "application/x-ndjson", "Authorization": f"Bearer {TOKEN}"},
    ).raise_for_status()  # fmt: skip


def click(browser: Browser, text: str) -> None:
    """Press a link or a button with this text."""
    found = f"[...document.querySelectorAll('a, button')].find((e) => e.textContent === '{text}')"
    until(lambda: browser.evaluate(f"!!{found}"), f"no {text}")
    browser.leave(f"{found}.click()")


def test_pages_of_a_dataset_lead_to_queries(browser: Browser, server: RunningServer) -> None:
    fragment = f"{server.origin}trains?predicate={quote(EX + 'name', safe='')}"
    browser.open(fragment)
    click(browser, "Query this")
    ready = "document.getElementById('datasets')?.textContent.includes('trains')"
    until(lambda: browser.evaluate(ready), "no page")
    editor = "document.querySelector('#editor').shadowRoot.textContent"
    until(lambda: "SELECT" in browser.evaluate(editor), "no query")
    assert state(browser) == "nothing asked yet"
    browser.open(fragment)
    click(browser, "Watch this")
    until(lambda: browser.evaluate(ready), "no page")
    until(lambda: state(browser) in ("up to date", "answered once"), "no answer")
    assert cells(browser)[0][-1] == "<b>first</b>"
    hosts = {url.split("/")[2] for url in browser.requested()}
    assert hosts == {server.origin.split("/")[2]}
    assert browser.problems() == []


def test_updates_are_drawn_in_the_list_of_datasets(browser: Browser, server: RunningServer) -> None:
    ends = Expiration(datetime.now(UTC) + timedelta(hours=1))
    server.publish("trains", [Quad(iri(EX + "a"), iri(EX + "note"), literal("late"))], ends)
    browser.open(server.origin)
    drawn = "document.querySelector('svg.updates path').getBoundingClientRect().height"
    assert browser.evaluate(drawn) > 10
    assert violations(browser) == []


def test_tiles_are_behind_the_map_where_points_are(
    browser: Browser, server: RunningServer, tiles: Tiles
) -> None:
    def show(*places: tuple[float, float], sparing: bool = False) -> int:
        """Show places on the map; how many tiles were asked for before it was opened."""
        values = " ".join(f"({place[0]} {place[1]})" for place in places)
        query = f"SELECT ?long ?lat {{ VALUES (?long ?lat) {{ {values} }} ?s <{EX}name> ?o }}"
        browser.open("about:blank")
        browser.open(f"{server.origin}trains/query/#query={quote(query)}")
        until(lambda: state(browser) == "answered once", "no answer")
        assert count("img") == 0
        if sparing:
            saves = "Object.defineProperty(navigator.connection, 'saveData', { value: true })"
            browser.evaluate(saves + ".saveData")
        asked = len(tiles.asked)
        view(browser, "map")
        until(lambda: count("path.point") == len(places), "no points")
        until(lambda: count("path.land"), "no outline")
        return asked

    def count(kind: str) -> int:
        return int(browser.evaluate(f"document.querySelectorAll('#map {kind}').length"))

    def is_covered() -> bool:
        return bool(browser.evaluate("!!document.querySelector('#map.tiled')"))

    places = [(4.35, 50.8), (4.4, 51.2), (5.57, 50.63)]
    show(*places)
    until(is_covered, "no tiles")
    # Each is where it would be: the tile of a point is asked for, by its numbers.
    numbers = {tuple(map(int, path.removesuffix(".svg").split("/")[1:])) for path, _ in tiles.asked}
    zoom = min(numbers)[0]
    for longitude, latitude in places:
        angle = math.radians(latitude)
        row = (1 - math.log(math.tan(angle) + 1 / math.cos(angle)) / math.pi) / 2
        assert (zoom, int((longitude + 180) / 360 * 2**zoom), int(row * 2**zoom)) in numbers
    # Nobody but who has them is asked, and he learns who asks, and not what.
    hosts = {url.split("/")[2] for url in browser.requested()}
    assert hosts == {server.origin.split("/")[2], tiles.origin.split("/")[2]}
    assert {told for _, told in tiles.asked} == {server.origin}
    assert browser.problems() == []
    named = "document.querySelector('#panel-map .attribution')"
    assert browser.evaluate(f"{named}.textContent") == "\u00a9 <b>us</b>, see https://us.example/."
    assert browser.evaluate(f"{named}.querySelector('a').href") == "https://us.example/"
    # Who wants little sent gets none; where none come, the outlines are there.
    asked = show((30, 10), sparing=True)
    assert (count("img"), len(tiles.asked)) == (0, asked)
    tiles.has_some = False
    show((23, 44), (24, 40))
    until(lambda: len(tiles.asked) > asked, "it does not ask")
    assert not is_covered()


def test_the_words_of_the_store_are_completed_with_their_counts(
    browser: Browser, server: RunningServer
) -> None:
    browser.open("about:blank")
    browser.open(server.origin + "trains/query/")
    shadow = "document.querySelector('#editor').shadowRoot"
    offered = f"[...{shadow}.querySelectorAll('.cm-tooltip-autocomplete li')].map(e => e.innerText)"

    def offers(text: str) -> list[str]:
        type_query(browser, text, run=False)
        time.sleep(0.3)
        return list(json.loads(browser.evaluate(f"JSON.stringify({offered})")))

    until(
        lambda: any("name" in each and "1 ×" in each for each in offers("SELECT * { ?s na")), "no"
    )
    # What cannot stand there is not offered.
    assert not any("SELECT" in each for each in offers("SELECT * { ?s se"))
    assert any("SELECT" in each for each in offers("SE"))


def test_queries_over_streams_are_registered_and_followed(
    browser: Browser, server: RunningServer
) -> None:
    browser.open("about:blank")
    browser.open(server.origin + "query/")
    until(lambda: not browser.evaluate("document.getElementById('continuous').hidden"), "none")
    type_query(browser, CQELS)
    until(lambda: state(browser) == "the server wants its token", "it takes it from anybody")
    browser.evaluate(f"document.getElementById('token').value = '{TOKEN}'")
    type_query(browser, CQELS)
    until(lambda: state(browser) == "waiting for results…", "not registered")
    push(server, "t1", 60)
    until(lambda: cells(browser) == [["…/t1", "60"]], "no row")
    push(server, "t2", 90)
    until(lambda: ["…/t2", "90"] in cells(browser), "no second row")
    view(browser, "plan")
    steps = "document.getElementById('steps').innerText"
    until(lambda: "2 rows now" in browser.evaluate(steps), "no live numbers")
    text = browser.evaluate(steps)
    assert "CQELS-QL" in text
    assert text.count("STREAM") >= 4
    view(browser, "table")
    # Queries are listed; one that is wrong is marked where it is.
    listed = "document.getElementById('registered').textContent"
    until(lambda: "CQELS-QL, running" in browser.evaluate(listed), "not listed")
    type_query(browser, "SELECT ?a { STREAM <s> [NOW] { ?a <p> } }")
    problem = "document.getElementById('problem').textContent"
    until(lambda: browser.evaluate(problem).startswith("line 1, column "), "no mark")
    type_query(browser, CSPARQL)

    def most() -> bool:
        push(server, "t3", 120)
        time.sleep(0.3)
        return cells(browser) == [["120"]]

    until(most, "no answer of C-SPARQL")
    view(browser, "plan")
    until(lambda: "group by" in browser.evaluate(steps), "no operators")
    view(browser, "table")
    until(lambda: "longest (C-SPARQL, running)" in browser.evaluate(listed), "not listed")
    type_query(browser, RSPQL)
    until(lambda: "late (RSP-QL, running)" in browser.evaluate(listed), "not registered")

    def late() -> bool:
        push(server, "t3", 120)
        time.sleep(0.3)
        return cells(browser) == [["…/t3", "120"]]

    until(late, "no answer of RSP-QL")
    view(browser, "plan")
    until(lambda: "RSP-QL" in browser.evaluate(steps), "no operators")
    assert "filter" in browser.evaluate(steps).lower()
    # What is copied follows it, and does what it says.
    copied = {}
    for name in ("curl", "python"):
        button = f"document.querySelector('[data-copy={name}]')"
        browser.evaluate(f"window.prompt = () => null; {button}.click()")
        copied[name] = browser.evaluate(f"{button}.dataset.copied")
    orders = [["bash", "-c", copied["curl"]], [sys.executable, "-c", copied["python"]]]
    for order in orders:
        with subprocess.Popen(
            order, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        ) as told:  # fmt: skip
            assert told.stdout is not None
            assert any(f"{EX}t3" in line for line in told.stdout)
            os.killpg(told.pid, signal.SIGKILL)
    for width in (360, 1200):
        browser.resize(width, 800, phone=width == 360)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(browser) == []
    browser.evaluate("document.querySelector('[aria-label=\"Stop late\"]').click()")
    until(lambda: state(browser).startswith("ended: "), "it goes on")
    until(lambda: "late (" not in browser.evaluate(listed), "it is there")
    ordinary = f"SELECT ?streams {{ ?s <{EX}name> ?streams }}"
    type_query(browser, ordinary)
    until(lambda: state(browser) == "answered once", "no answer")
    view(browser, "table")
    until(lambda: cells(browser) == [["<b>first</b>"]], "no row")
