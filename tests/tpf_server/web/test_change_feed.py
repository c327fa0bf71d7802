import random
import threading
import weakref
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from annotations.clock import ManualClock
from annotations.labels import Expiration, Fact, Interval
from annotations.terms import Quad, Term
from tpf_server.store.live.store import LiveStore, open_live_store
from tpf_server.store.protocols import Snapshot
from tpf_server.web import change_feed
from tpf_server.web.change_feed import ChangeFeed, ChangeFeeds

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def some_fact(chance: random.Random, now: datetime) -> Fact:
    row = Quad(
        Term(f"<urn:s{chance.randrange(3)}>"),
        Term(f"<urn:p{chance.randrange(5)}>"),
        Term(f'"{chance.randrange(3)}"'),
    )
    end = now + timedelta(seconds=chance.randrange(1, 30))
    return Fact(row, Expiration(end) if chance.random() < 0.7 else Interval(now, end))


def said(store: LiveStore, now: datetime) -> dict[str, set[Fact]]:
    """Return the current facts by predicate."""
    from annotations.methods.base import FactPattern

    found = store.facts(FactPattern(), store.snapshot(now), 0, 1000)
    by: dict[str, set[Fact]] = {}
    for fact in found:
        by.setdefault(fact.quad.predicate, set()).add(fact)
    return by


@pytest.mark.parametrize("seed", range(5))
def test_whatever_changed_is_told_wherever_one_resumes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = ManualClock(BEGIN)
    stores = [open_live_store(tmp_path / "live.sqlite") for _ in range(2)]
    feed = ChangeFeed(stores[0], clock)
    states = [said(stores[0], BEGIN)]
    for _ in range(40):
        store, now = chance.choice(stores), clock.now()
        facts = {fact.quad[:2]: fact for fact in (some_fact(chance, now) for _ in range(3))}
        if chance.random() < 0.3:
            store.publish([], now, withdrawn=[Fact(fact.quad) for fact in facts.values()])
        else:
            store.publish(list(facts.values()), now)
        stores[0].snapshot(now)
        states.append(said(stores[1], now))
        assert stores[0].snapshot(now).sequence == len(states) - 1
        after = chance.randrange(len(states) - 1)
        # A batch without effects is none to hear of.
        last, predicates = feed._after(after, 0) or (len(states) - 1, frozenset())
        assert last == len(states) - 1
        assert predicates is not None
        # Of states at one instant, so that no label ended in between.
        for one, other in zip(states[after:], states[after + 1 :], strict=False):
            changed = {p for p in one.keys() | other.keys() if one.get(p) != other.get(p)}
            assert changed <= predicates
    for store in stores:
        store.close()


def test_a_batch_that_comes_while_a_feed_begins_is_told_once(tmp_path: Path) -> None:
    with closing(open_live_store(tmp_path / "live.sqlite")) as store:
        snapshot = store.snapshot
        batch = [some_fact(random.Random(0), BEGIN)]

        def snapshot_before_a_batch(instant: datetime) -> Snapshot:
            before = snapshot(instant)
            store.publish(batch, BEGIN)
            return before

        with patch.object(store, "snapshot", snapshot_before_a_batch):
            feed = ChangeFeed(store, ManualClock(BEGIN))
        assert feed._after(0, 0) == (1, frozenset({batch[0].quad.predicate}))
        assert feed._after(1, 0) is None


def test_a_log_that_begins_anew_while_a_feed_begins_has_changed_anything(tmp_path: Path) -> None:
    with closing(open_live_store(tmp_path / "live.sqlite")) as store:
        snapshot = store.snapshot

        def snapshot_before_another_log(instant: datetime) -> Snapshot:
            before = snapshot(instant)
            (listener,) = store._listeners.of_batches
            listener(7, None)
            return before

        with patch.object(store, "snapshot", snapshot_before_another_log):
            feed = ChangeFeed(store, ManualClock(BEGIN))
        assert feed._after(0, 0) == (7, None)


def test_a_feed_does_not_keep_a_store_that_a_reload_has_closed(tmp_path: Path) -> None:
    store = open_live_store(tmp_path / "live.sqlite")
    feeds = ChangeFeeds(ManualClock(BEGIN), 1)
    feed = feeds.of(store)
    kept = weakref.ref(store)
    store.close()
    del store
    assert kept() is None
    # Who asked before and is answered now hears the end.
    assert len(list(feed.events(None))) == 1
    assert feed.closed


def test_who_was_away_for_too_long_is_told_that_anything_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "_KEPT", 3)
    clock = ManualClock(BEGIN)
    store = open_live_store(tmp_path / "live.sqlite")
    feed = ChangeFeed(store, clock)
    chance = random.Random(0)
    for _ in range(5):
        store.publish(
            [some_fact(chance, BEGIN)._replace(label=Expiration(clock.now() + timedelta(9)))],
            clock.now(),
        )
        clock.advance_to(clock.now() + timedelta(seconds=1))
    last = store.snapshot(clock.now()).sequence
    kept, lost = feed._after(last - 3, 0), feed._after(last - 4, 0)
    assert kept is not None
    assert lost is not None
    assert kept[1] is not None
    assert lost == (last, None)
    # A retry of the same predicates in so much text that nobody wants to read it.
    monkeypatch.setattr(change_feed, "_MOST_TEXT", 1)
    assert '"predicates": null' in change_feed._event(last, kept[1])
    store.close()


def test_batches_of_other_processes_are_noticed_while_somebody_follows(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN)
    store, other = (open_live_store(tmp_path / "live.sqlite") for _ in range(2))
    feed = ChangeFeed(store, clock)
    events = feed.events(None)
    assert '"predicates": []' in next(events)
    fact = Fact(
        Quad(Term("<urn:s>"), Term("<urn:p>"), Term('"1"')), Expiration(BEGIN + timedelta(1))
    )
    other.publish([fact], BEGIN)
    assert '"predicates": ["urn:p"]' in next(each for each in events if each[0] != ":")
    # A store that is closed ends it.
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.extend(events))
    reading.start()
    store.close()
    reading.join(60)
    assert not reading.is_alive()
    assert feed.closed
    other.close()


def test_one_thread_looks_however_often_followers_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[Callable[[], None]] = []

    class Thread:
        """Begins when it is told to."""

        def __init__(self, *, target: Callable[[], None], **_: object) -> None:
            looking.append(target)

        def start(self) -> None:
            pass

    monkeypatch.setattr("tpf_server.web.change_feed.threading.Thread", Thread)
    store = open_live_store(tmp_path / "live.sqlite")
    feed = ChangeFeed(store, ManualClock(BEGIN))

    def come_and_go() -> None:
        events = feed.events(None)
        next(events)
        events.close()  # type: ignore[attr-defined]

    for _ in range(3):
        come_and_go()
    assert len(looking) == 1
    looking[0]()  # which finds that nobody follows
    come_and_go()
    assert len(looking) == 2
    store.close()
