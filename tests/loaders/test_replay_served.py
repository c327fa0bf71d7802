"""The replay with the real server, in process and on one clock."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Fact, Interval, Label, Labelling
from annotations.methods import method_named
from annotations.methods.base import Naming
from loaders.dynamic import LabelledFacts, history, write_labelled
from loaders.publisher import Publisher
from loaders.replay import ReplaySettings, replay
from loaders.sources.base import FeedBatch
from loaders.sources.flights import Flights
from tests.loaders.recordings import write_flights
from tests.support.served import BASE, TOKEN, Served

NAMING = Naming("http://example.org/facts/", "http://example.org/trains")
ROWS = [
    "2013-06-01,600,25,UA,1,EWR,IAH",
    "2013-06-01,605,-5,UA,2,EWR,IAH",
    "2013-06-01,610,,AA,3,EWR,IAH",
    "2013-06-01,650,90,AA,4,EWR,XXX",
]


def publisher(served: Served, token: str = TOKEN) -> Publisher:
    return Publisher(BASE + "trains", served.clock, token, served.session)


@pytest.mark.parametrize("labelling", ["expiration", "interval"])
def test_the_server_shows_what_the_feed_says(tmp_path: Path, labelling: Labelling) -> None:
    feed = Flights(write_flights(tmp_path / "flights", ROWS), period=timedelta(minutes=5))
    polls = 0
    with Served(tmp_path) as served:

        def compare(batch: FeedBatch, label: Label) -> None:
            nonlocal polls
            polls += 1
            page = served.page("trains/plain")
            assert sorted(page.data) == sorted(batch.quads)
            # The labels say when the next poll of the sped-up feed comes.
            assert label.end - served.clock.now() == timedelta(minutes=1)
            assert page.objects("http://example.org/temporal#earliestExpiration") == [
                label.end.isoformat().replace("+00:00", "Z")
            ]

        settings = ReplaySettings(speed=5, labelling=labelling)
        summary = replay(feed, publisher(served), served.clock, settings, on_batch=compare)
        span = feed.span(None, None)
        assert span is not None
        assert summary.batches == polls == span.polls
        # A minute later nothing holds any more.
        served.clock.advance_to(served.clock.now() + timedelta(minutes=1))
        assert served.page("trains/plain").total == 0


def test_recorded_facts_are_served_as_they_held(tmp_path: Path) -> None:
    feed = Flights(write_flights(tmp_path / "flights", ROWS), period=timedelta(minutes=5))
    facts = list(history(feed.batches(None, None)))
    write_labelled(facts, tmp_path / "parts" / "part-00000.nq", method_named("rdf-1.2"), NAMING)
    recorded = LabelledFacts(str(tmp_path / "parts"))
    begun = {batch.since: batch.at for batch in recorded.batches(None, None)}
    assert len(begun) > 3
    with Served(tmp_path) as served:

        def compare(batch: FeedBatch, label: Label) -> None:
            assert batch.since is not None
            assert isinstance(label, Interval)
            assert label.end - label.start == (batch.end - batch.since) / 5
            if begun[batch.since] == batch.at:
                holding = [each.quad for each in facts if Fact.valid_at(each, batch.since)]
                assert sorted(served.page("trains/plain").data) == sorted(holding)

        settings = ReplaySettings(speed=5, labelling="interval")
        replay(recorded, publisher(served), served.clock, settings, on_batch=compare)


def test_a_state_of_an_acknowledged_batch_repeats_nothing(tmp_path: Path) -> None:
    feed = Flights(write_flights(tmp_path / "flights", ROWS), period=timedelta(minutes=5))
    with Served(tmp_path) as served:
        first = next(batch for batch in feed.batches(None, None) if batch.quads)
        until = first.at + timedelta(minutes=5)
        settings = ReplaySettings(until=until, state=tmp_path / "state")
        assert replay(feed, publisher(served), served.clock, settings).batches == 1
        assert served.live is not None
        sequence = served.live.snapshot(served.clock.now()).sequence
        # The state is lost in a crash after the answer: the same batch is sent once more.
        text = (tmp_path / "state").read_text()
        acknowledged = text.partition('"acknowledged": ')[2].rstrip("}")
        (tmp_path / "state").write_text(text.replace(acknowledged, "null"))
        assert replay(feed, publisher(served), served.clock, settings).batches == 1
        assert served.live.snapshot(served.clock.now()).sequence == sequence
