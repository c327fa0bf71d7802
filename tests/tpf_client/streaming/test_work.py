"""What a tick costs goes by what changed, and what a query keeps by what it looks at."""

import os
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from annotations.labels import Expiration, Fact
from annotations.methods import METHODS
from annotations.terms import Quad, QuadPattern, Term, Variable, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client import Stream, Update
from tpf_client.dataflow.node import Meter
from tpf_client.planner.driver import Task
from tpf_client.planner.live_fragment import HeldFacts
from tpf_client.planner.reading import Content, ReadRequest
from tpf_client.planner.source import Estimate
from tpf_client.streaming import detection, streamer
from tpf_client.streaming.detection import Matcher

EX = "http://example.org/"
FACTS = 1000
QUERY = """
PREFIX : <http://example.org/>
SELECT ?room ?name ?value ?note WHERE {
  ?room :value ?value ; :name ?name .
  OPTIONAL { ?room :note ?note }
  FILTER (?value >= 0)
}"""
AGGREGATE = """
PREFIX : <http://example.org/>
SELECT ?floor (COUNT(*) AS ?n) (MAX(?value) AS ?most) WHERE {
  ?room :value ?value ; :floor ?floor } GROUP BY ?floor"""


def _room(number: int) -> Term:
    return iri(f"{EX}room/{number}")


def _number(value: int) -> Term:
    return literal(str(value), datatype="http://www.w3.org/2001/XMLSchema#integer")


def _static() -> list[Quad]:
    return [
        quad
        for number in range(FACTS)
        for quad in (
            Quad(_room(number), iri(EX + "name"), literal(f"room {number}")),
            Quad(_room(number), iri(EX + "floor"), literal(f"floor {number // 50}")),
            *([Quad(_room(number), iri(EX + "note"), literal("warm"))] if number % 3 == 0 else []),
        )
    ]


def _meters(stream: Stream) -> list[Meter]:
    running = stream.streamer.running
    assert running is not None
    return [Meter(node) for node in running.evaluation.dataflow.nodes]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """A thousand values that hold for an hour, but one, which changes every ten seconds."""
    with LiveServer(tmp_path, _static(), page_size=1000, max_age=3600) as server:
        end = Expiration(server.clock.now() + timedelta(hours=1))
        values = (Quad(_room(n), iri(EX + "value"), _number(1)) for n in range(1, FACTS))
        server.publish(Fact(quad, end) for quad in values)
        server.publish_rounds(
            timedelta(seconds=10), lambda n: [Quad(_room(0), iri(EX + "value"), _number(n + 1))]
        )
        yield server


