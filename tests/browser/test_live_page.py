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
TABS = 7
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
        "document.getElementById('query-box').open = true;"
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
    until(lambda: browser.evaluate("!!document.querySelector('#offers button')"), "no settings")


def watch(browser: Browser, url: str, query: str = QUERY, more: str = "") -> None:
    """Follow a link and wait for its answer, which nobody watches where nothing is labelled."""
    open_page(browser, url, quote(query) + more)
    until(lambda: state(browser) in ("up to date", "answered once"), "no answer")


def view(browser: Browser, name: str) -> None:
    """Turn to a view."""
    browser.evaluate(f"document.getElementById('tab-{name}').click()")


def text_of(browser: Browser, name: str) -> str:
    return str(browser.evaluate(f"document.getElementById('{name}').textContent"))


def set_value(browser: Browser, name: str, value: str, event: str = "input") -> None:
    browser.evaluate(
        f"((control) => {{ control.value = {json.dumps(value)};"
        f" control.dispatchEvent(new Event('{event}')); }})(document.getElementById('{name}'))"
    )


def cells(browser: Browser) -> list[list[str]]:
    """The text of the rows that are drawn."""
    script = """JSON.stringify([...document.querySelectorAll('tr.row')].map(
      (row) => [...row.cells].slice(0, -1).map((cell) => cell.textContent)))"""
    found: list[list[str]] = json.loads(browser.evaluate(script))
    return found


def violations(browser: Browser) -> Any:
    """What axe-core finds on the page as it is, once nothing fades."""
    until(lambda: not browser.evaluate("document.querySelector('tr.gone')"), "a row stays")
    return browser.violations()


