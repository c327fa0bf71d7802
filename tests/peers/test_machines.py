"""Several servers behind nginx, as ``docs/operations.md`` says, while each is replaced in turn.

`TPF_MACHINE_ROUNDS=8 ./run test tests/peers/test_machines.py` replaces each eight times
under load; without it only the configuration and the script are checked.
"""

import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from annotations.instants import format_instant
from annotations.labels import Fact, Interval
from annotations.terms import Quad, Term
from experiments.free_port import free_port
from tests.loaders.facts_server import listening
from tests.support.machines import (
    Machine,
    Machines,
    checked_nginx,
    documented_site,
    serving,
)
from tests.support.oracle import Publications
from tests.support.peers import NGINX, POSTGRES, PROJECT
from tests.support.running_server import TOKEN, n_quads
from tpf_client import Client
from tpf_client.fragments.responses import Limits

ROUNDS = int(os.environ.get("TPF_MACHINE_ROUNDS", "0"))
TRAINS = 7
LENGTH = timedelta(seconds=1)
AHEAD = timedelta(seconds=6)
"""How long before it holds a value is published."""
KEPT = timedelta(seconds=2)
"""How long a page may be kept that does not show it yet: `max_age`, and what clocks round off."""
DELAY = Term("<http://example.org/delay>")
LINE = Term("<http://example.org/line>")
QUERY = "SELECT * { ?t <http://example.org/delay> ?d . ?t <http://example.org/line> ?l }"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
WATCHED = """SELECT ?x
WHERE { STREAM <http://example.org/badges> [NOW] { ?x <http://example.org/at> ?y } }"""


def train(number: int) -> Term:
    return Term(f"<http://example.org/train{number}>")


STATIC = [Quad(train(n), LINE, Term(f'"{n % 3}"')) for n in range(TRAINS)]


def static_lines(version: str) -> str:
    store = "<http://example.org/store> <http://example.org/version>"
    return f'{n_quads(STATIC)}{store} "{version}" .\n'


