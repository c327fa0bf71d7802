"""Publish the records of a micro-batch in sequence, because later ones replace earlier ones."""

import pickle
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from requests.utils import get_environ_proxies

from annotations.clock import SystemClock
from loaders.errors import LoaderError, PublishRefusedError
from loaders.fetching import host_parts
from loaders.jobs import rows_of
from loaders.publisher import Publisher
from loaders.stream.records import Publication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFUSED_FOR_ITS_CONTENT = frozenset({400, 409, 413, 415, 422})
_SECONDS = 10.0


class Outcome(NamedTuple):
    """The outcome of a record; `problem` left it out, `status` and `failure` end the job."""

    name: str
    facts: int
    problem: str | None = None
    status: int | None = None
    failure: str | None = None


class ParsedRecord(NamedTuple):
    """A record as the workers parsed it; without a publication it says nothing."""

    name: str
    publication: Publication | None = None
    problem: str | None = None


def outcomes(
    records: Iterable[ParsedRecord], publisher: Publisher, batch: str, stopped: Event | None = None
) -> Iterator[Outcome]:
    """Publish records in order, up to the first failure."""
    for position, (name, publication, problem) in enumerate(records):
        outcome = Outcome(name, publication.facts if publication else 0, problem)
        if publication is not None and publication.facts:
            body, label, _ = publication
            try:
                publisher.publish_body(body.encode(), label, f"{batch}-{position}", stopped)
            except PublishRefusedError as error:
                if error.status in _REFUSED_FOR_ITS_CONTENT:
                    outcome = outcome._replace(problem=str(error))
                else:
                    outcome = outcome._replace(status=error.status, failure=str(error))
            except LoaderError as error:
                outcome = outcome._replace(failure=str(error))
        yield outcome
        if outcome.failure is not None:
            return


def posted_records(
    url: str, token: str | None, batch: str, batches: Iterator[Any]
) -> Iterator[Any]:
    """Publish sorted records in Arrow batches; yield their outcomes."""
    import pyarrow as pa

    with closing(Publisher(url, SystemClock(), token)) as publisher:
        # Only our own workers write them.
        records = (pickle.loads(content) for *_, content in rows_of(batches))  # noqa: S301
        for outcome in outcomes(records, publisher, batch):
            yield pa.record_batch({"outcome": [pickle.dumps(outcome)]})


def unreached(session: "SparkSession", url: str) -> str | None:
    """Return why an executor cannot reach a server, if so."""

    def look(_: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.record_batch({"reason": pa.array([_unreached(url)], pa.string())})

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "reason string").collect()
    return None if row.reason is None else str(row.reason)


def _unreached(url: str) -> str | None:
    if get_environ_proxies(url):
        return None  # the proxy knows
    parts = host_parts(url)
    assert parts is not None, url
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), _SECONDS):
            return None
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeError as error:  # no name of a host
        return str(error)