def test_a_query_is_typed_and_exactly_the_cell_that_changes_changes(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    open_page(browser, endpoint.url)
    # The publisher's example stands there, and nothing was asked yet.
    assert state(browser) == "nothing asked yet"
    delay(server, 1, "before", FOREVER)
    # Of its own, so that no answer that another test has watched is met.
    type_query(browser, f"# Every delay\n{QUERY} LIMIT 1001")
    until(lambda: state(browser) == "up to date", "no answer")
    before = cells(browser)
    assert before[:3] == [
        [f":train/{n}", f"Train {n:02}", v] for n, v in enumerate(["0", "before", "2"])
    ]
    assert text_of(browser, "rows") == f"{TRAINS} rows"
    # The answer comes first: the editor is folded, the query's title is the heading.
    assert not browser.evaluate("document.getElementById('query-box').open")
    assert text_of(browser, "title") == "Every delay"
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
    assert text_of(browser, "ticker") == "1 changed"
    assert text_of(browser, "log").endswith("UTC 1 changed")
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
    for name, latitude, longitude in (("a", "50.8", "4.3"), ("b", "40.2", "-4.4")):
        place(server, name, latitude, longitude)
    for number in range(5):
        place(server, f"near{number}", f"60.{number:04}", "10")
    query = f"PREFIX : <{EX}> SELECT ?place ?lat ?long {{ ?place :lat ?lat ; :long ?long }}"
    watch(browser, endpoint.url, query, "&max-interval=1&view=map")
    dots = "[...document.querySelectorAll('#map path.point')]"

    def drawn() -> list[str]:
        return list(
            json.loads(browser.evaluate(f"JSON.stringify({dots}.map(e => e.getAttribute('d')))"))
        )

    before = until(lambda: len(drawn()) >= 2 and drawn(), "no dots")
    # What lies close together is a cluster that says how many they are.
    counts = "[...document.querySelectorAll('#map .cluster')].map((e) => e.textContent).join()"
    assert browser.evaluate(counts) == "5"
    until(lambda: browser.evaluate("!!document.querySelector('#map .land')"), "no outlines")
    assert browser.evaluate("document.getElementById('map').getAttribute('aria-label')").startswith(
        "Map of 7 of 7 rows"
    )
    place(server, "a", "48.8", "3.3")
    until(lambda: len(drawn()) == len(before) and drawn() != before, "it does not move")
    # What has not moved stays where it was, and so does the map; a dot opens its row.
    assert set(drawn()) & set(before)
    browser.evaluate(f"{dots}[0].dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))")
    until(lambda: browser.evaluate("document.getElementById('row').open"), "no row")
    assert "place/" in text_of(browser, "row-cells")
    wkt = "BIND('POINT(4.5 50.5)' AS ?where)"
    watch(browser, endpoint.url, f"SELECT ?where {{ {wkt} ?s ?p 'Train 00' }}", "&view=map")
    until(lambda: len(drawn()) == 1, "no WKT")
    assert browser.problems() == []
    watch(browser, endpoint.url, "SELECT ?n { ?s ?p ?n } LIMIT 3", "&view=map")
    assert browser.evaluate("document.getElementById('map').hidden")
    assert "No columns" in browser.evaluate("document.getElementById('panel-map').innerText")


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
    view(browser, "history")
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
    view(browser, "chart")
    told = "document.getElementById('chart').getAttribute('aria-label')"
    until(lambda: browser.evaluate(told) == "lat over time: now 10 on average, from 10 to 10", "no")
    # The clock that the server is believed to have goes back, the chart does not.
    browser.evaluate(
        """const [parse, write] = [Date.parse, CanvasRenderingContext2D.prototype.fillText];
        Date.parse = (text) => parse(text) - 60_000;
        window.written = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          written.push(text);
          write.call(this, text, ...rest);
        };"""
    )
    place(server, "c", "30", "20")
    until(lambda: browser.evaluate(told) == "lat over time: now 30 on average, from 30 to 30", "no")
    painted = """(() => { const canvas = document.querySelector('#chart canvas');
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return data.some((each) => each > 0); })()"""
    assert browser.evaluate(painted)
    assert {"10", "30"} <= set(browser.evaluate("written"))
    watch(browser, endpoint.url, "SELECT ?s { ?s ?p 'Train 00' }", "&view=chart")
    assert "No column" in browser.evaluate("document.getElementById('panel-chart').innerText")


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
    # A predicate is offered where one stands, and classes are not.
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
    # Of its own, so that it is not looked at again already.
    watch(browser, endpoint.url, f"{QUERY} # with its plan")
    view(browser, "plan")
    tree = "document.getElementById('steps')"
    until(lambda: browser.evaluate(f"{tree}.querySelector('li') !== null"), "it does not open")
    text = browser.evaluate(f"{tree}.innerText")
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
    watch(browser, endpoint.url, optional, "&view=plan")
    until(lambda: browser.evaluate(operators) == "SELECT,OPTIONAL", "no tree")
    # What is asked once has what was expected, both where that was looked for first and not.
    names = f"PREFIX : <{EX}> SELECT * {{ ?train :name ?name }} LIMIT 9"
    watch(browser, endpoint.url, names, "&view=plan")
    until(lambda: browser.evaluate(operators) == "LIMIT 9,SELECT", "no tree")
    assert f"expected {TRAINS + 1} matches" in browser.evaluate(f"{tree}.innerText")
    browser.evaluate("document.getElementById('once').click()")
    until(lambda: state(browser) == "answered once", "no answer")
    until(lambda: "As expected before" in browser.evaluate(f"{tree}.innerText"), "no plan")


def test_a_mistake_is_marked_where_it_is_while_one_types(
    browser: Browser, endpoint: Serving
) -> None:
    open_page(browser, endpoint.url)
    problem = "document.getElementById('problem').textContent"
    shadow = "document.querySelector('#editor').shadowRoot"
    marked = f"{shadow}.querySelector('.cm-lintRange-error')"
    type_query(browser, "SELECT *\nWHERE { ?s ?p }", run=False)
    until(lambda: browser.evaluate(problem).startswith("line 2, column 15: "), "no error")
    assert browser.evaluate(f"{marked}.closest('.cm-line').textContent") == "WHERE { ?s ?p }"
    assert browser.evaluate(f"{marked}.textContent") == "}"
    assert state(browser) == "nothing asked yet"
    type_query(browser, "SELECT *\nWHERE { ?s ?p ?o }", run=False)
    until(lambda: not browser.evaluate(problem) and not browser.evaluate(f"!!{marked}"), "it stays")
    type_query(browser, "SELECT *\nWHERE { ?s }")
    until(lambda: state(browser) == "this query was refused", "it is not refused")
    until(lambda: browser.evaluate(f"!!{marked}"), "no mark")
    assert browser.evaluate("document.getElementById('query-box').open")
    type_query(browser, "ASK { ?s ?p ?o }")
    until(lambda: cells(browser) == [["true"]], "no answer")
    browser.evaluate("document.getElementById('watch').click()")
    until(lambda: state(browser) == "up to date", "it is not watched")
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
    for name in ("link", "embed", "curl", "python", "command"):
        button = f"document.querySelector('[data-copy={name}]')"
        browser.evaluate(f"window.prompt = () => null; {button}.click()")
        copied[name] = browser.evaluate(f"{button}.dataset.copied")
    assert copied["link"].startswith(f"{endpoint.url}#query=PREFIX")
    assert copied["embed"].startswith(f'<iframe src="{endpoint.url}?embed#query=PREFIX')
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


def test_queries_are_kept_and_back_walks_through_them(browser: Browser, endpoint: Serving) -> None:
    titles = ["First", "Second"]
    open_page(browser, endpoint.url)
    for number, title in enumerate(titles):
        type_query(browser, f"# {title}\n{QUERY} LIMIT {number + 1}")
        until(lambda: text_of(browser, "rows").startswith(f"{number + 1} row"), "no answer")  # noqa: B023
        assert text_of(browser, "title") == title
    browser.evaluate("history.back()")
    until(lambda: text_of(browser, "rows") == "1 row", "it does not go back")
    assert text_of(browser, "title") == "First"
    assert browser.evaluate("document.title").startswith("First")
    browser.evaluate("history.forward()")
    until(lambda: text_of(browser, "rows") == "2 rows", "it does not go forward")
    # They are there on another visit.
    open_page(browser, endpoint.url)
    browser.evaluate("document.getElementById('queries-open').click()")
    kept = "[...document.querySelectorAll('#kept li')].map((e) => e.firstChild.textContent)"
    assert json.loads(browser.evaluate(f"JSON.stringify({kept}.slice(0, 2))")) == [
        "Second",
        "First",
    ]
    browser.evaluate("document.querySelectorAll('#kept button')[3].click()")
    assert "First" not in json.loads(browser.evaluate(f"JSON.stringify({kept})"))
    browser.evaluate("document.querySelector('#kept button').click()")
    until(lambda: text_of(browser, "rows") == "2 rows", "it is not asked")


def test_one_is_told_when_a_row_meets_a_condition(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    query = f"SELECT ?train ?delay {{ ?train <{EX}name> 'Train 08' ; <{EX}delay> ?delay }}"
    delay(server, 8, "7", FOREVER)
    watch(browser, endpoint.url, query, "&max-interval=1")

    def tell_when(text: str) -> None:
        set_value(browser, "alert", text)
        browser.evaluate("document.getElementById('alert-form').requestSubmit()")

    tell_when("?delay is long")
    assert text_of(browser, "alert-problem") == "not a condition like ?delay > 600: ?delay is long"
    tell_when("?late > 600")
    assert text_of(browser, "alert-problem") == "this answer has no ?late"
    tell_when("?delay > 600")
    assert text_of(browser, "alert-problem") == ""
    assert "&alert=%3Fdelay+%3E+600" in browser.evaluate("location.hash")
    hidden = "document.getElementById('alarm').hidden"
    assert browser.evaluate(hidden)
    browser.evaluate(
        """window.sent = []; window.Notification = class {
          static permission = 'granted';
          constructor(title, { body }) { sent.push(`${title}: ${body}`); }
        }"""
    )
    delay(server, 8, "601", FOREVER)
    until(lambda: not browser.evaluate(hidden), "it is not told")
    told = browser.evaluate("document.querySelector('#alarm p').textContent")
    assert told == "?delay > 600\n…/train/8 · 601"
    # Outside the page, too, where the browser may.
    (sent,) = json.loads(browser.evaluate("JSON.stringify(sent)"))
    assert sent.endswith(f": {told}")
    assert browser.evaluate("document.title").startswith("(!)")
    # A row that goes on to meet it is no news.
    browser.evaluate("document.querySelector('#alarm button').click()")
    delay(server, 8, "602", FOREVER)
    until(lambda: cells(browser)[0][1] == "602", "it does not change")
    assert browser.evaluate(f"{hidden} && sent.length === 1")


def test_what_is_large_is_watched_by_who_wants_it_and_nothing_says_why(
    browser: Browser, server: RunningServer, endpoint: Serving
) -> None:
    open_page(browser, endpoint.url)
    browser.evaluate(
        """window.fetched = window.fetch; window.fetch = (address, options) =>
          String(address).startsWith('estimate?') && !String(address).includes('syntax=true')
            ? Promise.resolve(new Response('{"facts": 408000, "labelled": true}'))
            : window.fetched(address, options)"""
    )
    type_query(browser, QUERY)
    until(lambda: state(browser) == "not asked yet", "it is asked")
    asked = browser.evaluate("document.querySelector('#estimate p').textContent")
    assert asked == "This reads about 408,000 facts: watch anyway?"
    browser.evaluate("document.getElementById('anyway').click()")
    until(lambda: state(browser) == "up to date", "it is not watched")
    assert browser.evaluate("document.getElementById('estimate').hidden")
    assert len(cells(browser)) > 10
    quad = Quad(iri(f"{EX}brief"), iri(EX + "brief"), literal("x"))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + FOREVER))
    watch(browser, endpoint.url, f"SELECT ?x {{ ?s <{EX}brief> ?x }}", "&max-interval=1")
    until(lambda: cells(browser) == [["x"]], "no row")
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(seconds=1)))
    until(
        lambda: text_of(browser, "why-empty").startswith("Nothing matches now; last match "), "no"
    )
    assert state(browser) == "up to date"


