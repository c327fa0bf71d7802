"""A server that was killed continues as if it had not been: in its windows, and for its readers.

`TPF_TIMELINES=2000` tries more random runs.
"""

import json
import os
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from annotations.clock import ManualClock
from annotations.terms import Term
from tests.support.sparql_endpoint import LoopbackEndpoint
from tpf_server.continuous.continuous_engine import Engine, EngineSettings, InstantSettings
from tpf_server.continuous.runtime.elements.elements import Element, in_graph, milliseconds
from tpf_server.continuous.runtime.errors import RegistrationsError
from tpf_server.continuous.runtime.records.record_bodies import RecordBody, read_records
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies, as_lines
from tpf_server.continuous.service.result_log import Registrations
from tpf_server.continuous.service.window_log import WindowLog

RUNS = int(os.environ.get("TPF_TIMELINES", "8"))
STEPS = 120
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
P = Term("<urn:p>")

CQELS = [
    "SELECT ?a ?b { STREAM <s> [WINDOW] { ?a <urn:p> ?x } STREAM <t> [WINDOW] { ?b <urn:p> ?x } }",
    "SELECT ?x (COUNT(*) AS ?n) { STREAM <s> [WINDOW] { ?a <urn:p> ?x } } GROUP BY ?x",
    "SELECT ?s ?a { STREAM ?s [WINDOW] { ?a <urn:p> ?x } }",
    "SELECT ?a { STREAM <m> [WINDOW] { ?a <urn:m> ?x } }",
    "SELECT ?a { STREAM ?c [WINDOW] { ?a <urn:c> ?x } }",
]
CQELS_WINDOWS = ["NOW", "RANGE 2s", "RANGE 5s SLIDE 2s", "TRIPLES 3", "ALL", "RANGE 9s"]
POLICIES = ["cqels", "paper", "paper-dstream", "paper-rstream", "paper-answer"]
CSPARQL = [
    "SELECT ?x (COUNT(*) AS ?n) FROM STREAM <s> [WINDOW] { ?a <urn:p> ?x } GROUP BY ?x",
    "SELECT ?a FROM STREAM <s> [WINDOW] FROM STREAM <t> [WINDOW] { ?a <urn:p> ?x }",
    "ASK FROM STREAM <m> [WINDOW] { ?a <urn:m> ?x }",
]
CSPARQL_WINDOWS = [
    "RANGE 3s STEP 1s", "RANGE 4s TUMBLING", "RANGE TRIPLES 4", "RANGE TRIPLES 4 STEP 3",
]  # fmt: skip
RSPQL_WINDOWS = ["RANGE PT4S STEP PT2S", "RANGE PT3S STEP PT1S", "ELEMENTS 3 STEP 2"]
OPERATORS = ["ISTREAM", "DSTREAM", "RSTREAM"]


def query(chance: random.Random, number: int) -> dict[str, Any]:
    """Return the arguments of a random registration."""
    match chance.randrange(5):
        case 0 | 1:
            text = chance.choice(CQELS).replace("WINDOW", chance.choice(CQELS_WINDOWS))
            return {"text": text, "semantics": chance.choice(POLICIES), "name": f"q{number}"}
        case 2:
            text = chance.choice(CSPARQL).replace("WINDOW", chance.choice(CSPARQL_WINDOWS))
            every = chance.choice(["", "COMPUTED EVERY 2s "])
            return {"text": f"REGISTER QUERY q{number} {every}AS {text}"}
        case 3:
            window = chance.choice(RSPQL_WINDOWS)
            operator = chance.choice(OPERATORS)
            return {
                "text": f"REGISTER {operator} <o{number}> AS SELECT ?a ?x "
                f"FROM NAMED WINDOW <w> ON <s> [{window}] "
                "WHERE { WINDOW <w> { ?a <urn:p> ?x } }",
                "name": f"q{number}",
            }
    if chance.random() < 0.5:
        window = chance.choice(CQELS_WINDOWS[:4])
        text = f"CONSTRUCT {{ ?x <urn:m> ?a }} {{ STREAM <s> [{window}] {{ ?a <urn:p> ?x }} }}"
        semantics = chance.choice(["cqels", "paper"])
        return {"text": text, "into": "m", "semantics": semantics, "name": f"q{number}"}
    return {
        "text": f"REGISTER STREAM c AS CONSTRUCT {{ ?a <urn:c> ?x }} "
        f"FROM STREAM <t> [{chance.choice(CSPARQL_WINDOWS[:3])}] {{ ?a <urn:p> ?x }}"
    }


