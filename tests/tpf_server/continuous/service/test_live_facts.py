"""Valid facts kept by changes equal those of the store at every instant."""

import contextlib
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from annotations.instants import to_micros
from annotations.labels import Expiration, Fact, FactKey, Interval
from annotations.methods.base import FactPattern
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_server.continuous.service.changing_graphs import LiveFacts
from tpf_server.errors import PublishError
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore, open_live_store, standing

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
EVERYTHING = FactPattern()


def quad(chance: random.Random) -> Quad:
    s, p, o = (Term(f"<urn:{kind}{chance.randrange(3)}>") for kind in "spo")
    return Quad(s, p, o, chance.choice([DEFAULT_GRAPH, Term("<urn:g>")]))


def publish(store: LiveStore, chance: random.Random, now: datetime) -> None:
    facts = []
    for _ in range(chance.randrange(1, 4)):
        start = now + timedelta(seconds=chance.randrange(-3, 6))
        end = now + timedelta(seconds=chance.randrange(1, 9))
        label = Expiration(end) if chance.random() < 0.5 or start >= end else Interval(start, end)
        facts.append(Fact(quad(chance), label))
    with contextlib.suppress(PublishError):  # labels that overlap
        store.publish(facts, now)


def valid(store: LiveStore, now: datetime) -> set[Quad]:
    return {fact.quad for fact in store.facts(EVERYTHING, store.snapshot(now), 0, 1000)}


def follow(held: set[Quad], changes: Mapping[Quad, bool]) -> None:
    for each, there in changes.items():
        assert (each in held) != there
        (held.add if there else held.discard)(each)


@pytest.mark.parametrize("key", ["subject-predicate", "triple"])
@pytest.mark.parametrize("seed", range(6))
def test_what_holds_is_what_the_store_says(seed: int, key: FactKey, tmp_path: Path) -> None:
    """Facts are replaced, ended, corrected, retired, or begin later; time jumps."""
    chance = random.Random(seed)
    settings = LiveSettings(key=key, retention=timedelta(seconds=2))
    store = open_live_store(tmp_path / "live.sqlite", settings)
    now = BEGIN
    publish(store, chance, now)
    facts = LiveFacts()
    end = store.follow(facts)
    held: set[Quad] = set()
    for _ in range(60):
        if chance.random() < 0.5:
            publish(store, chance, now)
        if chance.random() < 0.6:
            now += timedelta(seconds=chance.choice([0.5, 1, 1, 4]))
        if chance.random() < 0.2:
            store.retire(now)
        if chance.random() < 0.7:
            follow(held, facts.changes(to_micros(now)))
            assert held == valid(store, now)
    facts.changes(to_micros(now))
    end()
    publish(store, chance, now)
    assert not facts.changes(to_micros(now))
    store.close()


def test_whoever_begins_anew_hears_what_is_different(tmp_path: Path) -> None:
    store = open_live_store(tmp_path / "live.sqlite")
    facts = LiveFacts()
    store.follow(facts)
    one, other = (Quad(Term("<urn:s>"), Term("<urn:p>"), Term(f'"{n}"')) for n in range(2))
    store.publish([Fact(one, Expiration(BEGIN + timedelta(seconds=5)))], BEGIN)
    assert facts.changes(to_micros(BEGIN)) == {one: True}
    (version,) = standing(store._index)
    facts.begin([version])
    assert facts.changes(to_micros(BEGIN)) == {}
    facts.begin([version._replace(quad=other)])
    assert facts.changes(to_micros(BEGIN)) == {one: False, other: True}
    assert facts.changes(to_micros(BEGIN + timedelta(seconds=5))) == {other: False}
    store.close()
