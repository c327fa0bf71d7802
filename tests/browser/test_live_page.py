"""The page of the client's endpoint, in a real browser: a query is typed, its answer stays true."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from annotations.instants import format_instant
from annotations.labels import Expiration, Interval
from annotations.terms import Quad, iri, literal
from experiments.free_port import free_port
from tests.browser.chromium import Browser
from tests.support.page_modules import page_modules
from tests.support.peers import CHROMIUM, PROJECT
from tests.support.running_server import RunningServer

pytestmark = [pytest.mark.peers, CHROMIUM.skip]

EX = "http://example.org/"
CONFIG = '[datasets.trains]\nsource = "trains.nt"\nlive = true\nmax_age = 1\naccept_past = true\n'
QUERY = (
    f"PREFIX : <{EX}>\nSELECT ?train ?name ?delay WHERE {{ ?train :name ?name ; :delay ?delay }}\n"
    "ORDER BY ?name"
)
TRAINS = 60
TABS = 8
HOSTILE = "<img src=x onerror=\"window.pwned='cell'\">"
FOREVER = timedelta(hours=1)


def delay(server: RunningServer, train: int, value: str, holds: timedelta) -> None:
    quad = Quad(iri(f"{EX}train/{train}"), iri(EX + "delay"), literal(value))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + holds))


class Serving:
    """``tpf-query serve`` as a process; a context manager that ends it."""

    def __init__(self, dataset: str, example: Path, port: int = 0) -> None:
        command = [sys.executable, "-m", "tpf_client.commands", "tpf-query", "serve", dataset]
        self.process = subprocess.Popen(
            [*command, "--port", str(port), "--example", str(example), "--min-interval", "0.2"],
            stderr=subprocess.PIPE, text=True, cwd=PROJECT,
        )  # fmt: skip
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert "http://" in line, line
        self.url = line.split()[-1].removesuffix("sparql")

    def close(self) -> str:
        """End it; what it complained about."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return said

    def __enter__(self) -> "Serving":
        return self

    def __exit__(self, *problem: object) -> None:
        if self.process.poll() is None:
            self.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live-page")
    names = [f"Train {n:02}" for n in range(TRAINS)]
    lines = [f'<{EX}train/{n}> <{EX}name> "{name}" .\n' for n, name in enumerate(names)]
    lines.append(f'<{EX}train/x> <{EX}name> "Train 00b" .\n')
    lines.append(f'<{EX}train/0> <{EX}platform> "1" .\n')
    (folder / "trains.nt").write_text("".join(lines))
    (folder / "all.rq").write_text(f"# All delays\n{QUERY}\n")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with RunningServer(folder, CONFIG) as server:
        for n in range(TRAINS):
            delay(server, n, f"{n}", FOREVER)
        yield server


@pytest.fixture(scope="module")
def endpoint(server: RunningServer, folder: Path) -> Iterator[Serving]:
    with Serving(server.origin + "trains", folder / "all.rq") as endpoint:
        yield endpoint


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as browser:
        browser.resize(1200, 800)
        yield browser


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def state(browser: Browser) -> str:
    return str(browser.evaluate("document.getElementById('state').textContent"))


def type_query(browser: Browser, text: str, *, run: bool = True) -> None:
    """Type a query in place of what is in the editor, by keys as a person would, and run it."""
    browser.evaluate(
        "document.querySelector('#editor').shadowRoot.querySelector('.cm-content').focus()"
    )
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="a", code="KeyA",
                     windowsVirtualKeyCode=65, modifiers=2)  # fmt: skip
    # Chromium itself would style what it puts in place of a selection.
    browser.press("Backspace", 8)
    browser.type(text)
    for kind in ("keyDown", "keyUp") if run else ():
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                     windowsVirtualKeyCode=13, modifiers=2)  # fmt: skip


def open_page(browser: Browser, url: str, query: str | None = None) -> None:
    browser.open("about:blank")
    browser.open(url + ("" if query is None else f"#query={query}"))
    until(lambda: browser.evaluate("document.getElementById('examples').length > 1"), "no settings")


def watch(browser: Browser, url: str, query: str = QUERY, more: str = "") -> None:
    open_page(browser, url, quote(query) + more)
    until(lambda: state(browser) == "up to date", "no answer")


