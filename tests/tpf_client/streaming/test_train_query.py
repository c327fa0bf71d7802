"""The train query of the paper, kept up to date over the real server, against another engine.

Source of the query: Taelman et al. 2016, Listing 1.1.
"""

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.terms import Quad, Term, iri, literal
from tests.support.live_server import START, LiveServer
from tests.support.oracle import select, store_of

TRAIN = "http://example.org/train#"
XSD = "http://www.w3.org/2001/XMLSchema#"
DEPARTURES = 100
PERIOD = timedelta(seconds=10)
QUERY = """
PREFIX t: <http://example.org/train#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
SELECT ?delay ?platform ?headSign ?routeLabel ?departureTime
WHERE {
  _:id t:delay ?delay.
  _:id t:platform ?platform.
  _:id t:departureTime ?departureTime.
  _:id t:headSign ?headSign.
  _:id t:routeLabel ?routeLabel.
  FILTER (?departureTime > "2015-12-08T10:20:00"^^xsd:dateTime).
  FILTER (?departureTime < "2015-12-08T11:20:00"^^xsd:dateTime).
}"""
VIEWS = ("plain", "singleton-property", "named-graph", "implicit-graph", "reification", "rdf-1.2")


def _static() -> list[Quad]:
    quads = []
    for number in range(DEPARTURES):
        train = iri(f"http://example.org/departure/{number}")
        time = f"2015-12-08T10:{number % 60:02}:00"
        quads += [
            Quad(train, iri(TRAIN + "headSign"), literal(f"Gent {number % 7}")),
            Quad(train, iri(TRAIN + "routeLabel"), literal(f"IC {number}")),
            Quad(train, iri(TRAIN + "departureTime"), literal(time, datatype=XSD + "dateTime")),
        ]
    return quads


class Feed:
    """Publishes delays and platforms every period; every fifth departure pauses in turn.

    Args:
        server: where.
        labelling: the kind of labels.
        early: whether some facts are replaced before they expire.
    """

    def __init__(self, server: LiveServer, labelling: Labelling, *, early: bool = True) -> None:
        self._early = early
        self._server = server
        self._labelling = labelling
        self._round = 0
        self.facts: list[Fact] = []
        self()

    def __call__(self) -> None:
        now = self._server.clock.now()
        facts = []
        for number in range(DEPARTURES):
            if (number + self._round) % 5 == 0:
                continue
            # Two thirds hold for a period, the others longer: then they change early.
            end = now + PERIOD * (1 + (self._early and number % 3 == 0))
            label = Expiration(end) if self._labelling == "expiration" else Interval(now, end)
            if self._labelling == "interval" and end > now + PERIOD and self._round % 2:
                continue
            train = iri(f"http://example.org/departure/{number}")
            delay = literal(str(number // 10 + self._round), datatype=XSD + "integer")
            facts += [
                Fact(Quad(train, iri(TRAIN + "delay"), delay), label),
                Fact(Quad(train, iri(TRAIN + "platform"), literal(str(number % 12))), label),
            ]
        self._server.publish(facts)
        keys = {fact.quad[:2] for fact in facts}
        if self._labelling == "expiration":
            self.facts = [fact for fact in self.facts if fact.quad[:2] not in keys]
        self.facts += facts
        self._round += 1
        self._server.clock.schedule(now + PERIOD, self)

    def expected(self, at: datetime) -> "Counter[frozenset[tuple[str, Term]]]":
        quads = _static() + [fact.quad for fact in self.facts if fact.valid_at(at)]
        rows = select(store_of(dict.fromkeys(quads)), QUERY)
        return Counter(
            frozenset((name.lstrip("?"), term) for name, term in row.items()) for row in rows
        )


def _rows(solutions: object) -> "Counter[frozenset[tuple[str, Term]]]":
    counted: Counter[frozenset[tuple[str, Term]]] = Counter()
    for solution in solutions:  # type: ignore[attr-defined]
        names = [name[1:] for name in solution._variables]
        counted[frozenset((n, t) for n, t in zip(names, solution.row, strict=True) if t)] += 1
    return counted


@pytest.fixture(params=["expiration", "interval"])
def labelling(request: pytest.FixtureRequest) -> Labelling:
    return request.param


@pytest.mark.parametrize("view", VIEWS)
def test_every_answer_is_that_of_the_facts_valid_then_and_takes_at_most_three_requests(
    tmp_path: Path, view: str, labelling: Labelling
) -> None:
    with LiveServer(tmp_path, _static()) as server, server.client(f"/{view}") as client:
        feed = Feed(server, labelling)
        seen: Counter[frozenset[tuple[str, Term]]] = Counter()
        instants, requests = [], [0]
        for _, update in zip(range(9), client.stream(QUERY, quiet=True), strict=False):
            assert update.error is None
            instants.append(update.at)
            added, removed = _rows(update.added), _rows(update.removed)
            assert not added & removed
            assert not removed - seen
            seen = seen + added - removed
            assert seen == _rows(update.results)
            assert seen == feed.expected(update.at)
            assert seen
            requests.append(len(server.log))
    assert instants[:4] == [START + n * PERIOD for n in range(4)]
    first, *others = [after - before for before, after in pairwise(requests)]
    assert len(others) == 8
    assert first <= 8
    # Once a minute what is static is asked for again: is it still the same?
    assert sorted(others)[-2] <= 3
    assert max(others) <= 5