class Load:
    """Clients and a publisher, each in a thread, until they are told to stop.

    Attributes:
        problems: requests that failed, and wrong answers.
        done: how many things of each kind went well.
    """

    def __init__(self, machines: Machines) -> None:
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.versions: list[str] = []
        self._machines = machines
        self._url = machines.url
        self._stop = threading.Event()
        self._known = Publications(STATIC)
        self.pushed: list[str] = []
        self.results: list[str] = []
        self._all_pushed = threading.Event()
        self._certain_from = datetime.max.replace(tzinfo=UTC)
        self._uncertain: list[tuple[datetime, datetime]] = []
        self._lock = threading.Lock()
        self._client = Client(
            f"{self._url}trains", f"{self._url}stations", limits=Limits(retries=0)
        )
        self._stream = self._client.stream(QUERY, max_interval=1, keep_checking=1)
        works = (
            self._publish, self._publish_often, self._stream_answers, self._read, self._look,
            self._ask_of_many, self._follow, self._push, self._follow_results,
        )  # fmt: skip
        self._threads = [threading.Thread(target=self._guarded, args=(w,)) for w in works]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()

    def until_more(self, *kinds: str) -> None:
        """Wait until each of these things has gone well some more."""
        before = self.done.copy()
        deadline = time.monotonic() + 60
        while any(self.done[kind] < before[kind] + 3 for kind in kinds):
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, (before, self.done)
            time.sleep(0.05)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is to say it
            self.problems.append(f"{work.__name__}: {error!r}")

    def _publish(self) -> None:
        """Publish what each train's delay is in the seconds to come."""
        session = requests.Session()
        start = datetime.now(UTC).replace(microsecond=0) + AHEAD
        number = 0
        while not self._stop.wait(max(0, (start - AHEAD - datetime.now(UTC)).total_seconds())):
            label = Interval(start, start + LENGTH)
            quads = [Quad(train(n), DELAY, Term(f'"{number + n}"')) for n in range(TRAINS)]
            with self._lock:
                self._known.publish([Fact(quad, label) for quad in quads], label.start - AHEAD)
                # Until it is acknowledged, nobody can tell what is shown then.
                self._uncertain.append((start - AHEAD, datetime.max.replace(tzinfo=UTC)))
            answer = session.post(
                f"{self._url}trains/facts",
                params={
                    "initial": format_instant(label.start),
                    "final": format_instant(label.end),
                    "batch": f"b{number}",
                },
                data=n_quads(quads).encode(),
                headers={"Content-Type": "application/n-quads", **AUTHORIZED},
                timeout=60,
            )
            if answer.status_code != 201:
                self.problems.append(f"publishing: {answer.status_code} {answer.text}")
            with self._lock:
                self._uncertain[-1] = (start, datetime.now(UTC) + KEPT)
                self._certain_from = min(self._certain_from, start)
            self.done["published"] += 1
            number += 1
            start += LENGTH

    def _publish_often(self) -> None:
        """Twenty batches a second, which count once, by a connection for each of two of them."""
        lasting, number, begun = requests.Session(), 0, time.monotonic()
        while not self._stop.wait(max(begun + number / 20 - time.monotonic(), 0)):
            number += 1
            session = lasting if number % 2 else requests.Session()
            answer = session.post(
                f"{self._url}trains/facts",
                params={"expiration": "2999-01-01T00:00:00Z", "batch": f"often{number}"},
                data=f'<http://example.org/often> <http://example.org/is> "{number}" .\n',
                headers={"Content-Type": "application/n-triples", **AUTHORIZED},
                timeout=60,
            )
            if answer.status_code != 201:
                self.problems.append(f"publishing often: {answer.status_code} {answer.text}")
            self.done["published often"] += 1

    def _ask_of_many(self) -> None:
        """Blocks of long IRIs, as clients restrict requests to them."""
        session, number = requests.Session(), 0
        while not self._stop.wait(0.05):
            number += 1
            rows = "".join(f"(<http://example.org/{'long/' * 25}{number}/{n}>)" for n in range(40))
            self._get(session, "trains", values=f"(?subject) {{{rows}}}")
            self.done["asked of many"] += 1

    def _stream_answers(self) -> None:
        """A continuous query: each of its answers is the oracle's at that instant."""
        for update in self._stream:
            if self._stop.is_set():
                return
            if update.error is not None:
                self.problems.append(f"streaming: {update.error}")
            with self._lock:
                wanted = self._known.answer(QUERY, update.at)
                known = update.at >= self._certain_from and not any(
                    start <= update.at < end for start, end in self._uncertain
                )
            if not known:
                self.done["untold"] += 1
                continue
            found = Counter(
                frozenset(zip(row._variables, row.row, strict=True)) for row in update.results
            )
            if found != wanted:
                self.problems.append(f"wrong at {update.at}: {found} and not {wanted}")
            self.done["updates"] += 1

    def _get(self, session: requests.Session, path: str, **parameters: str) -> requests.Response:
        answer = session.get(
            f"{self._url}{path}", params=parameters, headers={"Accept": "text/turtle"}, timeout=60
        )
        if answer.status_code != 200:
            self.problems.append(f"{path}: {answer.status_code} {answer.text}")
        return answer

    def _read(self) -> None:
        """Pages that no cache has, by a connection for each and by one that lasts."""
        number, lasting = 0, requests.Session()
        while not self._stop.wait(0.01):
            for session in (lasting, requests.Session()):
                number += 1
                self._get(session, "stations", object=f'"{number}"')
                self._get(session, "trains", object=f'"{number}"')
                self.done["read"] += 2

    def _look(self) -> None:
        """Which store is shown."""
        number, session = 0, requests.Session()
        while not self._stop.wait(0.1):
            number += 1
            page = self._get(
                session, "stations", predicate="http://example.org/version", page="1", x=f"{number}"
            )
            found = [each for each in ("old", "new") if f'"{each}"' in page.text]
            if len(found) != 1:
                self.problems.append(f"the page of a store shows {found}")
            if self.versions[-1:] != found:
                self.versions += found
            self.done["seen"] += 1

    def _follow(self) -> None:
        """Changes, again where they end."""
        headers = {"Accept": "text/event-stream"}
        while not self._stop.is_set():
            with requests.get(
                f"{self._url}trains/changes", headers=headers, stream=True, timeout=60
            ) as answer:
                if answer.status_code != 200:
                    self.problems.append(f"changes: {answer.status_code} {answer.text}")
                for name, value in events(answer):
                    if name == "id":
                        last = headers.get("Last-Event-ID", "0")
                        if int(value) < int(last):
                            self.problems.append(f"change {value} after {last}")
                        headers["Last-Event-ID"] = value
                    elif name == "data" and json.loads(value).get("predicates"):
                        self.done["told"] += 1
                    if self._stop.is_set():
                        return
            self.done["came again"] += 1

    def _push(self) -> None:
        """Somebody is seen by a badge, again and again."""
        while not self._stop.wait(0.2):
            person = f"person-{len(self.pushed)}"
            pushed = push(self._url, person)
            if not pushed.ok:
                self.problems.append(f"pushing: {pushed.status_code} {pushed.text}")
            self.pushed.append(person)
            self.done["pushed"] += 1
        self._all_pushed.set()

    def _follow_results(self) -> None:
        """The results of the query over the badges, on after the last one where they end."""
        headers = {"Accept": "text/event-stream"}
        while not (self._all_pushed.is_set() and len(self.results) >= len(self.pushed)):
            with persistently_read(f"{self._url}queries/badges/results", headers) as answer:
                if answer.status_code != 200:
                    self.problems.append(f"results: {answer.status_code} {answer.text}")
                    return
                for name, value in events(answer):
                    if name == "id":
                        headers["Last-Event-ID"] = value
                    elif name == "data" and "added" in (told := json.loads(value)):
                        people = [row["x"].strip("<>") for row in told["added"]]
                        self.results += [each for each in people if each != "urn:alice"]
                        self.done["results"] += 1
                    if self._all_pushed.is_set() and len(self.results) >= len(self.pushed):
                        return
            self.done["results came again"] += 1


