"""Memory of a live store does not grow with updates, in any process."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval
from annotations.methods.base import FactPattern
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.store.live import reader as live_reader
from tpf_server.store.live.index import RetirementQueue
from tpf_server.store.live.log import LiveSettings, Record
from tpf_server.store.live.rows import Rows
from tpf_server.store.live.sqlite_log import SqliteLog
from tpf_server.store.live.store import Cleaner, LiveStore, open_live_store
from tpf_server.store.protocols import Snapshot

START = datetime(2026, 1, 1, tzinfo=UTC)
PREDICATE = Term("<x:p>")
FACTS, IN_A_BATCH, ROUNDS = 200, 50, 120
BATCHES = FACTS // IN_A_BATCH * ROUNDS
SECONDS = 2
"""How long replaced versions are kept: the store holds those of two rounds beside the newest."""


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def fact(number: int, value: int, until: datetime) -> Fact:
    return Fact(Quad(Term(f"<x:s{number}>"), PREDICATE, Term(f'"{value}"')), Expiration(until))


def publish(store: LiveStore, rounds: int, first: int = 0) -> Iterator[datetime]:
    """Renew all facts each second; labels end long after replacement."""
    for number in range(first, first + rounds):
        for low in range(0, FACTS, IN_A_BATCH):
            now = at(number + low / FACTS)
            until = now + timedelta(days=1)
            store.publish([fact(n, number, until) for n in range(low, low + IN_A_BATCH)], now)
            yield now


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[LiveStore, LiveStore]]:
    """Two stores over one log: a publisher and a follower."""
    settings = LiveSettings(retention=timedelta(seconds=SECONDS))
    opened = [open_live_store(tmp_path / "live.sqlite", settings) for _ in range(2)]
    yield opened[0], opened[1]
    for store in opened:
        store.close()


def test_what_waits_for_retention(stores: tuple[LiveStore, LiveStore]) -> None:
    writer, follower = stores
    most = dict.fromkeys(stores, 0)
    for now in publish(writer, ROUNDS):
        follower.snapshot(now)
        for store in stores:
            most[store] = max(most[store], len(store._index.retirement))
    assert FACTS * ROUNDS == 24_000
    # Replaced versions of two seconds; ends of the newest, as many left behind, and some slack.
    for store in stores:
        assert store._index.rows.live_rows <= (SECONDS + 2) * FACTS
        assert most[store] <= (SECONDS + 2) * FACTS + 3 * FACTS + 1024 + IN_A_BATCH


def test_no_batch_looks_at_all_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looked_at: list[int] = []
    row_in_use = Rows.row_in_use

    def counted(rows: Rows, row: int) -> bool:
        looked_at[-1] += 1
        return row_in_use(rows, row)

    def tidy(due: RetirementQueue, work: int) -> None:
        looked_at.append(0)
        with monkeypatch.context() as context:
            context.setattr(Rows, "row_in_use", counted)
            plain_tidy(due, work)

    plain_tidy = RetirementQueue.tidy
    monkeypatch.setattr(RetirementQueue, "tidy", tidy)
    settings = LiveSettings(retention=timedelta(seconds=SECONDS))
    store = open_live_store(tmp_path / "live.sqlite", settings)
    for _ in publish(store, ROUNDS):
        pass
    store.close()
    assert len(looked_at) == BATCHES
    assert sum(looked_at) > 10_000  # all were looked at, many times over
    # Added, removed, retired, carried: fewer than 5 for each fact of a batch, 4 looks for each.
    assert max(looked_at) <= 4 * 5 * IN_A_BATCH + 64 + 1


def test_no_batch_decodes_more_than_it_must(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Large batches are at the start of the log, as after a load."""
    decoded: list[int] = []
    carry = Cleaner._carry

    def counted(cleaner: Cleaner, *arguments: object) -> object:
        decoded.append(0)
        return carry(cleaner, *arguments)  # type: ignore[arg-type]

    class Counting(SqliteLog):
        def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
            for record in super().read(after, limit):
                if decoded:
                    decoded[-1] += record.entries
                yield record

    monkeypatch.setattr(Cleaner, "_carry", counted)
    log = Counting(tmp_path / "live.sqlite")
    store = LiveStore(log, LiveSettings(retention=timedelta(seconds=SECONDS)))
    large = 1000
    for first in range(0, 4 * large, large):
        store.publish([fact(n, 0, at(9e6)) for n in range(10_000 + first, 11_000 + first)], at(0))
    for _ in publish(store, ROUNDS, first=1):
        pass
    store.close()
    assert large <= max(decoded) < 2 * large


def test_names_and_timelines_that_nobody_asks_for_again(
    stores: tuple[LiveStore, LiveStore],
) -> None:
    writer, follower = stores
    for _ in publish(writer, 3):
        pass
    now = follower.snapshot(at(3))
    known = follower.facts(FactPattern(), now, 0, 1)[0]
    everything = FactPattern()

    def ask(snapshot: Snapshot) -> None:
        named = follower.facts(FactPattern(identity=identity(known)), snapshot, 0, 9)
        assert named == ([known] if snapshot == now else [])
        # Far ahead, so that it is the timeline that answers.
        later = Snapshot(snapshot.instant + 10 * 60 * 10**6, snapshot.sequence)
        assert follower.count(everything, later) == FACTS

    ask(now)
    reader, names = follower._reader, follower._index._names
    (pattern,) = timelines = reader._views._timelines
    for second in publish(writer, ROUNDS, first=3):
        follower.snapshot(second)
        assert names._added <= 1024 + IN_A_BATCH
        assert pattern not in timelines or len(timelines[pattern]._recent) <= 1024 + IN_A_BATCH
    assert names._bits is None
    assert not timelines
    ask(follower.snapshot(at(3 + ROUNDS)))


def test_answers_that_nobody_asks_for_again_also_empty_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reader, "_KEPT", 1000)
    store = open_live_store(tmp_path / "live.sqlite")
    store.publish([Fact(fact(n, 0, START).quad, Interval(START, at(9))) for n in range(99)], START)
    for second in range(100):
        assert store.count(FactPattern(), store.snapshot(at(-second - 1))) == 0
    assert store._reader.ways["timeline"] > 50
    assert len(store._reader._answers) <= 10
    store.close()


def _expiring(name: str, end: int) -> Fact:
    return Fact(Quad(Term(f"<x:{name}>"), PREDICATE, Term('"1"')), Expiration(at(end)))


def test_what_ended_goes_however_little_comes(tmp_path: Path) -> None:
    settings = LiveSettings(retention=timedelta(seconds=SECONDS))
    store = open_live_store(tmp_path / "live.sqlite", settings)
    store.publish([_expiring(str(number), 1) for number in range(1_000)], at(0))
    for second in range(10, 10 + 8 * SECONDS):
        store.publish([_expiring("other", second + 2)], at(second))
    assert store._index.rows.live_rows <= 2 * SECONDS + 2
    store.close()
