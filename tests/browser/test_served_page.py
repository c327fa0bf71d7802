"""The page that the fragment server has itself: from a dataset to an answer, and over streams."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import requests

from annotations.labels import Expiration
from annotations.terms import Quad, iri, literal
from tests.browser.chromium import Browser
from tests.browser.test_live_page import cells, state, type_query, until, violations
from tests.support.peers import CHROMIUM
from tests.support.running_server import TOKEN, RunningServer

pytestmark = [pytest.mark.peers, CHROMIUM.skip]

EX = "http://example.org/"
CONFIG = 'query = true\ncontinuous = true\n[datasets.trains]\nsource = "trains.nt"\nlive = true\n'
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served-page")
    (folder / "trains.nt").write_text(f'<{EX}a> <{EX}name> "<b>first</b>" .\n')
    with RunningServer(folder, CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        browser.resize(1200, 800)
        yield browser


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
    browser.evaluate(f"{found}.click()")


def test_pages_of_a_dataset_lead_to_queries(browser: Browser, server: RunningServer) -> None:
    browser.open(server.origin + "trains")
    click(browser, "Query this")
    ready = "document.getElementById('datasets')?.textContent.includes('trains')"
    until(lambda: browser.evaluate(ready), "no page")
    editor = "document.querySelector('#editor').shadowRoot.textContent"
    until(lambda: "SELECT" in browser.evaluate(editor), "no query")
    assert state(browser) == "nothing asked yet"
    browser.open(server.origin + "trains")
    click(browser, "Watch this")
    until(lambda: browser.evaluate(ready), "no page")
    until(lambda: state(browser) == "up to date", "no answer")
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
    until(lambda: cells(browser) == [[f"{EX}t1", "60"]], "no row")
    push(server, "t2", 90)
    until(lambda: [f"{EX}t2", "90"] in cells(browser), "no second row")
    browser.evaluate("document.querySelector('#plan summary').click()")
    steps = "document.getElementById('steps').innerText"
    until(lambda: "2 rows now" in browser.evaluate(steps), "no live numbers")
    text = browser.evaluate(steps)
    assert "CQELS-QL" in text
    assert text.count("STREAM") >= 4
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
    browser.evaluate("document.getElementById('plan').open = true")
    until(lambda: "group by" in browser.evaluate(steps), "no operators")
    until(lambda: "longest (C-SPARQL, running)" in browser.evaluate(listed), "not listed")
    type_query(browser, RSPQL)
    until(lambda: "late (RSP-QL, running)" in browser.evaluate(listed), "not registered")

    def late() -> bool:
        push(server, "t3", 120)
        time.sleep(0.3)
        return cells(browser) == [[f"{EX}t3", "120"]]

    until(late, "no answer of RSP-QL")
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
    until(lambda: state(browser) == "up to date", "no answer")
    assert cells(browser) == [["<b>first</b>"]]
