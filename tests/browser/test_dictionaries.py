"""A browser takes live pages as deltas, also when it may not show the page that it has any more."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from annotations.labels import Expiration
from annotations.terms import Quad, iri, literal
from tests.browser.chromium import Browser
from tests.browser.test_tab_page import evaluated
from tests.support.peers import CHROMIUM
from tests.support.running_server import RunningServer

EX = "http://example.org/"
PATH = f"trains?predicate={quote(EX + 'delay', safe='')}"
ASK = """
fetch("/{path}", {{cache: "no-cache", headers: {{Accept: "application/trig"}}}}).then(
    async (answer) => [await answer.text(),
        performance.getEntriesByType("resource").at(-1).encodedBodySize])
"""


@CHROMIUM.needed
def test_the_dictionary_outlives_the_freshness_of_its_page(tmp_path: Path) -> None:
    with (
        RunningServer(tmp_path, "[datasets.trains]\nlive = true\n") as server,
        Browser(tmp_path) as browser,
    ):
        browser.open(server.origin + "healthz")
        sizes = []
        for value, gap in enumerate((0.0, 1.5, 0.0)):
            end = datetime.now(UTC) + timedelta(seconds=1.5)
            quads = [
                Quad(iri(f"{EX}{n}"), iri(EX + "delay"), literal(f"{value}")) for n in range(60)
            ]
            server.publish("trains", quads, Expiration(end))
            answer = evaluated(browser, ASK.format(path=PATH))
            assert isinstance(answer, list)
            # It is never the page of before.
            assert answer[0].count(f'"{value}"') == 60
            sizes.append(answer[1])
            time.sleep(max(0.0, (end - datetime.now(UTC)).total_seconds()) + gap)
        assert max(sizes[1:]) < 300 < sizes[0]
