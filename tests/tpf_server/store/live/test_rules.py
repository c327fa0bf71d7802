"""Retention, durability and work of the live store."""

import random
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from annotations.instants import to_micros
from annotations.labels import Expiration, Fact, Interval
from annotations.methods.base import NAMED_GRAPHS, FactPattern
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.postgres import Address, Addresses
from tpf_server.errors import PublishError, SnapshotExpired, StoreClosedError, StoreError
from tpf_server.store.live.log import LiveSettings, Record
from tpf_server.store.protocols import Snapshot, Standing

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = FactPattern()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def expiring(end: float, s: int = 0, o: int = 0, graph: str = "") -> Fact:
    quad = Quad(Term(f"<http://x/{s}>"), Term("<http://x/p>"), Term(f'"{o}"'), Term(graph))
    return Fact(quad, Expiration(at(end)))


def holding(start: float, end: float, s: int = 0, o: int = 0) -> Fact:
    return Fact(expiring(0, s, o).quad, Interval(at(start), at(end)))


def test_a_batch_identifier_counts_once(address: Address) -> None:
    with_id = [expiring(10)]
    store = address.open()
    first = store.publish(with_id, at(0), "a")
    assert not first.repeated
    store.publish([expiring(10, s=1)], at(1), "b")
    store.close()
    store = address.open()
    again = store.publish([expiring(20, s=9)], at(2), "a")
    assert again.repeated
    assert (again.sequence, again.added) == (first.sequence, 1)
    # Whoever got no answer may ask again when the labels have ended.
    assert store.publish(with_id, at(60), "a") == again
    with pytest.raises(PublishError, match="ended at"):
        store.publish(with_id, at(60), "c")
    assert store.count(ALL, store.snapshot(at(2))) == 2
    store.close()
    with pytest.raises(StoreClosedError):
        store.snapshot(at(3))


@pytest.mark.parametrize("failing", [1, 0], ids=["the next batches", "all anew"])
def test_what_could_not_be_read_of_the_log_is_read_at_the_next_look(
    address: Address, failing: int
) -> None:
    store, other = address.open(), address.open()
    other.publish([expiring(10)], at(0))
    assert store.snapshot(at(0)).sequence == 1
    for number in range(1, 4):
        other.publish([expiring(10, s=number)], at(0))
    if not failing:
        with other._log.writing():
            other._log.drop(2, 0)
    read = store._log.read

    def fail(after: int, limit: int | None = None) -> Iterator[Record]:
        if after == failing:
            raise StoreError("the disk does not answer")
        return read(after, limit)

    with patch.object(store._log, "read", fail), pytest.raises(StoreError, match="disk"):
        store.snapshot(at(0))
    snapshot = store.snapshot(at(0))
    assert (snapshot.sequence, store.count(ALL, snapshot)) == (4, 4 if failing else 2)
    store.close()
    other.close()


def test_followers_of_a_log_that_dropped_batches_are_told_once(address: Address) -> None:
    told: list[object] = []

    class Following:
        def begin(self, versions: Sequence[Standing]) -> None:
            told.append([each.quad.subject for each in versions])

        def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
            told.append((removed, added))

    store, other = address.open(), address.open()
    other.publish([expiring(10)], at(0))
    assert store.snapshot(at(0)).sequence == 1
    store.follow(Following())
    store.listen(lambda *batch: told.append(batch))
    told.clear()
    for number in range(1, 4):
        other.publish([expiring(10, s=number)], at(0))
    with other._log.writing():
        other._log.drop(2, 0)
    assert store.snapshot(at(0)).sequence == 4
    assert told == [[expiring(10, s=n).quad.subject for n in (2, 3)], (4, None)]
    store.close()
    other.close()