def test_texts_have_their_language_and_direction(browser: Browser, endpoint: Serving) -> None:
    query = """SELECT ?a ?b ?c { VALUES (?a ?b) { ("\u0634\u0631\u0642"@ar--rtl "Ost"@de) }
               BIND("plain" AS ?c) }"""
    inside = f"""SELECT (TRIPLE(<{EX}s>, <{EX}p>, ?o) AS ?t)
                 {{ VALUES ?o {{ "Ost"@de--ltr "a b" "" "1"^^<{EX}d> 2 <{EX}o> }} }}"""
    open_page(browser, endpoint.url, quote(inside))
    until(lambda: cells(browser), "no answer")
    # One sees where a text in a triple term begins and ends, and what it is.
    parts = ['"Ost"@de--ltr', '"a b"', '""', '"1"^^…/d', "2", "…/o"]
    assert cells(browser) == [[f"<<( …/s …/p {each} )>>"] for each in parts]
    open_page(browser, endpoint.url, quote(query))
    until(lambda: cells(browser), "no answer")
    texts = "[...document.querySelectorAll('tr.row span[lang]')]"
    found = browser.evaluate(f"JSON.stringify({texts}.map((each) => [each.lang, each.dir]))")
    assert json.loads(found) == [["ar", "rtl"], ["de", "auto"]]
    plain = "document.querySelector('td:nth-child(3) span').dir"
    assert browser.evaluate(plain) == "auto"
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


