"""The live store against a naive model on random timelines."""

import itertools
from collections import Counter
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.instants import to_micros
from annotations.labels import Expiration, Fact, FactKey, Interval
from annotations.methods.base import FactPattern
from annotations.methods.names import identity
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.examples import examples
from tests.support.live_model import LiveModel, RefusedError
from tests.support.postgres import Addresses
from tpf_server.errors import PublishError
from tpf_server.store.live import reader as live_reader
from tpf_server.store.live import rows as live_rows
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import Snapshot

START = datetime(2026, 1, 1, tzinfo=UTC)
GRAPHS = [DEFAULT_GRAPH, Term("<http://x/g>")]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def quad(s: int = 0, p: int = 0, o: int = 0, g: int = 0) -> Quad:
    return Quad(Term(f"<http://x/s{s}>"), Term(f"<http://x/p{p}>"), Term(f'"{o}"'), GRAPHS[g])


REPEATING = [
    quad()._replace(object=quad().subject),
    quad()._replace(object=quad().predicate),
    quad(g=1)._replace(object=GRAPHS[1]),
    quad(s=1)._replace(predicate=quad(s=1).subject),
]
quads = st.one_of(
    st.builds(quad, o=st.integers(0, 2)),  # versions of one fact
    st.builds(quad, *(st.integers(0, n) for n in (1, 1, 2, 1))),
    st.sampled_from(REPEATING),
)


def labels(now: int) -> st.SearchStrategy[Expiration | Interval]:
    spans = st.tuples(st.integers(now - 12, now + 12), st.integers(1, 10))
    return st.one_of(
        st.integers(now - 1, now + 12).map(lambda end: Expiration(at(end))),
        spans.map(lambda span: Interval(at(span[0]), at(span[0] + span[1]))),
    )


class Publication(NamedTuple):
    """A batch, and the second at which it is published."""

    now: int
    facts: list[Fact]
    withdrawn: list[Fact]


@st.composite
def timelines(draw: st.DrawFn) -> list[Publication]:
    """Batches that add facts, and withdraw published and unknown ones."""
    now, batches = 0, []
    published: list[Quad] = [quad()]
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.integers(0, 6))
        facts = draw(st.lists(st.builds(Fact, quads, labels(now)), max_size=4))
        concerned = st.one_of(st.sampled_from(published), quads)
        gone = st.builds(Fact, concerned, st.one_of(st.none(), labels(now)))
        batches.append(
            Publication(now, facts, draw(st.one_of(st.just([]), st.lists(gone, max_size=3))))
        )
        published += [fact.quad for fact in facts]
    return batches


def patterns(model: LiveModel) -> list[FactPattern]:
    """Return every shape over the terms of some facts, with each identity and labelling."""
    found = [FactPattern(), FactPattern(subject=Term("<http://x/none>")), FactPattern(identity="0")]
    for life in model.lives[-2:]:
        for shape in itertools.product((False, True), repeat=4):
            s, p, o, g = (
                term if bound else None for term, bound in zip(life.fact.quad, shape, strict=True)
            )
            found.append(FactPattern(s, p, o, g))
        token = identity(life.fact)
        found += [FactPattern(identity=token), FactPattern(object=Term('"0"'), identity=token)]
    for pattern in found[:6]:
        found += [
            pattern._replace(labelling="expiration"),
            pattern._replace(labelling="interval"),
            pattern._replace(repeats=True),
        ]
    for life in model.lives[-3:]:
        label = life.fact.label
        assert label is not None
        found += [
            FactPattern(end=label.end),
            FactPattern(subject=life.fact.quad.subject, end=label.end),
            FactPattern(object=life.fact.quad.object, start=label.start, end=label.end),
            FactPattern(start=label.start, end=at(7)),
            FactPattern(identity=identity(life.fact), start=label.start, end=label.end),
            FactPattern(start=label.start, labelling="interval"),
            FactPattern(end=label.end, repeats=True),
            FactPattern(object=life.fact.quad.object, repeats=True, labelling="interval"),
        ]
    return list(dict.fromkeys(found))