@pytest.mark.parametrize("view", ["plain", *(method.name for method in METHODS)])
def test_a_tick_in_which_one_fact_of_a_thousand_changed_does_the_work_for_one(
    server: LiveServer, view: str
) -> None:
    for query, rows in ((QUERY, FACTS), (AGGREGATE, FACTS // 50)):
        begun = len(server.log)
        with server.client(f"/{view}") as client:
            stream = client.stream(query)
            updates: Iterator[Update] = iter(stream)
            first = next(updates)
            assert len(first.added) == rows
            meters = _meters(stream)
            for _ in range(5):
                asked, changes = len(server.log), [meter.changes for meter in meters]
                update = next(updates)
                # The old row goes, the new one comes.
                assert len(update.added) == len(update.removed) == 1
                assert len(server.log) - asked <= 2
                flowed = [m.changes - before for m, before in zip(meters, changes, strict=True)]
                assert max(flowed) <= 2
                assert sum(flowed) > 0
                assert client.statistics.requests == len(server.log) - begun


def test_spans_look_up_no_facts_without_labels(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def counting(self: HeldFacts) -> None:
        usual(self)
        find: Any = self.find

        def counted(quad: Quad) -> Any:
            found.append(quad[1])
            return find(quad)

        self.find = counted  # type: ignore[assignment]

    usual = HeldFacts.__init__
    monkeypatch.setattr(HeldFacts, "__init__", counting)
    with server.client() as client:
        updates = iter(client.stream(QUERY))
        first = next(updates)
    # No name. Notes may be missing, so that they are looked for; where they are, values are again.
    notes = FACTS // 3 + 1
    assert Counter(found) == {f"<{EX}value>": FACTS + FACTS - notes, f"<{EX}note>": notes}
    assert all(each.valid_until is not None for each in first.added)


@pytest.mark.parametrize("values", [0, 30])
def test_what_changes_together_is_asked_for_together(tmp_path: Path, values: int) -> None:
    """One request brings the patterns whose labels end at one instant, if bindings can say so."""
    server = LiveServer(tmp_path, server={"max_values": values}, max_age=3600)
    delays = {"value": 10, "state": 10, "door": 60}

    def of_round(name: str, round_: int) -> list[Quad]:
        return [Quad(_room(n), iri(EX + name), _number(round_ + n)) for n in range(90)]

    for name, seconds in delays.items():
        server.publish_rounds(timedelta(seconds=seconds), partial(of_round, name))
    query = "PREFIX : <http://example.org/> SELECT * { ?r :value ?v ; :state ?s ; :door ?d }"
    asked = []
    with server.client() as client:
        updates = iter(client.stream(query))
        next(updates)
        for round_ in range(1, 9):
            before = len(server.log)
            update = next(updates)
            rows = {(str(row["v"]), str(row["s"]), str(row["d"])) for row in update.added}
            expected = (round_, round_, round_ // 6)
            assert rows == {tuple(str(n + each) for each in expected) for n in range(90)}
            asked.append(len(server.log) - before)
    server.close()
    # What seldom changes is read with the others when it does, and alone to know when it does next.
    assert asked == ([2, 2, 2, 2, 2, 3, 2, 2] if values == 0 else [1, 1, 1, 1, 1, 1, 2, 1])


SENSORS = 50
STREAMS = int(os.environ.get("TPF_STREAMS", "40"))
PERIOD = timedelta(seconds=10)
SENSOR_QUERY = f"SELECT * {{ ?s <{EX}name> ?name ; <{EX}value> ?v }}"
NAMES = [
    Quad(iri(f"{EX}{number}"), iri(EX + "name"), literal(f"sensor {number}"))
    for number in range(SENSORS)
]


def sensor_values(number: int) -> list[Quad]:
    """Values that nobody has seen before."""
    return [
        Quad(iri(f"{EX}{sensor}"), iri(EX + "value"), literal(f"{number}.{sensor}"))
        for sensor in range(SENSORS)
    ]


def test_a_query_forgets_the_terms_of_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamer, "LEAST_TERMS", 300)
    with LiveServer(tmp_path, NAMES, max_age=3600) as server, server.client() as client:
        server.publish_rounds(PERIOD, sensor_values)
        seen: Counter[tuple[str | None, ...]] = Counter()
        plans, terms = set(), []
        stream = client.stream(SENSOR_QUERY, until=START + 60 * PERIOD)
        for update in stream:
            seen.update(solution.row for solution in update.added)
            seen.subtract(solution.row for solution in update.removed)
            seen = +seen
            assert seen == Counter(solution.row for solution in update.results)
            assert len(update.added) == SENSORS
            assert {solution.valid_until for solution in update.added} == {update.valid_until}
            running = stream.streamer.running
            assert running is not None
            plans.add(id(running))
            terms.append(len(running.evaluation.dictionary))
        evaluations = stream.streamer.evaluations
    requests = len(server.log)
    assert len(terms) == evaluations == 61
    assert max(terms) <= 2 * 300 + SENSORS
    assert len(plans) > 2
    # Planning anew now and then is no burden for the server.
    assert requests <= 2 * evaluations


def test_what_many_streams_keep(tmp_path: Path) -> None:
    """Pages and connections are shared: what comes with each stream is its rows and its plan."""
    with LiveServer(tmp_path, NAMES, max_age=3600) as server, server.client() as client:
        server.publish_rounds(PERIOD, sensor_values)
        tracemalloc.start()
        try:
            # The first one brings the pages, and code that had not run before.
            streams = [iter(client.stream(SENSOR_QUERY)) for _ in range(1 + STREAMS)]
            assert len(next(streams[0]).added) == SENSORS
            before = tracemalloc.get_traced_memory()[0]
            for updates in streams[1:]:
                assert len(next(updates).added) == SENSORS
            kept = (tracemalloc.get_traced_memory()[0] - before) / STREAMS
        finally:
            tracemalloc.stop()
    print(f"{STREAMS} streams of {SENSORS} rows: {kept / 1000:.0f} kB each")  # noqa: T201 - with -s
    assert kept < 250_000


class Nothing:
    """A source without a match."""

    url = "urn:none"

    def estimate(self, _pattern: QuadPattern) -> Task[Estimate]:
        yield from ()
        return Estimate(0, 0, 0)

    def read(self, _asked: ReadRequest) -> Task[Content]:
        yield from ()
        return Content((), START, START, None, None, dynamic=False)


def test_of_keys_that_were_looked_up_once_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "_MOST_COSTS", 5)
    matcher = Matcher(cast(Any, Nothing()))
    for number in range(30):
        pattern = QuadPattern(_room(number), iri(EX + "value"), Variable("?v"), Variable("?g"))
        assert list(matcher.match([pattern], None)) == []
        assert 0 < len(matcher._costs) <= 5
