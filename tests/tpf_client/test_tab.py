"""The queries of a page: the events that it is told."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from annotations.clock import SystemClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tests.support.random_sparql import QueryWriter, random_quads
from tests.support.shelf import Shelf
from tests.support.tab_questions import ENDS, answer_here, answer_of, message, same
from tpf_client.tab import Tab, read_message

DELAY = iri("http://example.org/train#delay")
WATCHED = f"SELECT ?d {{ ?s {DELAY} ?d }}"


class Page:
    """Starts queries and keeps what it is told."""

    def __init__(self) -> None:
        self.tab = Tab()
        self.events: list[dict[str, Any]] = []
        self._told = asyncio.Event()

    def start(self, text: str) -> None:
        self.tab.start(read_message(text), self._take)

    def _take(self, text: str) -> None:
        self.events.append(json.loads(text))
        self._told.set()

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for an event; those up to it are taken away."""
        seen = 0
        while True:
            for place in range(seen, len(self.events)):
                if wanted(self.events[place]):
                    found = self.events[place]
                    del self.events[: place + 1]
                    return found
            seen = len(self.events)
            self._told.clear()
            await asyncio.wait_for(self._told.wait(), 60)

    async def next(self, *names: str) -> dict[str, Any]:
        return await self.until(lambda each: each["event"] in names)


def _publish(server: LiveServer, delay: int, seconds: float) -> None:
    quad = Quad(iri("http://ex.org/0"), DELAY, literal(str(delay)))
    end = SystemClock().now() + timedelta(seconds=seconds)
    server.publish([Fact(quad, Expiration(end))])


async def _once(texts: list[str]) -> list[object]:
    page, found = Page(), []
    for text in texts:
        page.start(text)
        events: list[dict[str, Any]] = []
        while not events or events[-1]["event"] not in ENDS:
            events.append(await page.until(lambda _: True))
        found.append(answer_of(events))
    await page.tab.close()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_random_queries_have_the_answers_of_the_client(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    with Shelf(tmp_path) as shelf:
        url, _ = shelf.add(sorted(random_quads(random)), live=False, page_size=3)
        queries = [QueryWriter(random).query() for _ in range(24)]
        texts = [message(number, url, query) for number, query in enumerate(queries)]
        for query, found in zip(queries, asyncio.run(_once(texts)), strict=True):
            assert same(found, answer_here(url, query)), query


def test_a_followed_answer_is_told_again_and_again(tmp_path: Path) -> None:
    """Also after its server was away; and nothing when nobody wants it any more."""

    async def follow(url: str, server: LiveServer, shelf: Shelf) -> None:
        page = Page()
        _publish(server, 1, 1.5)
        page.start(message(7, url, WATCHED, "watch", **{"min-interval": "", "grace": "0"}))
        initial = (await page.next("initial"))["data"]
        assert [row["d"]["value"] for row in initial["added"]] == ["1"]
        assert initial["vars"] == ["d"]
        assert len(initial["valid"]) == 1
        status = (await page.next("up-to-date"))["data"]
        assert status["rows"] == 1
        assert status["requests"] <= status["endpoint"]["requests"]
        assert status["valid_until"] > status["at"]
        assert {"datasets", "steps", "tree", "seconds"} <= (await page.next("plan"))["data"].keys()
        shelf.away = True
        failed = (await page.next("error"))["data"]
        assert failed["next_look"] > failed["now"]
        _publish(server, 2, 60)
        shelf.away = False
        changed = await page.until(
            lambda each: (
                each["event"] in ("initial", "update")
                and any(row["d"]["value"] == "2" for row in each["data"]["added"])
            )
        )
        assert changed["id"] == 7
        # The plan tells what was done each time.
        await page.until(lambda each: each["event"] == "plan")
        page.tab.stop(7)
        page.events.clear()
        _publish(server, 3, 60)
        await asyncio.sleep(1.2)
        assert page.events == []
        await page.tab.close()

    with Shelf(tmp_path) as shelf:
        url, server = shelf.add(clock=SystemClock())
        asyncio.run(follow(url, server, shelf))


def test_a_first_evaluation_that_fails_is_tried_again(tmp_path: Path) -> None:
    async def follow(url: str, shelf: Shelf) -> list[str]:
        page = Page()
        shelf.away = True
        page.start(message(1, url, WATCHED, "watch"))
        failed = await page.next("error", "initial")
        shelf.away = False
        begun = await page.next("initial")
        await page.tab.close()
        return [failed["event"], begun["event"]]

    with Shelf(tmp_path) as shelf:
        url, server = shelf.add(clock=SystemClock())
        _publish(server, 1, 60)
        assert asyncio.run(follow(url, shelf)) == ["error", "initial"]


def test_a_wrong_query_is_refused_with_its_place(tmp_path: Path) -> None:
    async def ask(url: str) -> dict[str, Any]:
        page = Page()
        page.start(message(1, url, "SELECT *\n{ ?s ?p }", "watch"))
        told: dict[str, Any] = (await page.next("refused"))["data"]
        await page.tab.close()
        return told

    told = asyncio.run(ask("http://127.0.0.1:9/d"))
    assert (told["status"], told["line"], told["column"]) == (400, 2, 9)
    assert told["text"].startswith("line 2, column 9: ")
    assert told["text"].endswith("^")


def test_words_and_what_cannot_be_had(tmp_path: Path) -> None:
    async def ask(url: str) -> list[dict[str, Any]]:
        page = Page()
        page.start(message(1, url, "", "words"))
        words = await page.next("words", "failed")
        page.start(message(2, f"{url}-none", "ASK { ?s ?p ?o }"))
        missing = await page.next("done", "failed")
        await page.tab.close()
        return [words, missing]

    with Shelf(tmp_path) as shelf:
        url, _ = shelf.add([Quad(iri("urn:s"), DELAY, literal("1"))], live=False)
        words, missing = asyncio.run(ask(url))
    assert words["data"]["predicates"] == [DELAY[1:-1]]
    assert missing["event"] == "failed"
    assert "404" in missing["data"]["error"]


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"id": 1}', '{"id": 1, "sources": []}', '{"id": 1, "sources": [2]}',
     '{"id": 1, "sources": ["u"], "mode": "x"}', '{"id": 1, "sources": ["u"], "grace": "y"}', "x"],
)  # fmt: skip
def test_a_message_of_another_form(text: str) -> None:
    with pytest.raises(ValueError):
        read_message(text)