def agree(store: LiveStore, model: LiveModel, snapshot: Snapshot, instant: datetime) -> None:
    everything = model.facts(FactPattern(), instant, snapshot.sequence)
    counted = {predicate: count for predicate, count, _ in store.predicates(snapshot) if count}
    assert counted == Counter(each.quad.predicate for each in everything)
    for pattern in {FactPattern(subject=each.quad.subject) for each in everything}:
        told = Counter(map(str, store.history(pattern, snapshot, 99)))
        begun = model.history(pattern, instant, snapshot.sequence)
        # Of what expires, as far as it is known when it was published.
        assert told <= Counter(map(str, begun))
        sure = [
            each for each in model.existing(pattern, snapshot.sequence)
            if isinstance(each.label, Interval) and each.label.start <= instant
        ]  # fmt: skip
        assert told >= Counter(map(str, sure))
        newest = FactPattern(pattern.subject, labelling="expiration")
        if snapshot.sequence == model.sequence and model.published[-1:] == [instant]:
            assert told >= Counter(
                map(str, model.history(newest, instant, model.sequence, model.sequence))
            )
        assert len(store.history(pattern, snapshot, 1)) <= 1
    for pattern in patterns(model):
        expected = model.facts(pattern, instant, snapshot.sequence)
        found = list(store.facts(pattern, snapshot, 0, 1000))
        assert sorted(map(str, found)) == sorted(map(str, expected)), (pattern, instant)
        assert store.count(pattern, snapshot) == len(expected)
        half = len(expected) // 2
        pages = [
            *store.facts(pattern, snapshot, 0, half),
            *store.facts(pattern, snapshot, half, 99),
        ]
        assert pages == found
        for answer, wanted in (
            (store.next_change, model.next_change),
            (store.earliest_end, model.earliest_end),
        ):
            got = answer(pattern, snapshot)
            assert got == wanted(pattern, instant, snapshot.sequence), (pattern, instant, answer)


def publish_both(store: LiveStore, model: LiveModel, batch: Publication) -> None:
    now = at(batch.now)
    try:
        model.publish(batch.facts, now, batch.withdrawn)
    except (RefusedError, ValueError):
        with pytest.raises(PublishError):
            store.publish(batch.facts, now, withdrawn=batch.withdrawn)
    else:
        receipt = store.publish(batch.facts, now, withdrawn=batch.withdrawn)
        assert receipt.sequence == model.sequence


def sized(few: int, remembered: int, children: int, leap: int) -> ExitStack:
    """Make thresholds so small that tests reach every way of answering."""
    stack = ExitStack()
    for module, name, value in (
        (live_reader, "_FEW", few),
        (live_reader, "_LONG", children if few else 1024),
        (live_reader, "_REMEMBERED", remembered),
        (live_reader, "_LEAP", leap * 1_000_000),
        (live_reader, "_CHILDREN", children),
        (live_reader, "_MISSES", children - 2),
        (live_reader, "_FEW_INSTANTS", remembered),
        (live_reader, "_STEP", 1),
        (live_rows, "_FEW_KEYS", few),
        (live_rows, "_FEW", children),
    ):
        stack.enter_context(patch.object(module, name, value))
    return stack


sizes = st.one_of(
    st.just((64, 4096, 16, 300)),
    st.tuples(st.just(0), st.integers(1, 8), st.integers(2, 3), st.integers(1, 9)),
)


@given(
    batches=timelines(),
    key=st.sampled_from(["subject-predicate", "triple"]),
    accept_past=st.booleans(),
    size=sizes,
    data=st.data(),
)
@examples(12)
def test_any_snapshot_shows_what_the_model_shows(
    addresses: Addresses,
    batches: list[Publication],
    key: FactKey,
    accept_past: bool,
    size: tuple[int, int, int, int],
    data: st.DataObject,
) -> None:
    settings = LiveSettings(key=key, accept_past=accept_past, retention=timedelta(days=1))
    model = LiveModel(key, accept_past)
    with sized(*size):
        address = addresses.new()
        # An example that runs out of data is left by an exception.
        with closing(address.open(settings)) as one, closing(address.open(settings)) as two:
            for batch in batches:
                now = batch.now
                publish_both(data.draw(st.sampled_from([one, two])), model, batch)
                # The newest state is seen at once through either, now and at some other instant.
                for store in (one, two):
                    snapshot = store.snapshot(at(now))
                    assert snapshot == Snapshot(to_micros(at(now)), model.sequence)
                    agree(store, model, snapshot, at(now))
            for _ in range(3):
                instant = at(data.draw(st.integers(-15, 90)))
                sequence = data.draw(st.integers(0, model.sequence))
                for store in (one, two):
                    agree(store, model, Snapshot(to_micros(instant), sequence), instant)
        with closing(address.open(settings)) as again:
            agree(again, model, Snapshot(to_micros(instant), sequence), instant)
            agree(again, model, again.snapshot(instant), instant)