def push(url: str, person: str) -> requests.Response:
    """Somebody is seen by a badge: an element of the stream, which counts once."""
    return persistently(
        "POST",
        f"{url}streams/http%3A%2F%2Fexample.org%2Fbadges",
        "text/turtle",
        # Without a timestamp: what is sent again after a replacement is not late then.
        params={"batch": person},
        data=f"<urn:{person}> <http://example.org/at> <urn:room> .",
    )


def persistently_read(url: str, headers: dict[str, str]) -> requests.Response:
    """Follow results, again where the server says so."""
    deadline = time.monotonic() + 60
    while True:
        answer = requests.get(url, headers=headers, stream=True, timeout=60)
        if answer.status_code != 503:
            return answer
        answer.close()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def events(answer: requests.Response) -> Iterator[tuple[str, str]]:
    """The fields of server-sent events, as long as they come."""
    try:
        for line in answer.iter_lines(1, decode_unicode=True):
            name, _, value = line.partition(": ")
            yield name, value
    except requests.exceptions.ChunkedEncodingError:
        return  # the server has ended, and the stream with it


def persistently(
    method: str, url: str, kind: str = "application/json", **arguments: Any
) -> requests.Response:
    """Ask the server of continuous queries, again where it says so."""
    deadline = time.monotonic() + 60
    while True:
        headers = AUTHORIZED | {"Content-Type": kind}
        answer = requests.request(method, url, headers=headers, timeout=60, **arguments)
        if answer.status_code != 503:
            return answer
        assert answer.headers["Retry-After"] == "2"
        assert time.monotonic() < deadline
        time.sleep(0.1)


def check_continuous(machines: Machines, person: str) -> None:
    """A push to a stream comes out at the query that reads it."""
    results = f"{machines.url}queries/badges/results"
    pushed = push(machines.url, person)
    assert pushed.ok, pushed.text
    with requests.get(
        results, headers={"Accept": "text/event-stream"}, stream=True, timeout=60
    ) as answer:
        assert answer.status_code == 200, answer.text
        assert any(person in value for name, value in events(answer) if name == "data")


