"""nginx in front, as ``docs/nginx.conf`` says: live pages are cached as long as they hold."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
import requests

from annotations.labels import Expiration
from annotations.terms import Quad, Term
from experiments.free_port import free_port
from tests.browser.test_live_page import Serving
from tests.support.machines import replaced, running_nginx
from tests.support.peers import NGINX, PROJECT
from tests.support.running_server import TOKEN, RunningServer
from tests.tpf_server.web.test_deltas import named, text_of, timeless
from tpf_client import Client, Solutions
from tpf_client.fragments.responses import Limits
from tpf_client.planner.key_answers import BLOCK_BYTES

pytestmark = [pytest.mark.peers, NGINX.skip]

STATIC = "".join(f"<http://example.org/s{n}> <http://example.org/p> <x:o> .\n" for n in range(300))
DELAY = Term("<http://example.org/delay>")
LIVE_PAGE = "trains/plain?predicate=http%3A%2F%2Fexample.org%2Fdelay"
WORDS = "öffentliche/körperschaften/führen/gern/längere/adressen/für/größe"
STATIONS = [f"http://example.org/{WORDS}/{n}" for n in range(150)]
CONFIG = """
base_url = "http://127.0.0.1:{front}/"
change_followers = 8
[datasets.stations]
source = "stations.nt"
live = true
max_age = 60
[datasets.stops]
source = "stops.nt"
live = false
[datasets.brief]
source = "stops.nt"
live = false
max_age = 1
[datasets.quick]
live = true
max_age = 1
[datasets.trains]
live = true
max_age = 60
"""


def cache_status(response: requests.Response) -> str:
    field = response.headers["Cache-Status"]
    return "HIT" if field == "nginx; hit" else field.removeprefix("nginx; detail=")


class Front:
    """nginx with a cache, before a server.

    Args:
        url: what clients see.
        server: the server behind.
        log: what was asked of nginx: a status and a request line each.
    """

    def __init__(self, url: str, server: RunningServer, log: Path) -> None:
        self.url = url
        self.server = server
        self.log = log
        self.session = requests.Session()

    def get(self, path: str, **headers: str) -> requests.Response:
        named = {"Accept": "application/trig", "Accept-Encoding": "identity"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self.session.get(self.url + path, headers=named, timeout=60)

    def status(self, path: str, **headers: str) -> str:
        """How the cache answered."""
        return cache_status(self.get(path, **headers))


@contextmanager
def nginx(folder: Path, front: int, origin: int, query: int) -> Iterator[None]:
    """The configuration of the documentation, with other ports and folders."""
    site = replaced(
        (PROJECT / "docs/nginx.conf").read_text(),
        {
            "/var/cache/nginx/fragments": f"{folder}/cache",
            "127.0.0.1:3000": f"127.0.0.1:{origin}",
            "127.0.0.1:8890": f"127.0.0.1:{query}",
            "listen 80;": f"listen 127.0.0.1:{front};",
        },
    )
    with running_nginx(folder, site, front):
        yield
    assert "[error]" not in (folder / "error.log").read_text()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "stops.nt").write_text(STATIC)
    (folder / "stations.nt").write_text(
        "".join(
            f'<{station}> <http://example.org/kind> "{n % 3}" .\n'
            f'<{station}> <http://example.org/name> "station {n}" .\n'
            for n, station in enumerate(STATIONS)
        )
    )
    (folder / "all.rq").write_text("# All\nSELECT * { ?s ?p ?o }\n")
    port = free_port()
    with (
        RunningServer(folder, CONFIG.format(front=port)) as server,
        Serving(f"http://127.0.0.1:{port}/trains", folder / "all.rq") as query,
        nginx(folder, port, server.port, urlsplit(query.url).port or 0),
    ):
        yield Front(f"http://127.0.0.1:{port}/", server, folder / "access.log")


def delay(train: str, value: int) -> Quad:
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    return Quad(Term(f"<http://example.org/{train}>"), DELAY, Term(f'"{value}"^^<{integer}>'))


def until_fraction(fraction: float) -> None:
    """Wait for this part of a second."""
    now = time.time()
    time.sleep((fraction - now % 1) % 1)


def test_a_live_page_is_served_from_the_cache_as_long_as_it_holds_and_no_longer(
    front: Front,
) -> None:
    """Wherever in a second it begins and ends."""
    with ThreadPoolExecutor() as together:
        list(together.map(partial(_watch, front), (0.05, 0.5, 0.95), (2.0, 2.2, 2.6)))


def _watch(front: Front, fraction: float, length: float) -> None:
    until_fraction(fraction)
    train = f"t1-{fraction}"
    end = datetime.now(UTC) + timedelta(seconds=length)
    front.server.publish("trains", [delay(train, 60)], Expiration(end))
    page = f"{LIVE_PAGE}&subject=http%3A%2F%2Fexample.org%2F{train}"
    hits = stale = 0
    first = front.get(page)
    assert ('"60"' in first.text, cache_status(first)) == (True, "MISS")
    while True:
        asked = datetime.now(UTC)
        response = front.get(page)
        hits += cache_status(response) == "HIT"
        stale += asked >= end and '"60"' in response.text
        if asked > end + timedelta(seconds=1.2):
            break
        assert (
            '"60"' not in response.text or parsedate_to_datetime(response.headers["Expires"]) <= end
        )
        time.sleep(0.02)
    assert hits > 3
    assert stale == 0


def test_static_pages_stay_in_the_cache(front: Front) -> None:
    assert [front.status("stops?page=2") for _ in range(4)] == ["MISS", "HIT", "HIT", "HIT"]
    answer = front.get("stops?page=2")
    left = parsedate_to_datetime(answer.headers["Expires"]) - datetime.now(UTC)
    assert left > timedelta(minutes=50)
    assert answer.headers["Cache-Control"] == "public"
    assert "X-Accel-Expires" not in answer.headers


def test_formats_and_encodings_are_kept_apart(front: Front) -> None:
    page = "stops?page=3"
    kinds = ["application/trig", "application/n-quads", "text/html", "application/ld+json"]
    for _ in range(2):
        for kind in kinds:
            for encoding in ("identity", "gzip", "br"):
                answer = front.get(page, Accept=kind, Accept_Encoding=encoding)
                assert answer.headers["Content-Type"].startswith(kind)
                assert answer.headers.get("Content-Encoding", "identity") == encoding
                assert "s280" in answer.text
    assert front.status(page, Accept="text/html", Accept_Encoding="br") == "HIT"


def test_what_has_not_changed_is_revalidated_not_sent_again(front: Front) -> None:
    in_a_day = Expiration(datetime.now(UTC) + timedelta(days=1))
    front.server.publish("quick", [delay("t1", 1)], in_a_day)
    bodies = {}
    for dataset in ("brief", "quick"):
        answer = front.get(dataset)
        tag, bodies[dataset] = answer.headers["ETag"], answer.content
        again = front.get(dataset, If_None_Match=tag)
        assert (again.status_code, cache_status(again)) == (304, "HIT")
    time.sleep(2)  # max_age of these datasets is a second
    for dataset, body in bodies.items():
        answer = front.get(dataset)
        assert (cache_status(answer), answer.content) == ("REVALIDATED", body)


def test_a_new_value_is_shown_when_the_old_one_has_ended_and_deltas_are_kept(front: Front) -> None:
    page, dcz = f"{LIVE_PAGE}&object=%3Fdelta", "gzip, dcz"
    one = f"{LIVE_PAGE}&subject=http%3A%2F%2Fexample.org%2Fd0"

    def publish(value: int, seconds: float) -> datetime:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        front.server.publish("trains", [delay(f"d{n}", value) for n in range(60)], Expiration(end))
        return end

    texts = []
    for value in (60, 61):
        end = publish(value, 2.5)
        texts.append(front.get(page, Accept_Encoding=dcz).content)
        # The page that was fetched before says until when it holds, and that has passed.
        assert f'"{value}"' in front.get(one).text
        time.sleep(max(0, (end - datetime.now(UTC)).total_seconds()) + 0.01)
    publish(62, 3600)
    whole = front.get(page).content
    assert len({whole, *texts}) == 3
    seen = []
    for dictionary in (*texts, None, *texts):
        named_one = {} if dictionary is None else {"Available_Dictionary": named(dictionary)}
        answer = front.get(page, Accept_Encoding=dcz, **named_one)
        delta = answer.headers.get("Content-Encoding") == "dcz"
        assert delta == (dictionary is not None)
        text = text_of(answer, {sha256(each).digest(): each for each in texts})
        assert timeless(text) == timeless(whole)
        seen.append(cache_status(answer))
        # Who knows no deltas gets none, whatever is kept for others.
        for encoding in ("gzip", "identity"):
            plain = front.get(page, Accept_Encoding=encoding, **named_one)
            assert plain.headers.get("Content-Encoding") != "dcz"
            assert timeless(plain.content) == timeless(whole)
    assert seen == ["MISS", "MISS", "EXPIRED", "HIT", "HIT"]
    # A browser that asks each time shares what is kept, and may keep it as a dictionary.
    asks = {"Accept_Encoding": dcz, "Available_Dictionary": named(texts[0])}
    answer = front.get(page, Cache_Control="max-age=0", **asks)
    assert cache_status(answer) == "HIT"
    assert answer.headers["Cache-Control"] == "private, stale-while-revalidate=60"
    assert "Cache-Control" not in front.get(page, **asks).headers
    # What is kept for all says nothing that holds for one answer only.
    timed = front.get(page, Cache_Control="no-cache", **asks)
    assert (cache_status(timed), "Server-Timing" in timed.headers) == ("HIT", False)


def test_errors_and_publications_pass_through(front: Front) -> None:
    for _ in range(2):
        answer = front.get("stops?subject=_:b")
        assert (answer.status_code, answer.headers["Cache-Control"]) == (400, "no-store")
    label = {"expiration": "2999-01-01T00:00:00Z"}
    for token, status in ((TOKEN, 201), ("wrong", 401)):
        answer = front.session.post(
            f"{front.url}trains/facts",
            params=label,
            data=iter([b"<x:s> <x:p> ", b"<x:o> ."]),  # nginx tells the server the length
            headers={"Authorization": f"Bearer {token}", "Content-Type": "text/turtle"},
            timeout=10,
        )
        assert answer.status_code == status, answer.text
    assert "Cache-Status" not in answer.headers


def test_queries_send_blocks_of_long_iris(front: Front) -> None:
    """Whatever a client of ours asks for, nginx has no complaint about its URL or the answer."""
    end = Expiration(datetime.now(UTC) + timedelta(hours=1))
    quads = [Quad(Term(f"<{station}>"), DELAY, Term('"5"')) for station in STATIONS]
    front.server.publish("stations", quads, end)
    blocks = "VALUES ?s { " + " ".join(f"<{station}>" for station in STATIONS[:64]) + " }"
    wanted = {
        f"{blocks} ?s <http://example.org/name> ?n": 64,
        f"{blocks} ?s <http://example.org/name> ?n ; <http://example.org/delay> ?d": 64,
        '?s <http://example.org/kind> "1" ; <http://example.org/delay> ?d': 50,
    }
    before = len(front.log.read_text().splitlines())
    with Client(f"{front.url}stations", limits=Limits(retries=0)) as client:
        for pattern, number in wanted.items():
            rows = client.query(f"SELECT * {{ {pattern} }}")
            assert isinstance(rows, Solutions)
            assert len(list(rows)) == number
    asked = front.log.read_text().splitlines()[before:]
    assert {line.partition(" ")[0] for line in asked} == {"200"}
    assert max(len(line) for line in asked if "values=" in line) > 8000


def test_urls_as_long_as_blocks_can_be_pass(front: Front) -> None:
    """A block of a client has 5,000 bytes of UTF-8 at most, each of up to three characters."""
    for letter in ("/", "é", "駅"):
        names = letter * (BLOCK_BYTES // 2 // len(letter.encode()))
        rows = "".join(f"(<http://example.org/{n}{names}>)" for n in range(2))
        path = f"stations?values={quote(f'(?subject) {{{rows}}}', safe='')}"
        for headers in ({}, {"Accept_Datetime": "Tue, 24 Nov 2015 01:00:00 GMT"}):
            answer = front.get(path, **headers)
            # Once there are live facts, nothing is known of so long ago.
            assert answer.status_code in ({200, 404} if headers else {200}), answer.text
        assert len(path) > 3 * BLOCK_BYTES


@pytest.mark.parametrize("path", ["serve/", "query/"])
def test_the_page_is_there(front: Front, path: str) -> None:
    page = requests.get(front.url + path, timeout=60)
    assert "<title>Live query</title>" in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    # What the page loads is named relative to it.
    described = requests.get(f"{front.url}{path}page.json", timeout=60).json()
    assert f"{front.url}trains" in described["datasets"]
    (script,) = re.findall(r'src="(page-[0-9a-f]{16}\.js)"', page.text)
    loaded = requests.get(f"{front.url}{path}{script}", timeout=60)
    assert "immutable" in loaded.headers["Cache-Control"]
    assert loaded.headers["Content-Encoding"] in ("br", "gzip")


def test_an_answer_is_followed(front: Front) -> None:
    quad = Quad(Term("<http://example.org/stream>"), DELAY, Term('"0"'))
    front.server.publish("trains", [quad], Expiration(datetime.now(UTC) + timedelta(hours=1)))
    query = "SELECT ?d { <http://example.org/stream> <http://example.org/delay> ?d }"
    with requests.get(
        f"{front.url}serve/sparql",
        {"query": query},
        headers={"Accept": "text/event-stream"},
        stream=True,
        timeout=60,
    ) as answer:
        # It comes although the answer has no end.
        lines = answer.iter_lines(1, decode_unicode=True)
        data = next(line for line in lines if line.startswith("data: "))
    (row,) = json.loads(data.removeprefix("data: "))["added"]
    assert row["d"]["value"] == "0"


def test_changes_are_followed_by_more_than_one(front: Front) -> None:
    """Nobody waits for the lock of the cache, which holds one request of a URL for 5 seconds."""
    follow = {"headers": {"Accept": "text/event-stream"}, "stream": True, "timeout": 4}
    with (
        requests.get(f"{front.url}trains/changes", **follow) as first,  # type: ignore[arg-type]
        requests.get(f"{front.url}trains/changes", **follow) as second,  # type: ignore[arg-type]
    ):
        assert [each.status_code for each in (first, second)] == [200, 200]
        assert all(next(each.iter_lines(1)) for each in (first, second))