def test_what_a_query_reads_is_estimated_by_a_few_requests(tmp_path: Path) -> None:
    things = [Quad(iri(f"http://ex.org/{n}"), iri("http://ex.org/p"), literal(f"{n}"))
              for n in range(1000)]  # fmt: skip

    async def estimated(url: str) -> list[dict[str, Any]]:
        page = Page()
        queries = {
            "all": "SELECT * { ?s <http://ex.org/p> ?o }",
            "labelled": f"SELECT * {{ ?s <http://ex.org/p> ?o ; {DELAY} ?d }}",
            "keys": 'SELECT * { ?s <http://ex.org/p> "7" . ?s ?p ?o }',
            "wrong": "SELECT * { ?s ?p }",
        }
        for name, query in queries.items():
            page.start(message(name, url, query, "estimate"))
            page.start(message(f"{name} checked", url, query, "check"))
        ends = [await page.next("estimate", "refused", "checked") for _ in range(8)]
        requests = page.tab._work()["requests"]
        await page.tab.close()
        assert requests <= 8
        return ends

    with Shelf(tmp_path) as shelf:
        url, server = shelf.add(things, page_size=10)
        _publish(server, 1, 60)
        ends = {(each["id"], each["event"]): each["data"] for each in asyncio.run(estimated(url))}
    plan = ends["all", "estimate"].pop("plan")
    assert ends["all", "estimate"] == {"facts": 1000, "labelled": False}
    assert [line["operator"] for line in plan["tree"]] == ["SELECT", "match"]
    (step,) = plan["steps"]
    assert (step["expected"]["matches"], step["change"]) == (1000, "static")
    assert ends["labelled", "estimate"]["plan"]["steps"][0]["change"] == "dynamic"
    assert ends["labelled", "estimate"]["labelled"] is True
    assert ends["labelled", "estimate"]["facts"] <= 1001
    assert ends["keys", "estimate"]["facts"] <= 20
    assert ends["wrong", "refused"]["line"] == ends["wrong checked", "refused"]["line"] == 1
    assert ("all checked", "checked") in ends
