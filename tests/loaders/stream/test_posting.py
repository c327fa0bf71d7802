"""Publication of a micro-batch by an executor."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from annotations.clock import Clock
from annotations.labels import Expiration
from loaders.publisher import Publisher
from loaders.stream import posting
from loaders.stream.posting import Outcome, ParsedRecord, posted_records
from loaders.stream.records import Publication
from tests.loaders.facts_server import Endpoint, facts_endpoint

END = Expiration(datetime(2099, 1, 1, tzinfo=UTC))


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    class Hasty(Publisher):
        def __init__(self, url: str, clock: Clock, token: str | None) -> None:
            super().__init__(url, clock, token, attempts=2)

    monkeypatch.setattr(posting, "Publisher", Hasty)
    with facts_endpoint() as found:
        yield found


def record(number: int, problem: str | None = None) -> ParsedRecord:
    body = f'<http://e/{number}> <http://e/p> "{number}" .\n'
    parsed = None if problem else Publication(body, END, 1)
    return ParsedRecord(f"r{number}", parsed, problem)


def post(endpoint: Endpoint, *records: ParsedRecord, token: str = "secret") -> list[Outcome]:
    rows = {"name": [each.name for each in records], "at": list(range(len(records)))}
    packed = [pickle.dumps(each) for each in records]
    batches = iter([pa.record_batch({**rows, "record": packed})])
    posted = posted_records(endpoint.url, token, "job-7", batches)
    return [pickle.loads(row) for batch in posted for row in batch.to_pydict()["outcome"]]


def test_records_go_in_order_under_the_same_names_again(endpoint: Endpoint) -> None:
    records = [record(0), record(1, "no fact"), record(2)]
    told = [Outcome("r0", 1), Outcome("r1", 0, "no fact"), Outcome("r2", 1)]
    endpoint.facts.faults = ["lost"]
    assert post(endpoint, *records) == told
    assert [posted.batch for posted in endpoint.facts.accepted] == ["job-7-0", "job-7-2"]
    # A task that Spark repeats.
    assert post(endpoint, *records) == told
    assert len(endpoint.facts.accepted) == 2
    assert endpoint.facts.repeated == ["job-7-0", "job-7-0", "job-7-2"]


def test_what_the_server_does_not_take(endpoint: Endpoint) -> None:
    endpoint.facts.faults = [422]
    left_out, taken = post(endpoint, record(0), record(1))
    assert left_out.failure is None
    assert left_out.problem == f"{endpoint.url} refused a batch: 422 a fault"
    assert taken == Outcome("r1", 1)
    # Nothing is sent behind what could not be sent.
    (refused,) = post(endpoint, record(2), record(3), token="wrong")
    assert refused.status == 401
    endpoint.facts.faults = [503, 503]
    (unanswered,) = post(endpoint, record(4), record(5))
    assert unanswered.status is None
    assert "did not take a batch in 2 attempts" in str(unanswered.failure)
    assert [posted.batch for posted in endpoint.facts.accepted] == ["job-7-1"]


def test_whether_a_server_is_reached(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    assert posting._unreached(endpoint.url) is None
    assert posting._unreached("http://127.0.0.1:9/x") == "Connection refused"
    assert "label" in str(posting._unreached("http://a..b/x"))
