"""Continuous queries and history over annotated files that the reference server hosts."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact, Interval
from annotations.methods import method_named
from annotations.methods.base import Naming
from annotations.terms import Quad, iri, literal
from experiments.free_port import free_port
from tests.peers.test_reference_server import reference_server
from tests.support.oracle import select, store_of
from tests.support.peers import LDF_SERVER
from tests.support.running_server import n_quads
from tpf_client import Client, Update
from tpf_client.errors import HistoryError

pytestmark = [pytest.mark.peers, LDF_SERVER.skip]

EX = "http://example.org/"
METHODS = ("singleton-property", "named-graph", "implicit-graph", "reification")
"""Those whose annotations are quads of RDF 1.1, which is what this server holds."""

STEP = timedelta(seconds=4)
STATIC = [Quad(iri(f"{EX}t{n}"), iri(EX + "sign"), literal(f"to {n}")) for n in range(8)]
QUERY = f"""PREFIX : <{EX}>
SELECT * {{ ?t :sign ?sign ; :delay ?delay OPTIONAL {{ ?t :platform ?platform }}
FILTER (?delay != "never") }}"""
PAST = datetime(2015, 12, 8, 10, 20, tzinfo=UTC)


def _fact(subject: int, predicate: str, value: str, label: Expiration | Interval) -> Fact:
    return Fact(Quad(iri(f"{EX}t{subject}"), iri(EX + predicate), literal(value)), label)


INTERVALS = [
    _fact(n, predicate, f"{step}", Interval(PAST + step * STEP, PAST + (step + 1) * STEP))
    for n in range(8)
    for predicate in ("delay", "platform")
    for step in range(6)
    if (n + step) % 3 and (predicate == "delay" or step % 2)
]


class Reference:
    """What the server hosts, and where.

    Args:
        url: of the server.
        expiring: the facts that expire while the test looks.
    """

    def __init__(self, url: str, expiring: list[Fact]) -> None:
        self.url = url
        self.expiring = expiring


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    folder = tmp_path_factory.mktemp("annotated")
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    began = datetime.now(UTC)
    expiring = [
        _fact(n, predicate, f"{n}", Expiration(began + timedelta(seconds=30 + 2 * n + k)))
        for n in range(8)
        for k, predicate in enumerate(("delay", "platform"))
    ]
    files = {}
    for method in METHODS:
        for labelling, facts in (("interval", INTERVALS), ("expiration", expiring)):
            name = f"{method}-{labelling}"
            naming = Naming(f"{url}facts/", url + name)
            quads = [quad for fact in facts for quad in method_named(method).encode(fact, naming)]
            files[name] = folder / f"{name}.nq"
            files[name].write_text(n_quads([*STATIC, *dict.fromkeys(quads)]), encoding="utf-8")
    with reference_server(folder, port, files, "NQuadsDatasource"):
        yield Reference(url, expiring)


def _expected(facts: list[Fact], update: Update) -> Counter[tuple[str | None, ...]]:
    quads = [*STATIC, *(fact.quad for fact in facts if fact.valid_at(update.at))]
    rows = select(store_of(quads), QUERY)
    return Counter(tuple(row.get(f"?{name}") for name in update.variables) for row in rows)


class Follower:
    """Applies what updates say, and compares each state with the other engine's."""

    def __init__(self, facts: list[Fact]) -> None:
        self._facts = facts
        self._seen: Counter[tuple[str | None, ...]] = Counter()
        self.wrong: list[str] = []
        self.states: list[int] = []

    def __call__(self, update: Update) -> None:
        self._seen.update(tuple(solution.row) for solution in update.added)
        self._seen.subtract(tuple(solution.row) for solution in update.removed)
        self._seen = +self._seen
        expected = _expected(self._facts, update)
        if update.error is not None or self._seen != expected:
            self.wrong.append(f"{update.at}: {update.error} {self._seen} instead of {expected}")
        self.states.append(self._seen.total())


@pytest.mark.parametrize("method", METHODS)
def test_history_is_replayed_from_intervals(reference: Reference, method: str) -> None:
    follower = Follower(INTERVALS)
    with Client(f"{reference.url}{method}-interval") as client:
        for update in client.stream(QUERY, start=PAST - STEP, until=PAST + 7 * STEP, quiet=True):
            follower(update)
        assert follower.wrong == []
        # Before, six states, after.
        assert len(follower.states) == 8
        assert follower.states[0] == follower.states[-1] == 0
        assert min(follower.states[1:-1]) > 0
        at = PAST + STEP / 2
        assert len(list(client.select(QUERY, at=at))) == follower.states[1]


@pytest.mark.parametrize("method", METHODS)
def test_facts_go_when_they_expire(reference: Reference, method: str) -> None:
    follower = Follower(reference.expiring)
    ends = [fact.label.end for fact in reference.expiring if fact.label]
    clock = ManualClock(min(ends) - STEP)
    seen: list[datetime] = []
    with Client(f"{reference.url}{method}-expiration", clock=clock) as client:
        for update in client.stream(QUERY, until=max(ends) + STEP):
            follower(update)
            seen.append(update.at)
    assert follower.wrong == []
    assert follower.states[-1] == 0
    # Each of the rows goes when its delay ends.
    delays = [f.label.end for f in reference.expiring if f.label and "delay" in f.quad.predicate]
    assert set(delays) <= set(seen)


def test_expirations_tell_no_history(reference: Reference) -> None:
    with (
        Client(f"{reference.url}named-graph-expiration") as client,
        pytest.raises(HistoryError, match="since when"),
    ):
        client.query(QUERY, at=PAST)
