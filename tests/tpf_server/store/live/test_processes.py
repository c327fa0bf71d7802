"""Processes over one live store see each other's batches at once."""

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest

from annotations.labels import Expiration, Fact, Interval
from annotations.methods.base import FactPattern
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tests.support.postgres import Address
from tpf_server.store.live.log import LiveSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
PREDICATES = [Term(f"<http://x/p{n}>") for n in range(3)]
SPAWN = multiprocessing.get_context("spawn")
SETTINGS = LiveSettings(retention=timedelta(seconds=20))


def serve(address: Address, questions: Connection) -> None:
    """Run a worker: call the store's method named in each message."""
    store = address.open(SETTINGS)
    while (question := questions.recv()) is not None:
        name, arguments = question
        questions.send(getattr(store, name)(*arguments))
    store.close()


class Worker:
    """A process with a store of its own."""

    def __init__(self, address: Address) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=serve, args=(address, theirs))
        self._process.start()
        theirs.close()

    def ask(self, name: str, *arguments: object) -> Any:
        self._pipe.send((name, arguments))
        return self.answer()

    def begin(self, name: str, *arguments: object) -> None:
        self._pipe.send((name, arguments))

    def answer(self) -> Any:
        assert self._pipe.poll(60), "a worker does not answer"
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join(60)
        self._pipe.close()


@pytest.fixture
def workers(address: Address) -> Iterator[list[Worker]]:
    address.open(SETTINGS).close()
    with ExitStack() as stack:
        made = [Worker(address) for _ in range(3)]
        for worker in made:
            stack.callback(worker.close)
        yield made


def batch(dice: random.Random, now: datetime, number: int) -> list[Fact]:
    found = {}
    for _ in range(dice.randint(1, 60)):
        subject, predicate = dice.randrange(300), dice.randrange(3)
        quad = Quad(Term(f"<http://x/s{subject}>"), PREDICATES[predicate], Term(f'"{number % 7}"'))
        end = now + timedelta(seconds=dice.randint(1, 40))
        label = Interval(now, end) if predicate == 2 else Expiration(end)
        found[subject, predicate] = Fact(quad, label)
    return list(found.values())


def test_workers_agree_on_every_count_and_page(workers: list[Worker]) -> None:
    dice = random.Random(1)
    now = START
    facts = batch(dice, now, 0)
    for number in range(1, 100):
        publisher = dice.choice(workers)
        gone = [Fact(fact.quad) for fact in facts[: dice.randrange(5)]]
        facts = batch(dice, now, number)
        assert publisher.ask("publish", facts, now, None, gone).sequence == number
        snapshots = [worker.ask("snapshot", now) for worker in workers]
        assert {one.sequence for one in snapshots} == {number}  # seen at once
        if number % 5:
            continue
        snapshot = dice.choice(snapshots)
        label = facts[0].label
        for pattern in (
            FactPattern(),
            FactPattern(predicate=dice.choice(PREDICATES)),
            FactPattern(subject=facts[0].quad.subject),
            FactPattern(object=facts[0].quad.object, labelling="interval"),
            FactPattern(identity=identity(facts[0])),
            FactPattern(end=label.end if label else None),
        ):
            counts = [worker.ask("count", pattern, snapshot) for worker in workers]
            assert len(set(counts)) == 1
            assert counts[0] or pattern.labelling
            for offset in (0, 50):
                pages = [worker.ask("facts", pattern, snapshot, offset, 50) for worker in workers]
                assert pages[0] == pages[1] == pages[2]
                assert len(pages[0]) == max(0, min(50, counts[0] - offset))
            for question in ("next_change", "earliest_end"):
                answers = {worker.ask(question, pattern, snapshot) for worker in workers}
                assert len(answers) == 1
        now += timedelta(seconds=dice.randint(0, 9))
    # Also if they publish at the same time.
    sequences = []
    for number in range(30):
        for worker in workers:
            worker.begin("publish", batch(dice, now, number), now)
        sequences += [worker.answer().sequence for worker in workers]
    assert sorted(sequences) == list(range(100, 190))
    (snapshot,) = {worker.ask("snapshot", now) for worker in workers}
    pages = [worker.ask("facts", FactPattern(), snapshot, 0, 10_000) for worker in workers]
    assert pages[0] == pages[1] == pages[2]
    assert len(pages[0]) > 500