def test_refused_batches_change_nothing_and_say_why(address: Address) -> None:
    store = address.open()
    good = expiring(10)
    overlapping = [holding(1, 5, s=3), holding(4, 9, s=3, o=1)]
    store.publish([holding(20, 30, s=4)], at(0))
    for bad, reason in (
        ([Fact(good.quad)], "needs a time label: <http://x/0>"),
        ([expiring(-1, s=2)], "ended at"),
        ([holding(-9, -1, s=2)], "ended at"),
        (overlapping, "overlap"),
        ([holding(10, 21, s=4)], "overlaps that of"),
    ):
        with pytest.raises(PublishError, match=reason):
            store.publish([good, *bad], at(0), "id")
    assert store.snapshot(at(0)).sequence == 1
    assert store.count(ALL, store.snapshot(at(0))) == 0
    assert store.publish([good], at(0), "id").added == 1
    store.close()


def test_the_key_is_fixed_when_the_store_is_made(address: Address) -> None:
    address.open(LiveSettings(key="triple")).close()
    with pytest.raises(StoreError, match="'triple'"):
        address.open()


def test_graphs_are_told_apart(address: Address) -> None:
    store = address.open()
    store.publish([expiring(9), expiring(9, graph="<http://x/g>")], at(0))
    snapshot = store.snapshot(at(0))
    for graph, count in (
        (None, 2),
        (DEFAULT_GRAPH, 1),
        (NAMED_GRAPHS, 1),
        (Term("<http://x/g>"), 1),
    ):
        assert store.count(FactPattern(graph=graph), snapshot) == count
    store.close()


def test_retention_lets_go_in_memory_and_in_the_file(address: Address) -> None:
    settings = LiveSettings(retention=timedelta(seconds=5))
    store = address.open(settings)
    dice = random.Random(1)
    lasting = [expiring(10_000, s=n) for n in range(90_000, 90_050)]
    store.publish(lasting, at(0))
    pinned: dict[Snapshot, list[Fact]] = {}
    for second in range(1, 300):
        facts = [
            expiring(second + dice.randint(2, 9), s=dice.randint(0, 60), o=second) for _ in range(1)
        ]
        facts += [expiring(second + 3, s=100 + second * 10 + n, o=second) for n in range(9)]
        store.publish(facts, at(second))
        snapshot = store.snapshot(at(second))
        pinned[snapshot] = list(store.facts(ALL, snapshot, 0, 10_000))
        for old, known in pinned.items():
            if old.instant >= to_micros(at(second - 5)):
                assert list(store.facts(ALL, old, 0, 10_000)) == known
    now = store.snapshot(at(299))
    with pytest.raises(SnapshotExpired):
        store.count(ALL, now._replace(sequence=200))
    with pytest.raises(SnapshotExpired):
        store.count(ALL, now._replace(sequence=now.sequence + 1))
    index, log = store._index, store._log
    assert index.rows.live_rows < 250
    assert len(index.rows.terms) < 400
    assert len(index.rows.start) <= 1024
    assert log.entries() < 2 * index.rows.live_rows + 1500
    assert next(log.read(0)).sequence > 100
    again = address.open(settings)
    assert list(again.facts(ALL, now, 0, 10_000)) == pinned[now]
    assert {fact.quad for fact in lasting} <= {fact.quad for fact in pinned[now]}
    # The reopened store goes on where the other is, with numbers that the other understands.
    again.publish([expiring(500, s=n) for n in range(5000, 5100)], at(300))
    present = store.snapshot(at(300))
    assert store.facts(ALL, present, 0, 10_000) == again.facts(ALL, present, 0, 10_000)
    again.close()
    store.close()


def test_retention_goes_on_when_nobody_publishes(address: Address) -> None:
    settings = LiveSettings(retention=timedelta(seconds=5))
    store, other = address.open(settings), address.open(settings)
    for second in range(3):  # each replaces the one before
        facts = [expiring(second + 4, s=n, o=second) for n in range(3000)]
        store.publish(facts, at(second))
    store.publish([expiring(1000, s=-1)], at(4))
    assert not store.retire(at(5))  # a batch may come and do it
    snapshot = store.snapshot(at(9))
    done = []
    for tenth in range(90, 400):
        done += [tenth for one in (store, other) if one.retire(at(tenth / 10))]
        assert store.count(ALL, store.snapshot(at(tenth / 10))) == 1
        if tenth < 140:
            assert store.count(ALL, snapshot) == 1
    assert 3 <= len(done) < 30
    assert store.snapshot(at(40)).sequence == 4 + len(done)
    assert store.modified(store.snapshot(at(40))) == at(4)
    for one in (store, other, address.open(settings)):
        assert one.count(ALL, one.snapshot(at(40))) == 1
        assert one._index.rows.live_rows == 1
        assert one._log.entries() < 2 * 1024
        one.close()