def cells(browser: Browser) -> list[list[str]]:
    """The text of the rows that are drawn."""
    script = """JSON.stringify([...document.querySelectorAll('tr.row')].map(
      (row) => [...row.cells].slice(0, -1).map((cell) => cell.textContent)))"""
    found: list[list[str]] = json.loads(browser.evaluate(script))
    return found


def violations(browser: Browser) -> list[Any]:
    """What axe-core finds on the page as it is, once nothing fades."""
    until(lambda: not browser.evaluate("document.querySelector('tr.gone')"), "a row stays")
    browser.evaluate((page_modules() / "axe-core/axe.min.js").read_text() + "; window.found = 0")
    browser.evaluate("axe.run().then((found) => { window.found = found })")
    until(lambda: browser.evaluate("!!window.found"), "axe does not end")
    found: list[Any] = json.loads(
        browser.evaluate(
            "JSON.stringify(window.found.violations.map("
            "(each) => [each.id, each.nodes.map((node) => node.html)]))"
        )
    )
    return found


def test_a_query_is_typed_and_exactly_the_cell_that_changes_changes(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    open_page(browser, endpoint.url)
    # The publisher's example stands there, and nothing was asked yet.
    assert state(browser) == "nothing asked yet"
    delay(server, 1, "before", FOREVER)
    # Of its own, so that no answer that another test has watched is met.
    type_query(browser, f"{QUERY} LIMIT 1001")
    until(lambda: state(browser) == "up to date", "no answer")
    before = cells(browser)
    assert before[:3] == [
        [f":train/{n}", f"Train {n:02}", v] for n, v in enumerate(["0", "before", "2"])
    ]
    assert browser.evaluate("document.getElementById('rows').textContent") == str(TRAINS)
    # Whatever the page does to its table from now on is written down.
    browser.evaluate(
        """window.seen = []; window.marked = new Set();
        new MutationObserver((all) => all.forEach(({ target }) => {
          for (const cell of document.querySelectorAll('td.changed'))
            window.marked.add(cell.textContent);
          const row = (target.nodeType === 1 ? target : target.parentElement).closest('tr.row');
          if (row && !target.closest?.('td.until')) window.seen.push(row.rowIndex);
        })).observe(document.querySelector('tbody'),
          { subtree: true, childList: true, characterData: true })"""
    )
    delay(server, 1, "after", FOREVER)
    until(lambda: cells(browser)[1][2] == "after", "the change does not come")
    assert browser.evaluate("[...window.marked].join()") == "after"
    after = cells(browser)
    assert [row for row, old in zip(after, before, strict=True) if row != old] == [
        [":train/1", "Train 01", "after"]
    ]
    assert set(browser.evaluate("window.seen.join()").split(",")) == {"3"}  # below head and spacer
    until(lambda: not browser.evaluate("document.querySelector('td.changed')"), "the mark stays")
    assert browser.problems() == []
    assert all(url.startswith(endpoint.url) for url in browser.requested())


def test_rows_come_and_go_at_their_places(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    # What nobody's label announces is seen at the next look.
    watch(browser, endpoint.url, QUERY, "&max-interval=1")
    # Marks fade: they are written down where they are made.
    browser.evaluate(
        """window.marks = new Set();
        new MutationObserver(() => {
          for (const row of document.querySelectorAll('tr.new, tr.gone')) {
            window.marks.add(`${row.rowIndex} ${row.className} ${row.cells[1].textContent}`);
          }
        }).observe(document.querySelector('tbody'),
          { subtree: true, childList: true, attributeFilter: ['class'] })"""
    )
    quad = Quad(iri(f"{EX}train/x"), iri(EX + "delay"), literal("7"))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + FOREVER))
    come = [":train/x", "Train 00b", "7"]
    until(lambda: cells(browser)[1] == come, "it does not come")
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(seconds=3)))
    until(lambda: cells(browser)[1][1] == "Train 01", "it does not fade")
    marks = json.loads(browser.evaluate("JSON.stringify([...window.marks])"))
    assert marks == ["3 row new Train 00b", "3 row gone Train 00b"]
    # Who wants no motion sees none.
    browser.evaluate("document.querySelector('tr.row').classList.add('gone')")
    fades = "getComputedStyle(document.querySelector('tr.gone td')).animationName"
    assert browser.evaluate(fades) == "leave"
    browser.resize(1200, 800, still=True)
    assert browser.evaluate(fades) == "none"
    moves = "getComputedStyle(document.querySelector('tr.row:not(.gone) td')).transitionDuration"
    assert browser.evaluate(moves) == "0s"


