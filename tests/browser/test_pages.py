"""The pages for people, in a real browser."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
import requests

from annotations.labels import Expiration, Interval, Label
from annotations.terms import Quad, Term, iri, literal
from tests.browser.chromium import Browser
from tests.support.eventually import eventually
from tests.support.peers import CHROMIUM
from tests.support.running_server import TOKEN, RunningServer, n_quads

pytestmark = [pytest.mark.peers, CHROMIUM.skip]

EX = "http://example.org/"
ATTACKS = (
    "</script><img src=x onerror=\"window.pwned='literal'\">",
    "<script>window.pwned='script'</script>",
    '" onmouseover="window.pwned=1" x="',
    "' onfocus='window.pwned=1' autofocus='",
    "</td></table><h1>pwned</h1>",
    "{{ 7*7 }}{% raw %}",
    "&lt;b&gt;",
)
HOSTILE = [
    *(Quad(iri(EX + "attack"), iri(EX + "says"), literal(text)) for text in ATTACKS),
    *(
        Quad(iri(EX + "attack"), iri(EX + "says"), literal(text, datatype=EX + "t'onclick='x"))
        for text in ATTACKS
    ),
    Quad(iri(EX + "attack"), iri(EX + "links"), Term("<javascript:window.pwned='link'>")),
    Quad(iri(EX + "attack"), iri(EX + "links"), Term("<data:text/html,pwned>")),
    Quad(iri(EX + "attack"), iri(EX + "links"), iri(EX + "?x='onclick='window.pwned=1")),
    Quad(iri("javascript:alert(1)"), iri("javascript:alert(2)"), literal("x"), iri("javascript:3")),
]
STOPS = [
    *(Quad(iri(f"{EX}stop/{n}"), iri(EX + "name"), literal(f"Stop {n}", "en")) for n in range(120)),
    *(
        Quad(
            iri(f"{EX}stop/{n}"),
            iri("http://www.w3.org/1999/02/22-rdf-syntax-ns#type"),
            iri(EX + "vocabulary/a-rather-long-name-for-a-kind-of-thing#RailwayStationOrStop"),
        )
        for n in range(120)
    ),
    Quad(iri(EX + "stop/0"), iri(EX + "about"), literal("word " * 60 + "x" * 300)),
    Quad(iri(EX + "stop/1"), iri(EX + "sign"), literal("\u05d0!")),
]
CONFIG = """
continuous = true
open_queries = true
[datasets.hostile]
source = "hostile.nq"
live = false
title = "<b>Hostile</b> \\"data\\""
[datasets.stops]
source = "stops.nq"
live = false
title = "Railway stops"
page_size = 30
[datasets.trains]
live = true
title = "Departures"
event_stream = 3600
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "hostile.nq").write_text(n_quads(HOSTILE))
    (folder / "stops.nq").write_text(n_quads(STOPS))
    with RunningServer(folder, CONFIG) as running:
        now = datetime.now(UTC)
        labels: list[Label] = [
            Expiration(now + timedelta(seconds=100)),
            Expiration(now + timedelta(hours=3)),
            Interval(now - timedelta(hours=1), now + timedelta(days=4)),
        ]
        for number, label in enumerate(labels):
            train = iri(f"{EX}departure/{number}")
            rows = [
                Quad(train, iri(EX + "delay"), literal(str(60 * number))),
                Quad(train, iri(EX + "platform"), literal(f"{number}b")),
            ]
            running.publish("trains", rows, label)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain"}
        stream = f"{running.url}streams/s"
        requests.put(stream, headers=headers, timeout=60).raise_for_status()
        made = requests.post(
            f"{running.url}queries?name=all",
            f"SELECT * WHERE {{ STREAM <{stream}> [RANGE 1s] {{ ?s <{EX}p> '{ATTACKS[4]}' }} }}",
            headers=headers,
            timeout=60,
        )
        made.raise_for_status()
        yield running


PAGES = [
    "", "stops", "stops?page=2", "stops?subject=&predicate=&object=%22nothing%22", "trains",
    "trains/named-graph", "trains/rdf-1.2", "trains/ldes?page=0", "stops?subject=",
    "trains?subject=" + quote(EX + "departure/2"), "trains?at=2020-01-01T00:00", "stops?page=99",
    "stops?subject=_:b", "nothing", "api-doc", "streams", "queries", "queries/all", "hostile",
    "hostile?subject=" + quote(EX + "attack"),
]  # fmt: skip


