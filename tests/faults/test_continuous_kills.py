"""A server with continuous queries is killed while elements are published: nothing is missing.

`TPF_KILLS=30 ./run test tests/faults/test_continuous_kills.py` kills more often.
"""

import json
import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import requests

from annotations.clock import SystemClock
from experiments.free_port import free_port
from tests.support.running_server import TOKEN, RunningServer
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.elements.elements import read_ndjson
from tpf_server.continuous.runtime.records.record_bodies import read_records
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import ARROW, NDJSON, Policies, as_lines

KILLS = int(os.environ.get("TPF_KILLS", "2"))
CONFIG = """continuous = true
keep_queries = true
keep_windows = true
stream_time = "elements"
max_results = 1000000
max_result_rows = 10000000
[datasets.data]
source = "data.nt"
"""
AUTH = {"Authorization": f"Bearer {TOKEN}"}
QUERIES: list[dict[str, str]] = [
    {"query": "SELECT ?a ?b { STREAM <s> [RANGE 2s] { ?a <urn:p> ?x } "
     "STREAM <r> [TRIPLES 5] { ?b <urn:p> ?x } }"},
    {"query": "SELECT ?x (COUNT(*) AS ?n) (SUM(?v) AS ?sum) "
     "{ STREAM <s> [RANGE 3s SLIDE 1s] { ?a <urn:p> ?x ; <urn:v> ?v } } GROUP BY ?x",
     "semantics": "paper"},
    {"query": "SELECT ?s ?a { STREAM ?s [TRIPLES 4] { ?a <urn:p> ?x } }",
     "semantics": "paper-dstream"},
    {"query": "CONSTRUCT { ?a <urn:m> ?b } { STREAM <s> [RANGE 1s] { ?a <urn:p> ?x . "
     "?b <urn:p> ?x } FILTER(?a != ?b) }", "into": "m"},
    {"query": "SELECT ?b (COUNT(*) AS ?n) { STREAM <m> [RANGE 4s] { ?a <urn:m> ?b } } GROUP BY ?b"},
    {"query": "REGISTER STREAM c COMPUTED EVERY 1s AS CONSTRUCT { ?x <urn:c> ?a } "
     "FROM STREAM <s> [RANGE 3s STEP 1s] { ?a <urn:p> ?x }"},
    {"query": "REGISTER QUERY d COMPUTED EVERY 2s AS SELECT ?x (COUNT(*) AS ?n) "
     "FROM STREAM <c> [RANGE 4s STEP 1s] FROM STREAM <r> [RANGE TRIPLES 6] "
     "{ ?x ?p ?a } GROUP BY ?x"},
    {"query": "REGISTER ISTREAM <i> AS SELECT ?a ?x FROM NAMED WINDOW <w> ON <s> "
     "[RANGE PT3S STEP PT1S] { WINDOW <w> { ?a <urn:p> ?x } }"},
    {"query": "REGISTER DSTREAM <e> AS SELECT ?a ?x FROM NAMED WINDOW <w> ON <r> "
     "[ELEMENTS 4 STEP 1] { WINDOW <w> { ?a <urn:p> ?x } }"},
]  # fmt: skip
"""In all three languages, over streams that are published and that queries make."""