def test_rows_are_sorted_by_the_columns_that_one_presses(
    browser: Browser, endpoint: Serving
) -> None:
    values = "VALUES (?n ?name) { (10 'b') (9 'c') (100 'a') (UNDEF 'd') }"
    watch(browser, endpoint.url, f"SELECT ?n ?name {{ {values} ?s ?p 'Train 00' }}")
    assert browser.evaluate("document.querySelectorAll('tr.row').length") == 4

    def press(column: int) -> tuple[str, str | None]:
        browser.evaluate(f"document.querySelectorAll('thead button')[{column}].click()")
        told = f"document.querySelectorAll('th')[{column}].getAttribute('aria-sort')"
        return "".join(row[1] for row in cells(browser)), browser.evaluate(told)

    told = "".join(row[1] for row in cells(browser))
    assert press(0) == ("dcba", "ascending")  # numbers as numbers, what has none first
    assert press(0) == ("abcd", "descending")
    assert press(1) == ("abcd", "ascending")
    assert press(1) == ("dcba", "descending")
    assert press(1) == (told, None)


def test_a_row_that_is_late_stays_grey_for_its_grace(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    train = f"{EX}train/late"

    def publish(seconds: float) -> None:
        quad = Quad(iri(train), iri(EX + "platform"), literal("4"))
        server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(seconds=seconds)))

    query = f"SELECT ?platform {{ <{train}> <{EX}platform> ?platform }}"
    watch(browser, endpoint.url, query, "&max-interval=1&grace=3000")
    assert browser.evaluate("document.getElementById('grace').value") == "3000"

    def is_late() -> bool:
        if not cells(browser):
            # Nobody has looked in time: once more.
            publish(3)
        return state(browser) == "up to date, but 1 row is late"

    until(is_late, "it is not late")
    assert cells(browser) == [["4"]]
    assert browser.evaluate("document.querySelectorAll('tr.late').length") == 1
    publish(3600)
    until(lambda: state(browser) == "up to date", "it is not renewed")
    assert cells(browser) == [["4"]]
    assert browser.evaluate("document.querySelectorAll('tr.late, tr.new, tr.gone').length") == 0
    # What it took is told of this query and of all.
    sent, in_all, size = (
        int(browser.evaluate(f"document.getElementById('{name}').textContent").replace(",", ""))
        for name in ("requests", "all", "bytes")
    )
    assert 0 < sent <= in_all
    assert size > 0


def place(server: RunningServer, name: str, latitude: str, longitude: str) -> None:
    ends = Expiration(datetime.now(UTC) + FOREVER)
    for key, value in (("lat", latitude), ("long", longitude)):
        quad = Quad(iri(f"{EX}place/{name}"), iri(EX + key), literal(value))
        server.publish("trains", [quad], ends)