def test_a_log_that_fails_in_the_midst_of_a_batch_costs_no_numbers(address: Address) -> None:
    settings = LiveSettings(retention=timedelta(seconds=1))
    store = address.open(settings)
    for second in range(12):
        store.publish([expiring(second + 5, s=n, o=second) for n in range(200)], at(second))
    rows = len(store._index.rows.start)
    failing = StoreError("the disk is gone")
    for attempt in range(50):
        facts = [expiring(50, s=9000 + n) for n in range(200)]
        with (
            patch.object(store._cleaner, "_carry", side_effect=failing),
            pytest.raises(StoreError, match="the disk is gone"),
        ):
            store.publish(facts, at(12 + attempt / 50))
    with patch.object(store._log, "append", side_effect=failing), pytest.raises(StoreError):
        store.publish([expiring(50, s=9000 + n) for n in range(200)], at(13))
    store.publish([expiring(50, s=n, o=1) for n in range(200)], at(20))
    for second in range(21, 40):
        store.publish([expiring(50, s=n, o=second) for n in range(200)], at(second))
    assert store.count(ALL, store.snapshot(at(40))) == 200
    assert store._index.rows.live_rows <= 200 * 3
    assert len(store._index.rows.start) < rows + 1000
    store.close()


def test_history_is_kept_or_retired_as_set(address: Address) -> None:
    settings = LiveSettings(retention=timedelta(seconds=5), history=timedelta(seconds=50))
    store = address.open(settings)
    for second in range(200):
        store.publish([holding(second, second + 99, o=second)], at(second))
    snapshot = store.snapshot(at(160.5))
    assert [fact.quad.object for fact in store.facts(ALL, snapshot, 0, 9)] == ['"160"']
    with pytest.raises(SnapshotExpired):
        store.count(ALL, store.snapshot(at(100)))
    assert store._index.rows.live_rows < 120
    store.close()


def test_the_cost_of_a_question_does_not_grow_with_the_history(addresses: Addresses) -> None:
    work = {}
    for length in (500, 8000):
        settings = LiveSettings(accept_past=True, retention=timedelta(seconds=1))
        store = addresses.new().open(settings)
        facts = [holding(n, n + 1, s=n % 4, o=n) for n in range(length) if n % 4 == 0]
        facts += [holding(n, n + 10, s=100 + n) for n in range(length)]
        store.publish(facts, at(length + 9))
        subject = FactPattern(subject=Term("<http://x/0>"))
        counts = []
        for instant in (at(length / 2), at(length - 1), at(100)):
            snapshot = store.snapshot(instant)
            rows, reader = store._index.rows, store._reader
            before = rows.probes
            assert store.count(subject, snapshot) == int((instant - START).seconds % 4 == 0)
            store.next_change(subject, snapshot)
            counts.append(rows.probes - before)
            store.count(ALL, store.snapshot(at(length)))  # the view stands at the present
            numbers = store._index.numbers(ALL)
            assert numbers is not None
            timeline = reader._views.timeline(reader._views.get(numbers, snapshot))
            timeline.probes = 0
            assert store.count(ALL, snapshot) in (10, 11)
            assert 0 < timeline.probes < 600
        work[length] = max(counts)
        store.close()
    assert work[8000] <= work[500] + 20