class Publisher:
    """Random bodies, in order; each is sent until it is acknowledged."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._at = 1_577_836_800_000
        self.bodies: list[tuple[str, str, bytes]] = []
        self.acknowledged = self.repeated = 0

    def _make(self) -> tuple[str, str, bytes]:
        chance = self._chance
        records = chance.random() < 0.3
        rows = []
        for _ in range(chance.choice([1, 2, 5, 30] if records else [1, 1, 3])):
            self._at += chance.choice([0, 10, 200])
            rows.append((self._at, chance.randrange(6), chance.randrange(3)))
        if records:
            table = pa.table({
                "timestamp": pa.array([at for at, _, _ in rows]),
                "subject": [f"<urn:a{a}>" for _, a, _ in rows],
                "urn:p": [f'"{x}"' for _, _, x in rows],
                "urn:v": pa.array([a for _, a, _ in rows]),
            })  # fmt: skip
            body = pa.BufferOutputStream()
            with pa.ipc.new_stream(body, table.schema) as writer:
                writer.write_table(table)
            return chance.choice("sr"), ARROW, body.getvalue().to_pybytes()
        lines = [
            {"timestamp": at, "triples": [
                [f"<urn:a{a}>", "<urn:p>", f'"{x}"'],
                [f"<urn:a{a}>", "<urn:v>", f'"{a}"^^<http://www.w3.org/2001/XMLSchema#integer>'],
            ]}
            for at, a, x in rows
        ]  # fmt: skip
        return chance.choice("ssr"), NDJSON, "\n".join(map(json.dumps, lines)).encode()

    def publish(self, origin: str, session: requests.Session) -> None:
        """Send the next body, or the last one again; `RequestException`: perhaps it came."""
        if self.acknowledged == len(self.bodies):
            self.bodies.append(self._make())
        stream, kind, body = self.bodies[self.acknowledged]
        answer = session.post(
            f"{origin}streams/{stream}",
            body,
            params={"batch": f"b{self.acknowledged}"},
            headers=AUTH | {"Content-Type": kind},
            timeout=60,
        )
        if answer.status_code == 503:  # a worker stops by itself when its parent is gone
            raise requests.ConnectionError
        assert answer.status_code == 200, answer.text
        self.acknowledged += 1
        self.repeated += answer.json()["repeated"]


class Reader:
    """Follow the results of a query from one server to the next."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[tuple[int, Any]] = []

    def follow(self, origin: str) -> threading.Thread:
        """Read until the server is gone."""
        thread = threading.Thread(target=self._follow, args=(origin,), daemon=True)
        thread.start()
        return thread

    def _follow(self, origin: str) -> None:
        with suppress(requests.RequestException):
            self.read(origin, follow=True)

    def read(self, origin: str, *, follow: bool) -> int:
        """Read what follows the last event; return how many."""
        headers = {"Accept": NDJSON}
        if self.events:
            headers["Last-Event-ID"] = str(self.events[-1][0])
        before = len(self.events)
        with requests.get(
            f"{origin}queries/{self.name}/results",
            params={} if follow else {"follow": "false"},
            headers=headers,
            stream=True,
            timeout=60,
        ) as answer:
            assert answer.status_code == 200, answer.text
            for line in answer.iter_lines():
                if line and b"error" not in line:
                    self.events.append(_read(line))
        return len(self.events) - before


def kill(server: RunningServer) -> None:
    """Kill a server with all its processes."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(server.process.pid)
        for each in [parent, *parent.children(recursive=True)]:
            each.kill()
    server.process.wait(60)


def uninterrupted(base: str, bodies: list[tuple[str, str, bytes]]) -> dict[str, list[Any]]:
    """Return the emissions of a service that takes each body once."""
    engine = Engine(EngineSettings(base=base, skip_idle=True))
    engine.add([("<urn:x>", "<urn:y>", "<urn:z>")])
    service = ContinuousService(
        engine,
        SystemClock(),
        Policies(time="elements", backlog=10**6, rows=10**7),
    )
    for query in QUERIES:
        service.register(query["query"], **{k: v for k, v in query.items() if k != "query"})
    for stream, kind, body in bodies:
        if kind == ARROW:
            service.push(stream, read_records(body, 10**8, service.name))
        else:
            service.push(stream, list(read_ndjson(body.decode())))
    result = {}
    for each in service.queries():
        lines = "".join(as_lines(each, each.log.begin, follow=False)).splitlines()
        result[each.id] = [_read(line)[1] for line in lines]
    return result


def _read(line: str | bytes) -> tuple[int, Any]:
    """Return the number of an emission, and the emission; its rows have no order."""
    value = json.loads(line)
    for name in {"added", "removed", "result"} & value.keys():
        value[name].sort(key=str)
    return value.pop("id"), value


@pytest.mark.timeout(120 + 30 * KILLS)
def test_killed_servers_answer_as_one_that_was_not(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "data.nt").write_text("<urn:x> <urn:y> <urn:z> .\n")
    chance = random.Random(41)
    port = free_port()
    publisher = Publisher(chance)
    readers: list[Reader] = []
    session = requests.Session()
    for _ in range(KILLS):
        with RunningServer(tmp_path, CONFIG, port=port) as server:
            origin = server.origin
            if not readers:
                for each in QUERIES:
                    made = session.post(f"{origin}queries", json=each, headers=AUTH, timeout=60)
                    assert made.status_code == 201, made.text
                    readers.append(Reader(made.json()["id"]))
            threads = [each.follow(origin) for each in readers]
            killer = threading.Timer(chance.random(), kill, [server])
            killer.start()
            with suppress(requests.RequestException):
                while True:
                    publisher.publish(origin, session)
            killer.join(60)
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
    with RunningServer(tmp_path, CONFIG, port=port) as server:
        for _ in range(5):
            publisher.publish(server.origin, session)
        for reader in readers:
            while reader.read(server.origin, follow=False):
                pass
        expected = uninterrupted(f"{server.origin}streams/", publisher.bodies)
    record_testsuite_property("bodies", len(publisher.bodies))
    record_testsuite_property("repeated", publisher.repeated)
    for reader in readers:
        numbers = [number for number, _ in reader.events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert [value for _, value in reader.events] == expected[reader.name], reader.name
        assert expected[reader.name]