def test_what_has_coordinates_is_on_a_map_and_moves(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    place(server, "a", "50.8", "4.3")
    place(server, "b", "51.2", "4.4")
    query = f"PREFIX : <{EX}> SELECT ?place ?lat ?long {{ ?place :lat ?lat ; :long ?long }}"
    watch(browser, endpoint.url, query, "&max-interval=1")
    browser.evaluate("document.querySelector('#map summary').click()")
    script = """JSON.stringify(Object.fromEntries(
      [...document.querySelectorAll('#map circle')].map((each) =>
        [each.textContent.split('place/')[1].split('\\n')[0], each.style.transform])))"""

    def points() -> dict[str, str]:
        """Where the points are, by the names of their places."""
        return dict(json.loads(browser.evaluate(script)))

    land = "document.querySelector('#map .land').getAttribute('d')"
    outline = until(lambda: browser.evaluate(land), "no outlines")
    assert outline.startswith("M")
    before = until(lambda: {"a", "b"} <= points().keys() and points(), "no points")
    assert "NaN" not in "".join(before.values())
    assert browser.evaluate("document.querySelectorAll('#map line').length") > 4
    browser.evaluate("window.all = [...document.querySelectorAll('#map circle')]")
    place(server, "a", "50.9", "4.35")
    until(lambda: points()["a"] != before["a"], "it does not move")
    # It is the same point; the map stays where it is, and so does what has not moved.
    assert points()["b"] == before["b"]
    assert browser.evaluate("window.all.every((each) => each.isConnected)")
    wkt = "BIND('POINT(4.5 50.5)' AS ?where)"
    watch(browser, endpoint.url, f"SELECT ?where {{ {wkt} ?s ?p 'Train 00' }}")
    browser.evaluate("document.getElementById('map').open = true")
    until(
        lambda: browser.evaluate("document.querySelectorAll('#map circle').length") == 1, "no WKT"
    )
    watch(browser, endpoint.url, "SELECT ?n { ?s ?p ?n } LIMIT 3")
    assert browser.evaluate("document.getElementById('map').hidden")


def test_one_can_go_back_and_replay(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    now = datetime.now(UTC)
    times = [now - timedelta(hours=2), now - timedelta(hours=1), now + timedelta(hours=1)]
    for value, start, end in zip(["one", "two"], times, times[1:], strict=False):
        quad = Quad(iri(f"{EX}past"), iri(EX + "said"), literal(value))
        server.publish("trains", [quad], Interval(start, end))
    watch(browser, endpoint.url, f"SELECT ?said {{ <{EX}past> <{EX}said> ?said }}")
    assert cells(browser) == [["two"]]
    browser.evaluate("document.querySelector('#past summary').click()")
    browser.evaluate(
        """const set = (id, value, kind) => {
          const control = document.getElementById(id);
          control.value = value;
          control.dispatchEvent(new Event(kind));
        };
        set('span', 86400, 'change'); set('speed', 3600, 'change'); set('moment', 938, 'input')"""
    )
    # 62 thousandths of a day are an hour and a half.
    until(lambda: cells(browser)[:1] == [["one"]], "it does not go back")
    assert state(browser).startswith("as of ")
    browser.evaluate("document.getElementById('replay').click()")
    until(lambda: cells(browser) == [["two"]], "it does not go on")
    # At the present it is watched again.
    until(lambda: state(browser) == "up to date", "it does not come back")
    assert browser.evaluate("document.getElementById('when').textContent") == "now"
    assert browser.evaluate("document.getElementById('present').hidden")
    assert browser.problems() == []


def test_numbers_are_charted_over_time(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    place(server, "c", "10", "20")
    query = f"SELECT ?lat {{ <{EX}place/c> <{EX}lat> ?lat }}"
    watch(browser, endpoint.url, query, "&max-interval=1")
    browser.evaluate("document.querySelector('#chart summary').click()")
    told = "document.querySelector('#chart svg').getAttribute('aria-label')"
    until(lambda: browser.evaluate(told) == "lat over time: now 10 on average, from 10 to 10", "no")
    place(server, "c", "30", "20")
    until(lambda: browser.evaluate(told) == "lat over time: now 30 on average, from 30 to 30", "no")
    steps = browser.evaluate("document.querySelector('#chart polyline').getAttribute('points')")
    heights = {point.split(",")[1] for point in steps.split()}
    assert len(heights) == 2
    assert "NaN" not in steps


def test_what_the_dataset_has_is_completed(browser: Browser, endpoint: Serving) -> None:
    open_page(browser, endpoint.url)
    fetched = "performance.getEntriesByType('resource').some((e) => e.name.endsWith('words.json'))"
    until(lambda: browser.evaluate(fetched), "no words are asked for")
    shadow = "document.querySelector('#editor').shadowRoot"
    offered = f"[...{shadow}.querySelectorAll('.cm-completionLabel')].map((e) => e.textContent)"

    def offers(text: str, word: str) -> bool:
        """Type a text; whether a word is offered then, sooner or later."""
        type_query(browser, text, run=False)
        for _ in range(100):
            if word in json.loads(browser.evaluate(f"JSON.stringify({offered})")):
                return True
            time.sleep(0.02)
        # Words that came later than the list opened are not in it.
        return False

    def complete(text: str, word: str) -> str:
        """Type a text and complete it; what is offered first, as soon as it is the word."""
        until(lambda: offers(text, word), f"{word} is not offered")
        return str(browser.evaluate(f"{offered}[0]"))

    assert complete(f"PREFIX : <{EX}> SELECT * {{ ?s :pl", ":platform") == ":platform"
    assert complete("SELECT * { ?s platf", f"<{EX}platform>") == f"<{EX}platform>"
    assert complete("PREFIX foa", "foaf:") == "foaf:"
    # Keys are not heeded at once after the list opens, so that nobody completes by accident.
    browser.evaluate(
        f"{shadow}.querySelector('.cm-tooltip-autocomplete li')"
        ".dispatchEvent(new MouseEvent('mousedown', { bubbles: true }))"
    )
    text = f"{shadow}.querySelector('.cm-content').textContent"
    until(lambda: "foaf: <http://xmlns.com/foaf/0.1/>" in browser.evaluate(text), "not completed")


def test_the_plan_is_a_tree_with_numbers(browser: Browser, endpoint: Serving) -> None:
    watch(browser, endpoint.url)
    until(lambda: not browser.evaluate("document.getElementById('plan').hidden"), "no plan")
    browser.evaluate("document.querySelector('#plan summary').click()")
    tree = "document.getElementById('steps')"
    text = until(lambda: browser.evaluate(f"{tree}.innerText"), "it does not open")
    assert "labels travel with the pages" in text
    for pattern in ("?train :name ?name", "?train :delay ?delay"):
        assert pattern in text
    kinds = browser.evaluate(
        f"[...{tree}.querySelectorAll('.change')].map((each) => each.textContent).sort().join()"
    )
    assert kinds == "dynamic,static"
    # What is looked up is around what gives its keys, in what is made of both.
    path = (
        f"""[...{tree}.querySelectorAll('li')].filter((each) => !each.querySelector('li')).at(-1)"""
    )
    assert browser.evaluate(f"{path}.parentElement.closest('li').querySelector('.how') !== null")
    operators = f"[...{tree}.querySelectorAll('.operator')].map((each) => each.textContent).join()"
    assert browser.evaluate(operators) == "SELECT,ORDER BY"
    assert f"{TRAINS} rows now" in text
    assert "complete after" in text
    optional = f"PREFIX : <{EX}> SELECT * {{ ?train :delay ?d OPTIONAL {{ ?train :platform ?p }} }}"
    watch(browser, endpoint.url, optional)
    browser.evaluate("document.getElementById('plan').open = true")
    until(lambda: browser.evaluate(operators) == "SELECT,OPTIONAL", "no tree")


def test_a_mistake_is_marked_where_it_is(browser: Browser, endpoint: Serving) -> None:
    open_page(browser, endpoint.url)
    type_query(browser, "SELECT *\nWHERE { ?s ?p }")
    text = until(
        lambda: browser.evaluate("document.getElementById('problem').textContent"), "no error"
    )
    assert text.startswith("line 2, column 15: ")
    assert state(browser) == "this query was refused"
    shadow = "document.querySelector('#editor').shadowRoot"
    marked = f"{shadow}.querySelector('.cm-lintRange-error')"
    until(lambda: browser.evaluate(f"!!{marked}"), "no mark")
    assert browser.evaluate(f"{marked}.closest('.cm-line').textContent") == "WHERE { ?s ?p }"
    assert browser.evaluate(f"{marked}.textContent") == "}"
    type_query(browser, "ASK { ?s ?p ?o }")
    until(lambda: cells(browser) == [["true"]], "no answer")
    until(lambda: state(browser) == "up to date", "the state does not follow")
    browser.evaluate("document.getElementById('once').click()")
    until(lambda: state(browser) == "answered once", "no answer")
    assert cells(browser) == [["true"]]


def test_a_link_holds_the_query(browser: Browser, endpoint: Serving) -> None:
    watch(browser, endpoint.url, QUERY + " # mine")
    assert browser.evaluate("document.querySelector('#editor').shadowRoot.textContent").count(
        "# mine"
    )
    copied = {}
    browser.evaluate("document.getElementById('grace').value = 20")
    for name in ("link", "curl", "python", "command"):
        button = f"document.querySelector('[data-copy={name}]')"
        browser.evaluate(f"window.prompt = () => null; {button}.click()")
        copied[name] = browser.evaluate(f"{button}.dataset.copied")
    assert copied["link"].startswith(f"{endpoint.url}#query=PREFIX")
    asking = ["bash", "-c", f"exec {copied['curl'].replace('-N -G', '-sN -G --max-time 60')}"]
    with subprocess.Popen(asking, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        assert curl.stdout.readline().startswith("id: "), copied["curl"]
        curl.terminate()
    assert copied["link"].endswith("&grace=20")
    assert ", grace=20):" in copied["python"]
    assert copied["command"].startswith("tpf-query 'http://127.0.0.1:")
    assert " --grace 20 " in copied["command"]
    # They do what they say.
    bin_ = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    for order in ([sys.executable, "-c", copied["python"]], ["bash", "-c", copied["command"]]):
        with subprocess.Popen(
            order, stdout=subprocess.PIPE, text=True, env=environment, cwd=PROJECT,
            start_new_session=True,
        ) as told:  # fmt: skip
            assert told.stdout is not None
            assert "Train 00" in told.stdout.readline()
            os.killpg(told.pid, signal.SIGKILL)


def test_a_link_holds_how_the_answer_is_looked_at(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    watch(browser, endpoint.url, QUERY, "&filter=n+1&sort=-name")
    names = [row[1] for row in cells(browser)]
    assert names == [f"Train {n}" for n in range(19, 9, -1)]
    browser.evaluate("document.querySelector('thead button').click()")
    assert browser.evaluate("location.hash").endswith("&filter=n+1&sort=train")
    now = datetime.now(UTC)
    for value, start in (("once", now - timedelta(hours=2)), ("now", now - timedelta(hours=1))):
        quad = Quad(iri(f"{EX}linked"), iri(EX + "said"), literal(value))
        server.publish("trains", [quad], Interval(start, start + timedelta(hours=1.5)))
    then = format_instant(now - timedelta(minutes=90))
    query = quote(f"SELECT ?said {{ <{EX}linked> <{EX}said> ?said }}")
    open_page(browser, endpoint.url, f"{query}&at={quote(then)}")
    until(lambda: cells(browser) == [["once"]], "it does not go back")
    assert state(browser).startswith(f"as of {then[:16]}")
    assert "&at=" in browser.evaluate("location.hash")
    browser.evaluate("document.getElementById('present').click()")
    until(lambda: cells(browser)[-1:] == [["now"]], "it does not come back")
    assert "&at=" not in browser.evaluate("location.hash")


def test_nothing_foreign_makes_markup(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    hostile = [
        Quad(iri(f"{EX}hostile"), iri(EX + "says"), literal(HOSTILE)),
        Quad(iri(f"{EX}hostile"), iri(EX + "says"), iri("javascript:window.pwned=1")),
    ]
    for quad in hostile:
        server.publish("trains", [quad], Expiration(datetime.now(UTC) + FOREVER))
        query = f"SELECT ?o ('{HOSTILE.replace(chr(39), '')}' AS ?c) {{ ?s <{EX}says> ?o }}"
        watch(browser, endpoint.url, query)
        assert cells(browser)[0][0] in (HOSTILE, "javascript:window.pwned=1")
        assert browser.evaluate("document.querySelectorAll('table img, table a').length") == 0
    open_page(browser, endpoint.url)
    type_query(browser, f"SELECT {HOSTILE}")
    until(lambda: browser.evaluate("document.getElementById('problem').textContent"), "no error")
    assert browser.evaluate("document.querySelectorAll('main img').length") == 0
    assert browser.evaluate("window.pwned") is None


def test_texts_have_their_language_and_direction(browser: Browser, endpoint: Serving) -> None:
    query = """SELECT ?a ?b ?c { VALUES (?a ?b) { ("\u0634\u0631\u0642"@ar--rtl "Ost"@de) }
               BIND("plain" AS ?c) }"""
    open_page(browser, endpoint.url, quote(query))
    until(lambda: cells(browser), "no answer")
    texts = "[...document.querySelectorAll('tr.row span[lang]')]"
    found = browser.evaluate(f"JSON.stringify({texts}.map((each) => [each.lang, each.dir]))")
    assert json.loads(found) == [["ar", "rtl"], ["de", "auto"]]
    assert cells(browser) == [["\u0634\u0631\u0642", "Ost", "plain"]]


def test_rows_are_saved_for_spreadsheets_and_programs(
    browser: Browser, endpoint: Serving, tmp_path: Path
) -> None:
    texts = ["=1+1", "-5", "+1.5e3", "-5+A1", "@SUM(A1)", "\t=1", 'a, "b"\nc', "<b>", "", "1=1"]
    values = " ".join(json.dumps(each) for each in texts)
    query = f"SELECT ?text ?none {{ VALUES ?text {{ {values} <{EX}s> }} }}"
    open_page(browser, endpoint.url, quote(query))
    until(lambda: len(cells(browser)) == len(texts) + 1, f"no answer: {state(browser)}")
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for name in ("csv", "json"):
        browser.evaluate(f"document.querySelector('[data-save={name}]').click()")
        until((tmp_path / f"answer.{name}").is_file, f"no {name}")
    with (tmp_path / "answer.csv").open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["text", "none"]
    formulas = {"=1+1", "-5+A1", "@SUM(A1)", "\t=1"}
    safe = [f"'{each}" if each in formulas else each for each in texts]
    assert sorted(rows) == sorted([each, ""] for each in [*safe, f"{EX}s"])
    told = json.loads((tmp_path / "answer.json").read_text(encoding="utf-8"))
    assert told["head"] == {"vars": ["text", "none"]}
    terms = [{"type": "literal", "value": each} for each in texts]
    terms.append({"type": "uri", "value": f"{EX}s"})
    key = json.dumps
    assert sorted((row["text"] for row in told["results"]["bindings"]), key=key) == sorted(
        terms, key=key
    )
    assert all(row.keys() == {"text"} for row in told["results"]["bindings"])


def test_pause_and_go_on(browser: Browser, server: RunningServer, endpoint: Serving) -> None:
    watch(browser, endpoint.url, f"{QUERY} LIMIT 1002", "&max-interval=1")
    delay(server, 3, "early", FOREVER)
    until(lambda: cells(browser)[3][2] == "early", "it does not come")
    browser.evaluate("document.getElementById('pause').click()")
    assert state(browser) == "paused"
    delay(server, 3, "late", FOREVER)
    assert cells(browser)[3][2] == "early"
    time.sleep(0.1)
    browser.evaluate("document.getElementById('pause').click()")
    until(lambda: cells(browser)[3][2] == "late", "it does not go on")
    until(lambda: state(browser) == "up to date", "the state does not follow")


def is_first(browser: Browser, value: str) -> bool:
    """Whether the first row that is drawn has this value."""
    return cells(browser)[0] == [value]


def test_ten_thousand_rows_draw_what_is_in_sight(browser: Browser, endpoint: Serving) -> None:
    digits = "VALUES ?{0} {{ 0 1 2 3 4 5 6 7 8 9 }}"
    numbers = (
        "SELECT ((?a * 1000 + ?b * 100 + ?c * 10 + ?d) AS ?n) {{ {} ?s ?p 'Train 00' }} ORDER BY ?n"
    )
    watch(browser, endpoint.url, numbers.format(" ".join(digits.format(name) for name in "abcd")))
    assert browser.evaluate("document.getElementById('rows').textContent") == "10,000"
    assert (
        browser.evaluate("document.getElementById('table').getAttribute('aria-rowcount')")
        == "10001"
    )
    assert len(cells(browser)) < 60
    browser.evaluate("document.getElementById('scroll').scrollTop = 1e9")
    until(lambda: cells(browser)[-1] == ["9999"], "the last row is not drawn")
    assert len(cells(browser)) < 60
    browser.evaluate("document.getElementById('scroll').scrollTop = 0")
    for first in ("0", "9999"):
        browser.evaluate("document.querySelector('thead button').click()")
        until(partial(is_first, browser, first), "it is not sorted")
        assert len(cells(browser)) < 60


def test_the_endpoint_starts_anew_while_somebody_watches(
    browser: Browser, server: RunningServer, folder: Path
) -> None:
    port, dataset = free_port(), server.origin + "trains"
    delay(server, 5, "old", FOREVER)
    with Serving(dataset, folder / "all.rq", port) as endpoint:
        watch(browser, endpoint.url)
        browser.evaluate("window.sameTable = true")
        assert cells(browser)[5][2] == "old"
        # It ends at once although somebody follows, and complains about nothing.
        assert endpoint.close() == ""
    until(lambda: "trying again" in state(browser), "the page does not tell")
    assert cells(browser)[5][2] == "old"
    delay(server, 5, "new", FOREVER)
    with Serving(dataset, folder / "all.rq", port):
        until(lambda: state(browser) == "up to date" and cells(browser)[5][2] == "new", "not back")
    assert browser.evaluate("window.sameTable") is True


def test_the_fragment_server_is_away_while_somebody_watches(browser: Browser, folder: Path) -> None:
    port = free_port()
    with RunningServer(folder, CONFIG, port=port) as server:
        dataset = server.origin + "trains"
        delay(server, 1, "short", FOREVER)
        with Serving(dataset, folder / "all.rq") as endpoint:
            query = f"SELECT ?d {{ <{EX}train/1> <{EX}delay> ?d }}"
            watch(browser, endpoint.url, query, "&max-interval=1")
            server.close()
            until(lambda: state(browser).startswith("late: "), "the page does not tell")
            # What was known stays, grey.
            assert cells(browser) == [["short"]]
            assert browser.evaluate("document.querySelector('table.late') !== null")
            with RunningServer(folder, CONFIG, port=port) as again:
                delay(again, 1, "back", FOREVER)
                until(lambda: cells(browser)[-1:] == [["back"]], "it does not come back")
                until(lambda: state(browser) == "up to date", "the state does not follow")


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_and_what_axe_says(
    browser: Browser, server: RunningServer, endpoint: Serving, dark: bool
) -> None:
    for width, phone in ((1200, False), (360, True)):
        browser.resize(width, 740, phone=phone, dark=dark)
        place(server, "d", "50.5", "4.2")
        query = f"SELECT ?place ?lat ?long {{ ?place <{EX}lat> ?lat ; <{EX}long> ?long }}"
        watch(browser, endpoint.url, query)
        until(lambda: not browser.evaluate("document.getElementById('plan').hidden"), "no plan")
        browser.evaluate(
            "document.querySelectorAll('details:not(#share)').forEach(e => e.open = true)"
        )
        until(lambda: browser.evaluate("document.querySelector('#steps li') !== null"), "no steps")
        assert browser.evaluate("document.querySelectorAll('#map circle').length") > 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(browser) == []


def test_all_is_reached_by_keys(browser: Browser, endpoint: Serving) -> None:
    watch(browser, endpoint.url)
    browser.evaluate("document.activeElement?.blur()")
    reached = []
    for _ in range(20):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate("document.activeElement.id || document.activeElement.tagName")
        )
        if reached[-1] == "editor":
            # Tab stays usable in the editor: it leaves.
            browser.press("Escape", 27)
    assert {
        "examples",
        "editor",
        "run",
        "once",
        "interval",
        "grace",
        "pause",
        "filter",
        "scroll",
    } <= set(reached)


def _is_up_to_date(browser: Browser, script: str) -> bool:
    return bool(browser.evaluate(script) == "up to date")


def test_more_tabs_than_a_browser_has_connections_to_a_host(
    browser: Browser, endpoint: Serving
) -> None:
    watch(browser, endpoint.url)
    try:
        for number in range(TABS):
            url = f"{endpoint.url}#query={quote(f'{QUERY} LIMIT {900 + number}')}"
            opening = f"void (window.tabs ??= []).push(window.open({json.dumps(url)}))"
            browser.call("Runtime.evaluate", expression=opening, userGesture=True)
            shown = f"window.tabs[{number}].document.getElementById('state')?.textContent"
            until(partial(_is_up_to_date, browser, shown), f"tab {number} is blank")
    finally:
        browser.evaluate("window.tabs.forEach((each) => each.close())")
    browser.call("Page.bringToFront")
    until(lambda: state(browser) == "up to date", "the first tab does not come back")