@dataclass
class Run:
    """A service that may be killed, over one folder."""

    folder: Path | None
    policies: Policies
    lateness: int = 0
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGIN))

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        by_clock = self.policies.time == "clock"
        engine = Engine(
            EngineSettings(lateness=self.lateness, skip_idle=not by_clock),
            instants=InstantSettings(eager=by_clock),
        )
        registrations = windows = None
        if self.folder is not None:
            registrations = Registrations(self.folder / "kept.sqlite", steps=True)
            slack = self.lateness + (self.policies.ahead + self.policies.delay if by_clock else 0)
            windows = WindowLog(registrations, slack, spare=3)
        self.service = ContinuousService(
            engine, self.clock, self.policies, registrations, windows=windows
        )
        self.service.advance()

    def kill(self) -> None:
        """Begin again from the files; what was in memory is gone. One without is asked to go on."""
        if self.folder is not None:
            self.start()
        self.service.advance()

    def results(self) -> dict[str, list[Any]]:
        """Return all that readers see, with the numbers of events; rows have no order."""
        result: dict[str, list[Any]] = {}
        for each in self.service.queries():
            lines = "".join(as_lines(each, each.log.begin, follow=False)).splitlines()
            result[each.id] = [json.loads(line) for line in lines]
            for emission in result[each.id]:
                for name in {"added", "removed", "result"} & emission.keys():
                    if isinstance(emission[name], list):
                        emission[name].sort(key=str)
        return result


def elements(chance: random.Random, at: int) -> list[Element]:
    """Return a random body; some elements come late, some are graphs."""
    result = []
    for _ in range(chance.choice([1, 1, 2, 5])):
        triples = [
            (Term(f"<urn:a{chance.randrange(4)}>"), P, Term(f'"{chance.randrange(3)}"'))
            for _ in range(chance.choice([1, 1, 1, 2]))
        ]
        graph = chance.choice([None, None, "<urn:g>"])
        at += chance.choice([0, 0, 100, 700, -300])
        result.append(Element(at, in_graph(graph, triples), 1))
    return result


def records(chance: random.Random, at: int) -> RecordBody:
    """Return a random body of records."""
    count = chance.choice([1, 3, 20])
    table = pa.table(
        {
            "timestamp": pa.array([at + 10 * number for number in range(count)]),
            "subject": [f"<urn:a{chance.randrange(4)}>" for _ in range(count)],
            "urn:p": [f'"{chance.randrange(3)}"' for _ in range(count)],
        }
    )
    with pa.BufferOutputStream() as body:
        with pa.ipc.new_stream(body, table.schema) as writer:
            writer.write_table(table)
        return read_records(body.getvalue().to_pybytes(), 10**6, lambda name: Term(f"<{name}>"))