# Where a word of the table of contents is broken.
_BROKEN = (
    "[...document.querySelectorAll('#content td a')].filter(e => /^ask/.test(e.textContent)"
    " && e.getClientRects().length > 1).length"
)
# The elements that reach beyond the screen.
_TOO_WIDE = """
[...document.querySelectorAll('body *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 300))
"""


def fits(browser: Browser, width: int) -> None:
    widest = browser.evaluate("document.documentElement.scrollWidth")
    assert widest <= width, browser.evaluate(_TOO_WIDE)


def is_accessible(browser: Browser) -> None:
    browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert browser.violations() == []


@pytest.mark.parametrize("path", PAGES)
def test_pages_ask_nobody_else_and_are_for_all_screens_and_people(
    server: RunningServer, browser: Browser, path: str
) -> None:
    browser.resize(1280, 800)
    browser.open(server.url + path)
    failed = "Failed to load resource: the server responded with a status of 40"
    assert [text for text in browser.problems() if not text.startswith(failed)] == []
    assert browser.requested() == [server.url + path]
    assert browser.evaluate("document.title")
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.evaluate("window.pwned") is None
    for width in (1280, 1100, 760):
        browser.resize(width, 800)
        fits(browser, width)
        assert browser.evaluate(_BROKEN) == 0
    is_accessible(browser)
    browser.resize(360, 800, phone=True)
    browser.open(server.url + path)
    fits(browser, 360)
    if path in PAGES[::2]:
        browser.resize(390, 800, dark=True, phone=True)
        browser.open(server.url + path)
        is_accessible(browser)


def test_the_form_works_by_keyboard(server: RunningServer, browser: Browser) -> None:
    browser.open(f"{server.url}stops")
    for _ in range(3):
        browser.press("Tab", 9)
        if browser.evaluate("document.activeElement.textContent") == "To the form":
            break
    browser.press("Enter", 13, "\r")
    focused = [browser.evaluate("document.activeElement.id")]
    for _ in range(2):
        browser.press("Tab", 9)
        focused.append(browser.evaluate("document.activeElement.id || ''"))
        if focused[-1] == "predicate":
            break
    assert focused[-2:] == ["subject", "predicate"]
    label = "document.querySelector('label[for=predicate]').textContent.trim()"
    assert "predicate" in browser.evaluate(label).lower()
    browser.type(EX + "about")
    browser.events.clear()
    browser.press("Enter", 13, "\r")
    browser.wait_for("Page.loadEventFired")
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == 1
    assert browser.evaluate("document.getElementById('predicate').value") == EX + "about"
    assert "1" in browser.evaluate("document.querySelector('[role=status]').textContent")
    # Everything that has the focus shows it.
    browser.press("Tab", 9)
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.evaluate(outline) != "none"


def test_pages_are_turned_by_links(server: RunningServer, browser: Browser) -> None:
    browser.open(f"{server.url}stops?subject=")
    seen = set()
    for _ in range(10):
        seen.update(
            browser.evaluate(
                "[...document.querySelectorAll('#matches tbody tr')].map(r => r.innerText)"
            )
        )
        following = browser.evaluate("document.querySelector('a[rel=next]')?.href")
        if following is None:
            break
        browser.events.clear()
        browser.leave("document.querySelector('a[rel=next]').click()")
        browser.wait_for("Page.loadEventFired")
    assert len(seen) == len(STOPS)


def soon_over(server: RunningServer) -> None:
    """Publish a fact that holds for 100 seconds from now."""
    quad = Quad(iri(f"{EX}departure/9"), iri(EX + "delay"), literal("0"))
    server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(seconds=100)))


def test_time_badges_count_down_and_their_bars_run_down(
    server: RunningServer, browser: Browser
) -> None:
    badge = "document.querySelector('td time')"

    def text() -> str:
        return str(browser.evaluate(f"{badge}.textContent"))

    def seconds() -> int:
        return int(text().rpartition("in ")[2].removesuffix(" s"))

    def bar() -> float:
        return float(browser.evaluate(f"{badge}.style.getPropertyValue('--left')"))

    soon_over(server)
    browser.open(f"{server.url}trains?subject={quote(EX + 'departure/9')}")
    assert "valid until" in text()
    first, whole = seconds(), bar()
    assert 0 < first <= 100
    assert 0 < whole <= 1
    eventually(lambda: seconds() < first and bar() < whole)  # it counts down
    browser.open(f"{server.url}trains?subject={quote(EX + 'departure/2')}")
    assert text().endswith("4 days")
    # Of an interval the start is known: an hour of four days and an hour is over.
    assert 0.97 < bar() < 0.991


