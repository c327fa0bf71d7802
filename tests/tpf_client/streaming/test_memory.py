"""What a continuous query keeps: what it looks at, not what it has seen."""

import os
import tracemalloc
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from annotations.terms import Quad, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client.streaming import streamer

EX = "http://example.org/"
SENSORS = 50
STREAMS = int(os.environ.get("TPF_STREAMS", "40"))
PERIOD = timedelta(seconds=10)
QUERY = f"SELECT * {{ ?s <{EX}name> ?name ; <{EX}value> ?v }}"
NAMES = [
    Quad(iri(f"{EX}{number}"), iri(EX + "name"), literal(f"sensor {number}"))
    for number in range(SENSORS)
]


def values(number: int) -> list[Quad]:
    """Values that nobody has seen before."""
    return [
        Quad(iri(f"{EX}{sensor}"), iri(EX + "value"), literal(f"{number}.{sensor}"))
        for sensor in range(SENSORS)
    ]


def test_a_query_forgets_the_terms_of_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamer, "LEAST_TERMS", 300)
    server = LiveServer(tmp_path, NAMES, max_age=3600)
    server.publish_rounds(PERIOD, values)
    seen: Counter[tuple[str | None, ...]] = Counter()
    plans, terms = set(), []
    with server.client() as client:
        stream = client.stream(QUERY, until=START + 60 * PERIOD)
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
    server.close()
    assert len(terms) == evaluations == 61
    assert max(terms) <= 2 * 300 + SENSORS
    assert len(plans) > 2
    # Planning anew now and then is no burden for the server.
    assert requests <= 2 * evaluations


def test_what_many_streams_keep(tmp_path: Path) -> None:
    """Pages and connections are shared: what comes with each stream is its rows and its plan."""
    server = LiveServer(tmp_path, NAMES, max_age=3600)
    server.publish_rounds(PERIOD, values)
    with server.client() as client:
        tracemalloc.start()
        try:
            # The first one brings the pages, and code that had not run before.
            streams = [iter(client.stream(QUERY)) for _ in range(1 + STREAMS)]
            assert len(next(streams[0]).added) == SENSORS
            before = tracemalloc.get_traced_memory()[0]
            for updates in streams[1:]:
                assert len(next(updates).added) == SENSORS
            kept = (tracemalloc.get_traced_memory()[0] - before) / STREAMS
        finally:
            tracemalloc.stop()
    server.close()
    print(f"{STREAMS} streams of {SENSORS} rows: {kept / 1000:.0f} kB each")  # noqa: T201 - with -s
    assert kept < 250_000