@NGINX.needed
def test_the_documented_configuration_is_one(tmp_path: Path) -> None:
    places = [f"127.0.0.1:{port}" for port in (3001, 3002, 3003)]
    assert checked_nginx(tmp_path, documented_site(tmp_path, 3004, *places))


def test_the_script_touches_nothing_where_no_other_server_is_ready(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    script = str(PROJECT / "docs/replace-server.sh")
    done = subprocess.run(
        [script, f"http://127.0.0.1:{free_port()}", "127.0.0.1:9", "touch", str(touched)],
        env=os.environ | {"WAIT": "0"}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no other server is ready behind http://127.0.0.1:" in done.stderr
    assert not touched.exists()
    done = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "wanted FRONT" in done.stderr) == (2, True)


def test_the_script_waits_for_each_group_of_servers(tmp_path: Path) -> None:
    """A group that has found a server failing leaves it alone, whatever the others know by then."""
    touched = tmp_path / "touched"
    looks = 0

    def front(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        nonlocal looks
        machine = f"127.0.0.1:{environ['SERVER_PORT']}"
        is_ours = touched.exists()
        if environ["QUERY_STRING"] == "group=publishing":
            looks += 1
            # It has no other server at first; and the new one it tries again after a while.
            if looks <= 3:
                assert not touched.exists()
                start_response("502 Bad Gateway", [("X-Upstream", "publishing")])
                return [b""]
            is_ours = is_ours and looks > 7
        by = machine if is_ours else "127.0.0.1:9"
        start_response("200 OK", [("X-Upstream", by)])
        return [b""]

    with listening(front) as url:
        machine = url.removeprefix("http://").rstrip("/")
        script = str(PROJECT / "docs/replace-server.sh")
        subprocess.run([script, url, machine, "touch", str(touched)], check=True, timeout=60)
    assert touched.exists()
    assert looks == 8


@NGINX.needed
@POSTGRES.needed
@pytest.mark.skipif(ROUNDS == 0, reason="takes minutes: TPF_MACHINE_ROUNDS=8 says how often")
@pytest.mark.timeout(180 + 120 * ROUNDS)
def test_servers_and_stores_are_replaced_without_a_failed_request(tmp_path: Path) -> None:
    with serving(tmp_path, static_lines("old"), "--page-size", "4", "--workers", "1") as machines:
        badges = f"{machines.url}streams/http%3A%2F%2Fexample.org%2Fbadges"
        assert persistently("PUT", badges).status_code == 201
        query = {"query": WATCHED, "name": "badges"}
        assert persistently("POST", f"{machines.url}queries", json=query).status_code == 201
        check_continuous(machines, "alice")
        tags = {
            requests.get(f"http://{machine.name}/stations", timeout=60).headers["ETag"]
            for machine in machines.machines
        }
        assert len(tags) == 1
        kinds = ("published", "published often", "updates", "read", "seen", "asked of many",
                 "told", "pushed", "results")  # fmt: skip
        with Load(machines) as load:
            load.until_more(*kinds)
            for number in range(ROUNDS):
                # One right after the other, as the chapter does it.
                for machine in machines.machines:
                    machines.replace(machine)
                    assert machine.starts == number + 2
                load.until_more(*kinds)
                replace_alone(machines.continuous)
                load.until_more(*kinds)
            for machine in machines.machines:
                machines.replace_store(machine, static_lines("new"))
            wait_for_store(machines)
            load.until_more(*kinds)
        assert load.problems == []
        # Everybody is told once, in the order of arrival.
        assert load.results == [f"urn:{person}" for person in load.pushed]
        assert load.versions[0] == "old"
        assert load.versions[-1] == "new"
        print(dict(load.done))  # noqa: T201


def replace_alone(machine: Machine) -> None:
    """Have the server replaced that has no other beside it."""
    os.kill(machine.pid, 15)


def wait_for_store(machines: Machines) -> None:
    """Wait until every worker of every machine shows the new store."""
    for machine in machines.machines:
        deadline, shown = time.monotonic() + 60, 0
        while shown < 20:
            assert time.monotonic() < deadline
            page = requests.get(f"http://{machine.name}/stations.nt?object=%22new%22", timeout=60)
            shown = shown + 1 if "version" in page.text else 0
