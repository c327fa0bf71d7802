"""The recorded day of the railway, played to a server in process on a manual clock."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Labelling
from loaders.sources.base import FeedBatch
from loaders.sources.irail import Irail
from tests.support.oracle import Publications
from tests.support.served import Served

RECORDING = Path(__file__).parents[3] / "shared/data/irail/data_6_12_2014.zip"
needs_recording = [
    pytest.mark.skipif(not RECORDING.is_file(), reason="the recording of the railway is not here"),
    # One worker reads it, once.
    pytest.mark.xdist_group("recording of the railway"),
]


class Day:
    """The static facts of the recording, and a batch per poll."""

    def __init__(self) -> None:
        feed = Irail(RECORDING)
        (piece,) = feed.pieces(1)
        self.static = list(dict.fromkeys(feed.quads(piece)))
        self.batches = list(feed.batches(None, None))


_read = cache(Day)


@pytest.fixture(scope="session")
def day() -> Day:
    """The recording, read once."""
    return _read()


def facts_of(batch: FeedBatch, labelling: Labelling) -> list[Fact]:
    """Return the facts of a poll, which hold until the next one."""
    label = (
        Expiration(batch.until) if labelling == "expiration" else Interval(batch.at, batch.until)
    )
    return [Fact(quad, label) for quad in batch.quads]


def play(
    batches: Iterable[FeedBatch],
    served: Served,
    labelling: Labelling,
    model: Publications | None = None,
) -> None:
    """Publish every batch at its instant, to the server and the model."""
    live, clock = served.live, served.clock
    assert live is not None
    for batch in batches:

        def publish(batch: FeedBatch = batch) -> None:
            facts = facts_of(batch, labelling)
            live.publish(facts, clock.now())
            if model is not None:
                model.publish(facts, clock.now())

        clock.schedule(batch.at, publish)