def test_who_asks_about_the_past_takes_no_view_from_the_present(address: Address) -> None:
    store = address.open()
    store.publish([holding(0, 1000, s=n) for n in range(100)], at(0))
    assert store.count(ALL, store.snapshot(at(500))) == 100
    views = store._reader._views._views
    (view,) = views.values()
    for second in range(20):
        for instant in (at(second), at(500 + second)):
            assert store.count(ALL, store.snapshot(instant)) == 100
    assert list(views.values()) == [view]
    store.close()


def test_readers_never_see_half_a_batch(address: Address) -> None:
    one, two = address.open(), address.open()
    size, rounds = 100, 40
    one.publish([expiring(1e6, s=n) for n in range(size)], at(0))
    problems: list[object] = []
    done = threading.Event()

    def read() -> None:
        last = {id(one): 0, id(two): 0}
        while not done.is_set():
            for store in (one, two):
                snapshot = store.snapshot(at(1))
                facts = store.facts(ALL, snapshot, 0, 1000)
                objects = {fact.quad.object for fact in facts}
                if len(facts) != size or len(objects) != 1 or store.count(ALL, snapshot) != size:
                    problems.append((snapshot, len(facts), objects))
                if snapshot.sequence < last[id(store)]:
                    problems.append("went back")
                last[id(store)] = snapshot.sequence

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, rounds):
        store = (one, two)[number % 2]
        store.publish([expiring(1e6, s=n, o=number) for n in range(size)], at(1))
        for seen in (one, two):  # an acknowledged batch is seen at once, through either
            assert seen.snapshot(at(1)).sequence == number + 1
    done.set()
    for reader in readers:
        reader.join()
    assert not problems
    one.close()
    two.close()


def test_the_next_change_of_an_object_does_not_grow_with_its_slot(addresses: Addresses) -> None:
    work = {}
    for length in (500, 8000):
        settings = LiveSettings(accept_past=True)
        store = addresses.new().open(settings)
        rare = {0, length - 1}
        facts = [holding(n, n + 1, o=-1 if n in rare else n) for n in range(length)]
        store.publish(facts, at(length + 9))
        pattern = FactPattern(subject=Term("<http://x/0>"), object=Term('"-1"'))
        rows = store._index.rows
        store.next_change(pattern, store.snapshot(at(length + 9)))  # the first one makes a view
        assert store.next_change(pattern, store.snapshot(at(0))) == at(1)
        before = rows.probes
        assert store.next_change(pattern, store.snapshot(at(5))) == at(length - 1)
        assert store.next_change(pattern, store.snapshot(at(length - 0.5))) == at(length)
        assert store.next_change(pattern, store.snapshot(at(length + 1))) is None
        work[length] = rows.probes - before
        store.close()
    assert work[8000] <= work[500] + 20


def test_a_label_is_found_without_a_look_at_the_others(address: Address) -> None:
    store = address.open()
    store.publish([expiring(100 + n, s=n) for n in range(3000)], at(0))
    store.publish([holding(10, 4000 + n, s=10_000 + n) for n in range(50)], at(0))
    snapshot = store.snapshot(at(1))
    pattern = FactPattern(end=at(1100))
    assert store.count(pattern, snapshot) == 1
    rows, numbers = store._index.rows, store._index.numbers(ALL)
    assert numbers is not None
    timeline = store._reader._views.timeline(store._reader._views.get(numbers, snapshot))
    store.publish([expiring(1100, s=20_000), expiring(9000, s=1000)], at(2))
    before = rows.probes
    with patch.object(timeline, "_build", side_effect=AssertionError("laid out again")):
        newer = store.snapshot(at(3))
        for asked, expected in ((snapshot, ["<http://x/1000>"]), (newer, ["<http://x/20000>"])):
            facts = store.facts(pattern, asked, 0, 9)
            assert [fact.quad.subject for fact in facts] == expected
            assert store.earliest_end(pattern, asked) == at(1100)
        coming = FactPattern(start=at(10), labelling="interval")
        assert store.count(coming, newer) == 0
    assert store.next_change(coming, newer) == at(10)
    assert store.count(coming, store.snapshot(at(10))) == 50
    assert rows.probes - before < 200  # of the 50 intervals, not of the 3,000 others
    store.close()