def test_a_page_of_live_facts_renews_itself(server: RunningServer, browser: Browser) -> None:
    quad = Quad(iri(f"{EX}departure/10"), iri(EX + "delay"), literal("60"))
    end = datetime.now(UTC) + timedelta(seconds=4)
    server.publish("trains", [quad], Expiration(end))
    browser.open(f"{server.url}trains?subject={quote(EX + 'departure/10')}")
    cells = "[...document.querySelectorAll('#matches td')].map(cell => cell.innerText).join()"
    assert "60" in browser.evaluate(cells)
    browser.evaluate("window.same = true")
    later = Expiration(end + timedelta(days=1))
    server.publish("trains", [quad._replace(object=literal("120"))], later)
    eventually(lambda: "120" in browser.evaluate(cells))
    assert browser.evaluate("window.same")


def test_a_text_is_read_in_the_direction_of_its_letters(
    server: RunningServer, browser: Browser
) -> None:
    browser.open(server.url + "stops?subject=" + quote(EX + "stop/1"))
    left = browser.evaluate(
        "(() => { const text = [...document.querySelectorAll('td a')].find("
        "e => e.textContent === '\u05d0!').firstChild;"
        "return [0, 1].map(n => { const one = document.createRange();"
        "one.setStart(text, n); one.setEnd(text, n + 1);"
        "return one.getBoundingClientRect().left; }); })()"
    )
    assert left[0] > left[1]


def test_hostile_data_inject_nothing(server: RunningServer, browser: Browser) -> None:
    browser.open(f"{server.url}hostile?subject=")
    texts = browser.evaluate("[...document.querySelectorAll('td')].map(cell => cell.innerText)")
    for attack in ATTACKS:
        assert any(attack in text for text in texts), attack
    links = browser.evaluate("[...document.querySelectorAll('a')].map(link => link.href)")
    assert links
    assert all(link.startswith(("http://127.0.0.1:", EX)) for link in links), links
    odd = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
    assert browser.evaluate(f"{odd}.filter(a => a.name.startsWith('on')).length") == 0
    assert browser.evaluate("document.images.length") == 0
    # Elements that data could have made, beside the page's own script.
    assert browser.evaluate("document.scripts.length") == 1
    for link in ("javascript:window.pwned=1", "</title><script>window.pwned=2</script>"):
        browser.open(f"{server.url}hostile?subject={quote(link, safe='')}")
        browser.evaluate("document.querySelectorAll('main a').forEach(a => a.focus())")
        assert browser.evaluate("window.pwned") is None


ASK = """
fetch("/{path}", {{cache: "no-cache", headers: {{Accept: "application/trig"}}}}).then(
    async (answer) => [await answer.text(),
        performance.getEntriesByName(answer.url).at(-1).encodedBodySize])
"""


def test_the_dictionary_of_deltas_outlives_the_freshness_of_its_page(
    server: RunningServer, browser: Browser
) -> None:
    """A browser takes live pages as deltas, also when it may not show the old page any more."""
    late = EX + "late"
    browser.open(server.url + "healthz")
    sizes = []
    for value, gap in enumerate((0.0, 1.5, 0.0)):
        end = datetime.now(UTC) + timedelta(seconds=1.5)
        quads = [Quad(iri(f"{EX}{n}"), iri(late), literal(f"{value}")) for n in range(60)]
        server.publish("trains", quads, Expiration(end))
        text, size = browser.resolve(ASK.format(path=f"trains?predicate={quote(late, safe='')}"))
        # It is never the page of before.
        assert text.count(f'"{value}"') == 60
        sizes.append(size)
        time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()) + gap)
    assert max(sizes[1:]) < 300 < sizes[0]


def test_a_term_leads_to_what_is_said_elsewhere(server: RunningServer, browser: Browser) -> None:
    kind = EX + "vocabulary/a-rather-long-name-for-a-kind-of-thing#RailwayStationOrStop"
    browser.open(f"{server.url}stops?subject={quote(kind, safe='')}")
    links = browser.evaluate("[...document.querySelectorAll('.counts a')].map((each) => each.href)")
    assert [each for each in links if "/query/" not in each] == []
    (incoming,) = browser.evaluate(
        "[...document.querySelectorAll('a')].filter(a => a.text.includes('120')).map(a => a.href)"
    )
    browser.open(incoming)
    assert "of 120" in browser.evaluate("document.querySelector('[role=status]').textContent")
