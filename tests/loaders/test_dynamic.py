"""Dynamic facts and streams as files; that they are read back by the method and by a server."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import pyoxigraph as ox
import pytest
from hypothesis import given

from annotations.labels import Fact, overlaps
from annotations.methods import METHODS
from annotations.methods.method import Method
from annotations.terms import Quad, Term
from loaders.dynamic import (
    FeedStream,
    NumberedBatch,
    history,
    naming_of,
    placed_history,
    write_facts,
    write_streams,
)
from loaders.errors import OutputError
from loaders.sources.base import FeedBatch
from loaders.sources.irail import Irail
from loaders.sources.taxi import Taxi
from tests.loaders.recordings import entry, write_directory
from tests.loaders.sources.test_taxi import EXAMPLE, LATER
from tests.support.oracle import quad_of
from tests.support.served import BASE, NOON, TOKEN, Served

BEGIN = datetime(2015, 12, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def fact_of(subject: int, value: int) -> Quad:
    return Quad(Term(f"<http://e/{subject}>"), Term("<http://e/p>"), Term(f'"{value}"'))


class Recorded:
    """A feed out of a list of batches."""

    name = "recorded"

    def __init__(self, batches: Sequence[FeedBatch]) -> None:
        self._batches = batches

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        return iter(self._batches)


@st.composite
def feeds(draw: st.DrawFn) -> list[FeedBatch]:
    instants = sorted(draw(st.sets(st.integers(0, 20), min_size=2, max_size=8)))
    batches = []
    for at, following in pairwise(instants):
        said = draw(st.dictionaries(st.integers(0, 2), st.integers(0, 2), max_size=3))
        quads = tuple(fact_of(subject, value) for subject, value in said.items())
        holds = draw(st.none() | st.integers(1, 8))
        start = BEGIN + at * MINUTE
        end = None if holds is None else start + holds * MINUTE
        batches.append(FeedBatch(start, BEGIN + following * MINUTE, quads, end))
    return batches


def says(batches: list[FeedBatch], now: datetime) -> set[Quad]:
    """What holds at an instant, straight from the rules."""
    held: dict[tuple[str, str], tuple[Quad, datetime]] = {}
    for batch in batches:
        if batch.at <= now:
            for quad in batch.quads:
                before = held.get((quad.subject, quad.predicate))
                end = batch.end
                if before is not None and before[0] == quad and before[1] >= batch.at:
                    end = max(end, before[1])
                held[quad.subject, quad.predicate] = (quad, end)
    return {quad for quad, end in held.values() if now < end}


@given(feeds())
def test_a_history_says_at_every_instant_what_the_feed_says(batches: list[FeedBatch]) -> None:
    facts = list(history(batches))
    assert not list(overlaps(facts))
    for minute in range(30):
        now = BEGIN + minute * MINUTE
        assert {fact.quad for fact in facts if fact.valid_at(now)} == says(batches, now)


def test_what_is_repeated_is_one_fact() -> None:
    batches = [
        FeedBatch(BEGIN + n * MINUTE, BEGIN + (n + 1) * MINUTE, (fact_of(1, 7),)) for n in range(9)
    ]
    (fact,) = history(batches)
    assert fact.label is not None
    assert (fact.label.start, fact.label.end) == (BEGIN, BEGIN + 9 * MINUTE)


class CountedInstant(int):
    """An instant that knows how often instants were compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedInstant.compared += 1
        return super().__lt__(other)


def test_work_for_a_statement_does_not_grow_with_what_holds() -> None:
    def work(count: int) -> int:
        """Of a feed whose every statement holds to the end of the day."""
        CountedInstant.compared = 0
        batches = [
            NumberedBatch(n, CountedInstant(n), CountedInstant(n + 86_400), [(0, fact_of(n, 1))])
            for n in range(count)
        ]
        assert len(list(placed_history(batches))) == count
        return CountedInstant.compared

    assert work(2_000) < 3 * work(1_000)


def recorded_board(tmp_path: Path) -> Irail:
    base = int(NOON.timestamp() * 1000)
    polls = {
        base: [entry("a", "0"), entry("b", "60", "2")],
        base + 60_000: [entry("a", "120"), entry("b", "60", "2")],
        base + 120_000: [entry("a", "cancel", ""), entry("b", "60", "3")],
    }
    return Irail(write_directory(tmp_path / "day", polls))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_server_takes_the_file_of_facts(tmp_path: Path, method: Method) -> None:
    feed = recorded_board(tmp_path)
    target = tmp_path / "out" / "facts.nq"
    naming = naming_of(BASE + "trains")
    wanted = sorted(history(feed.batches(None, None)))
    assert write_facts(feed, target, method, naming) == len(wanted) == 7
    quads = [quad_of(quad) for quad in ox.parse(path=target, format=ox.RdfFormat.N_QUADS)]
    assert sorted(method.decode(quads, naming)) == wanted
    with Served(tmp_path) as served:
        response = served.session.post(
            f"{BASE}trains/facts",
            data=target.read_bytes(),
            headers={"Content-Type": "application/n-quads", "Authorization": f"Bearer {TOKEN}"},
        )
        assert response.ok, response.text
        for minute in range(4):
            served.clock.advance_to(NOON + minute * MINUTE)
            now = served.clock.now()
            page = served.page("trains/plain")
            assert sorted(page.data) == sorted(f.quad for f in wanted if f.valid_at(now))


def test_streams_are_lines_of_timestamped_triples(tmp_path: Path) -> None:
    trips = tmp_path / "trips.csv"
    trips.write_text(EXAMPLE + LATER)
    assert write_streams(Taxi(trips), tmp_path / "streams") == 28
    lines = (tmp_path / "streams" / "trips.tsv").read_text().splitlines()
    first = lines[1].split("\t")
    assert first == [
        "1356998520000",
        "<http://example.org/taxi/trips/1>",
        "<http://example.org/taxi#taxi>",
        '"07290D3599E7A0D62097A346EFCC1FB5"',
    ]
    assert [int(line.split("\t")[0]) for line in lines] == [1356998520000] * 14 + [
        1356998580000
    ] * 14


def test_a_feed_as_a_stream(tmp_path: Path) -> None:
    feed = recorded_board(tmp_path)
    count = write_streams(FeedStream(feed), tmp_path / "streams")
    lines = (tmp_path / "streams" / "irail.tsv").read_text().splitlines()
    assert count == len(lines) == sum(len(batch.quads) for batch in feed.batches(None, None))


def test_a_failed_file_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "facts.nq"
    target.write_text("old")
    bad = recorded_board(tmp_path)
    bad.batches = lambda start, until: (each for each in [1 / 0])  # type: ignore[method-assign, misc]
    with pytest.raises(ZeroDivisionError):
        write_facts(bad, target, METHODS[0], naming_of(BASE))
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["day", "facts.nq"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_streams(FeedStream(bad), tmp_path / "file" / "streams")


def test_labels_of_a_file_are_instants_of_the_feed(tmp_path: Path) -> None:
    facts: list[Fact] = list(history(recorded_board(tmp_path).batches(None, None)))
    assert min(fact.label.start for fact in facts if fact.label and fact.label.start) == NOON
