"""Past instants: once, and replayed, through the server's history or from intervals in the data."""

import tempfile
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import METHODS, method_named
from annotations.methods.base import Naming
from annotations.terms import Quad, Term, iri, literal
from tests.support.examples import examples
from tests.support.facts import older_intervals, points
from tests.support.live_server import LiveServer
from tests.support.oracle import Publications
from tests.support.timelines import START, Timeline, timelines
from tests.tpf_client.streaming.test_timelines import (
    SECOND,
    UNIVERSE,
    Engine,
    selects,
    with_always,
)
from tpf_client import Client, Solutions
from tpf_client.errors import HistoryError, QuerySyntaxError, UnsupportedQueryError

NAMING = Naming("http://foreign.test/", "http://foreign.test/data")
METHOD_NAMES = [method.name for method in METHODS]
histories = st.one_of(
    timelines("interval", max_batches=5, universe=UNIVERSE),
    timelines("instant", max_batches=5, universe=UNIVERSE),
)


def _served(folder: Path, timeline: Timeline, *, page_labels: bool) -> LiveServer:
    """A server that took in the whole timeline as it happened."""
    server = LiveServer(folder, timeline.static, page_labels=page_labels, page_size=3)
    server.clock.advance_to(START)
    for at, facts in timeline.batches:
        server.clock.advance_to(at)
        server.publish(facts)
    server.clock.advance_to(server.clock.now() + timedelta(hours=1))
    return server


def _written(timeline: Timeline) -> st.SearchStrategy[str]:
    """How its labels may be written."""
    labels = [fact.label for fact in timeline.publications().facts()]
    if all(isinstance(label, Interval) and label.instant for label in labels if label):
        return st.sampled_from(["instant", "instant", "interval"])
    return st.sampled_from(["interval", "older"])


def _foreign(folder: Path, timeline: Timeline, method: str, written: str) -> LiveServer:
    """A server of a file in which every version of every fact is annotated."""
    facts = timeline.publications().facts()
    quads = [quad for fact in facts for quad in method_named(method).encode(fact, NAMING)]
    if written != "interval":
        quads = older_intervals(quads) if written == "older" else points(quads)
    return LiveServer(folder, dict.fromkeys(quads), live=False, page_size=3)


def _check(server: LiveServer, path: str, model: Publications, query: str, at: datetime) -> None:
    engine = Engine(model)
    with server.client(path) as client:
        try:
            answer = client.query(query, at=at)
        except (QuerySyntaxError, UnsupportedQueryError):
            return
        assert isinstance(answer, Solutions)
        rows = Counter(tuple(solution.row) for solution in answer)
        assert rows == engine.answer(query, at), (query, at)


instants = st.integers(-2, 60).map(lambda halves: START + halves * SECOND / 2)


@examples(28)
@given(
    timeline=histories,
    query=selects,
    asked=st.lists(st.tuples(selects, instants), min_size=4, max_size=4),
    # Of a server with labels in its pages or without, or in the data of a file.
    method=st.sampled_from(["plain", "server", "plain", "server", *METHOD_NAMES]),
    view=st.sampled_from(["plain", *METHOD_NAMES]),
    data=st.data(),
)
def test_the_answer_of_then_once_and_replayed(
    timeline: Timeline,
    query: str,
    asked: list[tuple[str, datetime]],
    method: str,
    view: str,
    data: st.DataObject,
) -> None:
    timeline = with_always(timeline)
    written = data.draw(_written(timeline))
    # The fragment of a triple can carry one interval of this kind.
    quads = Counter(fact.quad for fact in timeline.publications().facts())
    assume(not (written == "older" and method == "implicit-graph" and max(quads.values()) > 1))
    model = timeline.publications()
    end = timeline.instants()[-1] + SECOND
    ours = method in ("server", "plain")
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(Path(folder), timeline, page_labels=method == "plain")
        if ours
        else _foreign(Path(folder), timeline, method, written) as server,
    ):
        for each, at in asked:
            _check(server, f"/{view}" if ours else "", model, each, at)
        stood = server.clock.now()
        path = ("/plain" if method == "plain" else "/named-graph") if ours else ""
        with server.client(path) as client:
            try:
                stream = client.stream(
                    query, start=START - SECOND, until=end, every=1 if ours else None, quiet=True
                )
            except (QuerySyntaxError, UnsupportedQueryError):
                return
            seen: Counter[tuple[str | None, ...]] = Counter()
            engine = Engine(model)
            for update in stream:
                seen.update(tuple(solution.row) for solution in update.added)
                seen.subtract(tuple(solution.row) for solution in update.removed)
                seen = +seen
                assert seen == engine.answer(query, update.at)
                # It holds until the next look.
                if not ours and update.valid_until is not None:
                    just_before = update.valid_until - timedelta(microseconds=1)
                    assert seen == engine.answer(query, just_before)
        # A replay waits for nobody.
        assert server.clock.now() == stood


