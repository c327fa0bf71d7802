"""A board of departures: the recorded railway if present, otherwise the recorded flights."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pyoxigraph

from annotations.instants import format_instant
from annotations.terms import Quad
from experiments.workloads import named_queries
from loaders.sources.base import FeedBatch
from loaders.sources.flights import Flights
from loaders.sources.irail import Irail

RECORDING_VARIABLE = "TPF_IRAIL"
_RECORDING = Path(__file__).parents[3] / "shared/data/irail/data_6_12_2014.zip"
# A summer evening with thunderstorms: many delays that grow.
_FLIGHTS_START = datetime(2013, 7, 22, 21, 0, tzinfo=UTC)

_QUERY = named_queries("board.rq")["SPARQL"]


def train_query(start: datetime, until: datetime) -> str:
    """Return the departures between two instants, with their details.

    Source: Taelman et al. 2016, Listing 1.1.
    """
    return _QUERY.format(start=format_instant(start), until=format_instant(until))


@dataclass(frozen=True, slots=True)
class Recording:
    """A feed of so many polls, each of whose facts hold until the next."""

    source: str
    static: Sequence[Quad]
    batches: Sequence[FeedBatch]

    @property
    def start(self) -> datetime:
        return self.batches[0].at

    @property
    def query(self) -> str:
        """Return the train query over the whole board: all departures within a day."""
        margin = timedelta(days=1)
        return train_query(self.start - margin, self.batches[-1].until + margin)


def recording(polls: int) -> Recording:
    """Return the first polls of a recording, and their departures' static facts.

    The railway's is in ``../shared`` beside the project, or in ``TPF_IRAIL``.
    """
    path = Path(os.environ.get(RECORDING_VARIABLE, _RECORDING))
    feed: Irail | Flights
    start: datetime | None
    if path.exists():
        feed, start = Irail(path), None
    else:
        start = _FLIGHTS_START
        feed = Flights(start=start, until=start + timedelta(hours=24))
    batches = list(islice(feed.batches(start, None), polls))
    mentioned = {quad.subject for batch in batches for quad in batch.quads}
    static = dict.fromkeys(
        quad for piece in feed.pieces(1) for quad in feed.quads(piece) if quad.subject in mentioned
    )
    return Recording(feed.name, list(static), batches)


class Answers:
    """The right answer of a query after each poll, by another engine."""

    def __init__(self, recorded: Recording, query: str) -> None:
        self._recorded = recorded
        self._query = query
        self._answers: dict[int, list[tuple[str | None, ...]]] = {}

    def after(self, poll: int) -> list[tuple[str | None, ...]]:
        """Return the answer while a poll's facts hold: rows in the query's order, sorted."""
        if poll not in self._answers:
            store = pyoxigraph.Store()
            quads = [*self._recorded.static, *self._recorded.batches[poll].quads]
            text = "".join(f"{q.subject} {q.predicate} {q.object} .\n" for q in quads)
            store.load(text.encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
            solutions = store.query(self._query)
            assert isinstance(solutions, pyoxigraph.QuerySolutions)
            self._answers[poll] = sorted(
                (tuple(None if term is None else str(term) for term in row) for row in solutions),
                key=str,
            )
        return self._answers[poll]