@pytest.mark.parametrize("seed", range(RUNS))
def test_killed_servers_answer_as_one_that_was_not(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    policies = Policies(
        time=chance.choice(["clock", "elements"]), delay=200, ahead=5_000, rows=10**9
    )
    lateness = chance.choice([0, 0, 500])
    runs = [Run(None, policies, lateness), Run(tmp_path, policies, lateness)]
    names: list[str] = []
    last: tuple[Any, ...] | None = None
    for number in range(STEPS):
        roll = chance.random()
        seconds = chance.choice([0.0, 0.1, 0.3, 1.1]) * (30 if chance.random() < 0.03 else 1)
        for run in runs:
            run.clock.advance_to(run.clock.now() + timedelta(seconds=seconds))
        at = milliseconds(runs[0].clock.now())
        if roll < 0.06 or number < 3:
            arguments = query(chance, number)
            made = [_registered(run, arguments) for run in runs]
            assert made[0] == made[1]
            names += [made[0]] if made[0] is not None else []
        elif roll < 0.08 and names:
            name = names.pop(chance.randrange(len(names)))
            for run in runs:
                run.service.delete(name)
        elif roll < 0.25:
            for run in runs:
                run.service.advance()
        else:
            make = records if chance.random() < 0.2 else elements
            body = make(chance, at)
            last = (chance.choice("sst"), body, f"b{number}")
            for run in runs:
                run.service.push(last[0], last[1], batch=last[2])
        if chance.random() < 0.12:
            for run in runs:
                run.kill()
            if last is not None:  # whoever did not get an answer asks again
                assert runs[1].service.push(last[0], last[1], batch=last[2]).repeated
        if chance.random() < 0.1 or number == STEPS - 1:
            assert runs[1].results() == runs[0].results(), (seed, number)


def _registered(run: Run, arguments: dict[str, Any]) -> str | None:
    try:
        return run.service.register(**arguments).id
    except Exception as error:  # noqa: BLE001 - the same of both
        return None if "already" in str(error) or "feed itself" in str(error) else repr(error)


@pytest.mark.parametrize("window", ["RANGE 1s", "TRIPLES 20", "ALL"])
def test_the_log_keeps_what_windows_need(tmp_path: Path, window: str) -> None:
    run = Run(tmp_path, Policies(time="elements"))
    query = f"CONSTRUCT {{ ?a <urn:m> ?x }} {{ STREAM <s> [{window}] {{ ?a <urn:p> ?x }} }}"
    run.service.register(query, name="q", into="m")
    run.service.register("SELECT * { STREAM <m> [RANGE 2s] { ?a <urn:m> ?x } }", name="m")
    for number in range(400):
        triples = ((Term(f"<urn:a{number}>"), P, Term('"x"')),)
        run.service.push("s", [Element(100 * number, triples, 1)])
    with closing(sqlite3.connect(tmp_path / "kept.sqlite")) as connection:
        ((count, newest),) = connection.execute("SELECT count(*), max(newest) FROM steps")
    # A second of slack, two of the stream that is made, and a quarter more.
    most = {"RANGE 1s": 60, "TRIPLES 20": 70, "ALL": 400}[window]
    assert newest == 39_900
    assert most * 2 // 3 <= count <= most


def test_a_server_that_another_has_followed_acknowledges_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, Policies(time="elements"))
    run.service.register("SELECT * { STREAM <s> [ALL] { ?a <urn:p> ?x } }", name="q")
    before = run.service
    run.kill()
    element = Element(1_000, ((Term("<urn:a>"), P, Term('"x"')),), 1)
    for _ in range(2):
        with pytest.raises(RegistrationsError, match="another server has begun with it"):
            before.push("s", [element], batch="1")
    assert before.query("q").log.last == before.query("q").log.begin
    assert not run.service.push("s", [element], batch="1").repeated
    assert len(run.results()["q"]) == 1


SELECT = "SELECT ?x { STREAM <s> [ALL] { ?a <urn:p> ?x } STREAM <t> [NOW] { ?b <urn:p> ?x } }"


def one(at: int, value: str) -> list[Element]:
    return [Element(at, ((Term("<urn:a>"), P, Term(f'"{value}"')),), 1)]


def test_a_query_did_not_see_what_came_while_its_services_were_asked(tmp_path: Path) -> None:
    class Meanwhile(list[str]):
        def append(self, query: str) -> None:
            super().append(query)
            run.service.push("s", one(1_000, "before"))

    with LoopbackEndpoint("<urn:a> <urn:name> <urn:b> .") as endpoint:
        run = Run(tmp_path, Policies(time="elements", services=(endpoint.url,)))
        endpoint.asked = Meanwhile()
        service = f"SERVICE <{endpoint.url}> {{ ?s <urn:name> ?n }} }}"
        run.service.register(f"{SELECT.removesuffix('}')}{service}", name="q")
        assert len(endpoint.asked) == 1
        endpoint.asked = []
        run.service.push("s", one(1_500, "after"))
        run.kill()
        run.service._remote.read()
        for value in ("before", "after"):
            run.service.push("t", one(2_000, value))
    assert [each["added"] for each in run.results()["q"]] == [[{"x": '"after"'}]]


def test_a_query_with_the_name_of_one_that_is_deleted_keeps_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, Policies(time="elements"))
    run.service.register(SELECT, name="q")
    release = run.service._static.release

    def then_another(services: Any) -> None:
        release(services)
        run.service.register(SELECT, name="q")
        for stream in "st":
            run.service.push(stream, one(1_000, "x"))

    monkeypatch.setattr(run.service._static, "release", then_another)
    run.service.delete("q")
    before = run.results()
    assert len(before["q"]) == 1
    run.kill()
    assert run.results() == before