FACT = Fact(
    Quad(iri("http://e/a"), iri("http://e/p"), literal("x")),
    Expiration(START + timedelta(days=365)),
)
QUERY = "SELECT * { ?s <http://e/p> ?o }"


def test_expirations_alone_tell_no_history(tmp_path: Path) -> None:
    quads = method_named("named-graph").encode(FACT, NAMING)
    with (
        LiveServer(tmp_path, quads, live=False) as server,
        server.client() as client,
        pytest.raises(HistoryError, match="since when"),
    ):
        client.query(QUERY, at=START)


def test_a_replay_needs_an_end(tmp_path: Path) -> None:
    with Client("http://server.test/") as client, pytest.raises(ValueError, match="until"):
        client.stream(QUERY, start=START)


def test_a_replay_looks_at_the_very_instants() -> None:
    """Nobody else looks then, so that it is not put off by chance."""
    with Client("http://server.test/") as client:
        schedule = client.stream(QUERY, start=START, until=START).streamer._how.schedule
    soon = START + timedelta(milliseconds=1)
    assert schedule.next(START, soon) == soon


@pytest.mark.parametrize("older", [False, True])
def test_what_is_wrong_with_intervals_is_said_once(tmp_path: Path, older: bool) -> None:
    """Two intervals that overlap, or two of the older kind on one node, and one that is right."""
    right = Fact(FACT.quad, Interval(START, START + timedelta(hours=1)))
    other = FACT.quad._replace(subject=iri("http://e/b"))
    pair = [
        Fact(other, Interval(START - timedelta(hours=each), START + timedelta(hours=each)))
        for each in (2, 1)
    ]
    method = method_named("implicit-graph" if older else "named-graph")
    quads = [quad for fact in (right, *pair) for quad in method.encode(fact, NAMING)]
    if older:
        quads = older_intervals(quads)
    server = LiveServer(tmp_path, dict.fromkeys(quads), live=False)
    server.clock.advance_to(START)
    with server.client() as client:
        updates = client.stream(QUERY, every=60, until=START + timedelta(minutes=5), quiet=True)
        told = [(len(update.results), update.warnings) for update in updates]
        # What was said is not kept: in years these may be many.
        assert updates.streamer.running is not None
        assert updates.streamer.running.evaluation.warnings == {}
    server.close()
    rows = 1 if older else 2
    assert [count for count, _ in told] == [rows] * 6
    warnings = [warning for _, all_ in told for warning in all_]
    assert len(warnings) == 1
    assert "http://e/b" in warnings[0]


def test_labels_of_nothing_are_said_once(tmp_path: Path) -> None:
    tmp = "http://example.org/temporal#"
    end = literal("2030-01-01T00:00:00Z", datatype="http://www.w3.org/2001/XMLSchema#dateTime")
    quads = [FACT.quad, Quad(iri("http://e/nothing"), iri(tmp + "expiration"), end)]
    with LiveServer(tmp_path, quads, live=False) as server, server.client() as client:
        stream = client.stream(
            QUERY, keep_checking=10, quiet=True, until=server.clock.now() + timedelta(minutes=1)
        )
        updates = list(stream)
    assert len(updates) == 7
    assert [len(update.results) for update in updates] == [1] * 7
    (warning,) = [warning for update in updates for warning in update.warnings]
    assert "http://e/nothing" in warning