def test_stop_and_go_on(browser: Browser, server: RunningServer, endpoint: Serving) -> None:
    watch(browser, endpoint.url, f"{QUERY} LIMIT 1002", "&max-interval=1")
    delay(server, 3, "early", FOREVER)
    until(lambda: cells(browser)[3][2] == "early", "it does not come")
    browser.evaluate("document.getElementById('stop').click()")
    until(lambda: state(browser) == "stopped", "it goes on")
    delay(server, 3, "late", FOREVER)
    assert cells(browser)[3][2] == "early"
    assert text_of(browser, "stop") == "Go on"
    browser.evaluate("document.getElementById('stop').click()")
    until(lambda: cells(browser)[3][2] == "late", "it does not go on")
    until(lambda: state(browser) == "up to date", "the state does not follow")


def is_first(browser: Browser, value: str) -> bool:
    """Whether the first row that is drawn has this value."""
    return cells(browser)[0] == [value]


def test_ten_thousand_rows_come_in_sight_as_they_are_read(
    browser: Browser, endpoint: Serving
) -> None:
    digits = "VALUES ?{0} {{ 0 1 2 3 4 5 6 7 8 9 }}"
    every = " ".join(digits.format(name) for name in "abcd")
    numbers = f"SELECT ((?a * 1000 + ?b * 100 + ?c * 10 + ?d) AS ?n) {{ {every} ?s ?p 'Train 00' }}"
    # Nothing is labelled here, so it is asked once; each state of its count is written down.
    open_page(browser, endpoint.url)
    browser.evaluate(
        """window.counts = []; new MutationObserver(() =>
          window.counts.push(document.getElementById('rows').textContent)
        ).observe(document.getElementById('rows'), { childList: true, subtree: true })"""
    )
    type_query(browser, numbers)
    until(lambda: state(browser) == "answered once", "no answer")
    assert text_of(browser, "rows") == "10,000 rows"
    assert browser.evaluate("window.counts.length") > 2
    table = "document.getElementById('table')"
    assert browser.evaluate(f"{table}.getAttribute('aria-rowcount')") == "10001"
    assert len(cells(browser)) < 60
    browser.evaluate("document.getElementById('scroll').scrollTop = 1e9")
    until(lambda: len(cells(browser)) < 60 and cells(browser)[-1:] != [], "nothing is drawn")
    browser.evaluate("document.getElementById('scroll').scrollTop = 0")
    for first in ("0", "9999"):
        browser.evaluate("document.querySelector('thead button').click()")
        until(partial(is_first, browser, first), "it is not sorted")
        assert len(cells(browser)) < 60
    set_value(browser, "filter", "99")
    until(lambda: text_of(browser, "rows") == "280 of 10,000 rows", text_of(browser, "rows"))
    set_value(browser, "filter", "none")
    until(lambda: "there are 10,000" in text_of(browser, "why-empty"), "it does not say why")
    # Stop keeps what has come.
    more = f"SELECT * {{ {every} {digits.format('e')} ?s ?p 'Train 00' }}"
    type_query(browser, more)
    until(lambda: "rows so far" in state(browser), "no rows come")
    browser.evaluate("document.getElementById('stop').click()")
    until(lambda: state(browser) == "stopped", "it does not stop")
    kept = text_of(browser, "rows")
    time.sleep(0.5)
    assert text_of(browser, "rows") == kept
    assert not kept.endswith("100,000 rows")