def test_labels_of_nothing_do_not_hide_others(tmp_path: Path) -> None:
    tmp = "http://example.org/temporal#"
    quads = [
        Quad(iri("http://e/nothing"), iri(tmp + "expiration"), FACT.quad.object),
        *method_named("named-graph").encode(FACT, NAMING),
    ]
    with LiveServer(tmp_path, quads, live=False) as server, server.client() as client:
        server.clock.advance_to(START)
        update = next(iter(client.stream(QUERY)))
        assert [solution.valid_until for solution in update.results] == [START + timedelta(365)]


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_of_labels_of_both_kinds_only_intervals_tell_history(tmp_path: Path, method: str) -> None:
    """What had expired did not hold; of what had not, nobody knows."""
    interval = Interval(START, START + timedelta(hours=1))
    other, old = iri("http://e/other"), iri("http://e/old")
    facts = [
        Fact(FACT.quad, interval),
        Fact(FACT.quad._replace(predicate=other), FACT.label),
        Fact(FACT.quad._replace(predicate=old), Expiration(START)),
    ]
    quads = [quad for fact in facts for quad in method_named(method).encode(fact, NAMING)]
    server = LiveServer(tmp_path, dict.fromkeys(quads), live=False)
    at = START + timedelta(minutes=5)
    with server.client() as client:
        assert len(list(client.select(QUERY, at=at))) == 1
        assert not list(client.select(f"SELECT * {{ ?s {old} ?o }}", at=at))
        for query in (f"SELECT * {{ ?s {other} ?o }}", "SELECT * { ?s ?p ?o }"):
            with pytest.raises(HistoryError, match="since when"):
                list(client.select(query, at=at))
            with pytest.raises(HistoryError):
                list(client.stream(query, start=at, until=at + SECOND))
    server.close()


EXPIRING, LASTING = iri("http://e/expiring"), iri("http://e/lasting")


def test_a_server_does_not_know_since_when_facts_that_expire_held(tmp_path: Path) -> None:
    """Published at 0 with an interval and an expiration, which is renewed after a minute."""
    server = LiveServer(tmp_path, [FACT.quad])
    server.clock.advance_to(START)
    minute = timedelta(minutes=1)

    def publish(value: str) -> None:
        now = server.clock.now()
        subject = iri("http://e/s")
        server.publish(
            [
                Fact(Quad(subject, EXPIRING, literal(value)), Expiration(now + 10 * minute)),
                Fact(Quad(subject, LASTING, literal(value)), Interval(now, now + 10 * minute)),
            ]
        )

    publish("1")
    server.clock.advance_to(START + minute)
    publish("2")
    server.clock.advance_to(START + minute + 10 * SECOND)

    def ask(predicate: Term, at: datetime, path: str = "") -> list[str]:
        with server.client(path) as client:
            return [
                str(row["o"]) for row in client.select(f"SELECT ?o {{ ?s {predicate} ?o }}", at=at)
            ]

    before, between, after = START - SECOND, START + 59 * SECOND, START + minute + SECOND
    for path in ("", "/plain"):
        assert ask(LASTING, before, path) == []
        assert ask(LASTING, between, path) == ["1"]
        assert ask(LASTING, after, path) == ["2"]
        # Nothing has changed since; and the state before that is retained still.
        assert ask(EXPIRING, after, path) == ["2"]
        assert ask(EXPIRING, between, path) == ["1"]
        with pytest.raises(
            HistoryError, match="since when a fact holds; ask for 2026-01-01T12:00:00Z"
        ):
            ask(EXPIRING, before, path)
        assert ask(FACT.quad.predicate, before, path) == ["x"]
    # Five minutes later neither state is retained, but the newest has not changed.
    server.clock.advance_to(START + 3 * minute)
    publish_other = Fact(Quad(iri("http://e/s"), LASTING, literal("3")),
                         Interval(server.clock.now(), START + 9 * minute))  # fmt: skip
    server.publish([publish_other])
    server.clock.advance_to(START + 8 * minute + SECOND)
    server.publish([publish_other._replace(quad=publish_other.quad._replace(subject=LASTING))])
    assert ask(EXPIRING, after) == ["2"]
    for at in (before, between):
        with pytest.raises(HistoryError, match="since when"):
            ask(EXPIRING, at)
    assert ask(LASTING, between) == ["1"]
    # When it has expired and was let go of, nobody knows either.
    server.clock.advance_to(START + 20 * minute)
    server.publish([publish_other._replace(label=Expiration(server.clock.now() + minute))])
    server.clock.advance_to(START + 21 * minute)
    with pytest.raises(HistoryError):
        ask(EXPIRING, after)
    server.close()


def test_a_server_that_shows_another_instant_is_found_out(tmp_path: Path) -> None:
    with LiveServer(tmp_path, [FACT.quad]) as server:
        server.clock.advance_to(START)
        server.publish([FACT])

        def deaf(environ: Any, start: Any) -> Any:
            asked = environ["QUERY_STRING"].split("&")
            kept = "&".join(each for each in asked if not each.startswith("at="))
            return server.app({**environ, "QUERY_STRING": kept}, start)

        for at in (START - SECOND, START + SECOND):
            with (
                server.client(app=deaf) as client,
                pytest.raises(HistoryError, match="instead of the instant that was asked"),
            ):
                list(client.select(QUERY, at=at))