def test_endpoint_and_fragment_server_are_away_while_somebody_watches(
    browser: Browser, folder: Path
) -> None:
    here, there = free_port(), free_port()
    query = f"SELECT ?d {{ <{EX}train/1> <{EX}delay> ?d }}"
    with RunningServer(folder, CONFIG, port=there) as server:
        dataset = server.origin + "trains"
        delay(server, 1, "short", FOREVER)
        with Serving(dataset, folder / "all.rq", here) as endpoint:
            watch(browser, endpoint.url, query, "&max-interval=1")
            browser.evaluate("window.sameTable = true")
            # It ends at once although somebody follows, and complains about nothing.
            assert endpoint.close() == ""
        until(lambda: "trying again" in state(browser), "the page does not tell")
        assert cells(browser) == [["short"]]
        delay(server, 1, "long", FOREVER)
        with Serving(dataset, folder / "all.rq", here):
            until(lambda: cells(browser)[-1:] == [["long"]], "not back")
            until(lambda: state(browser) == "up to date", "the state does not follow")
            server.close()
            until(lambda: state(browser).startswith("late: "), "the page does not tell")
            assert not browser.evaluate("document.getElementById('try').hidden")
            # What was known stays, grey.
            until(lambda: cells(browser) == [["long"]], "it goes")
            assert browser.evaluate("document.querySelector('table.late') !== null")
            with RunningServer(folder, CONFIG, port=there) as again:
                delay(again, 1, "back", FOREVER)
                until(lambda: cells(browser)[-1:] == [["back"]], "it does not come back")
                until(lambda: state(browser) == "up to date", "the state does not follow")
    assert browser.evaluate("window.sameTable") is True


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_a_frame_and_what_axe_says(
    browser: Browser, server: RunningServer, endpoint: Serving, dark: bool
) -> None:
    place(server, "d", "50.5", "4.2")
    query = f"SELECT ?place ?lat ?long {{ ?place <{EX}lat> ?lat ; <{EX}long> ?long }}"
    for width in (390,) if dark else (1280, 390):
        browser.resize(width, 800, phone=width < 400, dark=dark)
        watch(browser, endpoint.url, query)
        until(lambda: cells(browser), "no rows")
        controls = "getComputedStyle(document.getElementById('controls')).display"
        assert (browser.evaluate(controls) == "none") == (width < 400)
        for name in ("table", "chart", "map", "plan", "history"):
            view(browser, name)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            # What its colours are shows in one view of the dark page, and of the narrow one.
            if width > 400 or name == "map":
                assert violations(browser) == [], name
        browser.evaluate("document.getElementById('sheet-open').click()")
        browser.evaluate("document.getElementById('query-box').open = true")
        assert browser.evaluate(controls) == "flex"
        assert violations(browser) == []
        # The board alone, which leads to the whole page.
        watch(browser, f"{endpoint.url}?embed", query)
        until(lambda: cells(browser), "no rows")
        header = "getComputedStyle(document.querySelector('header')).display"
        assert (browser.evaluate(header), browser.evaluate(controls)) == ("none", "none")
        whole = browser.evaluate("document.getElementById('whole').href")
        assert whole.startswith(f"{endpoint.url}#query=")
        assert violations(browser) == []
        browser.evaluate("document.querySelector('tr.row').click()")
        assert violations(browser) == []


def test_all_rows_are_reached_on_a_phone(browser: Browser, endpoint: Serving) -> None:
    browser.resize(390, 800, phone=True)
    watch(browser, endpoint.url)
    down = "document.getElementById('scroll').scrollTop = 1e6"
    last = f"Train {TRAINS - 1}"
    until(lambda: browser.evaluate(down) and cells(browser)[-1][1] == last, "out of reach", 20)


def test_all_is_reached_by_keys(browser: Browser, endpoint: Serving) -> None:
    watch(browser, endpoint.url)
    browser.evaluate("document.getElementById('query-box').open = true")
    browser.evaluate("document.getElementById('brand').focus()")
    reached = []
    for _ in range(30):
        browser.press("Tab", 9)
        reached.append(
            browser.evaluate("document.activeElement.id || document.activeElement.tagName")
        )
        if reached[-1] == "editor":
            # Tab stays usable in the editor: it leaves.
            browser.press("Escape", 27)
    controls = {"stop", "editor", "run", "once", "interval", "grace", "filter", "alert"}
    assert {*controls, "queries-open", "tab-table", "scroll"} <= set(reached)


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
