"""SERVICE: other sources of fragments; a SILENT one that fails has one empty solution.

Source: SPARQL 1.1 Federated Query, section 2.1.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from annotations.terms import QuadPattern, Term, is_variable
from tpf_client.errors import ServiceError, SourceError
from tpf_client.planner.driver import Task
from tpf_client.planner.reading import Content, ReadRequest
from tpf_client.planner.source import Estimate, Source
from tpf_client.sparql.algebra import EMPTY_GROUP, Pattern, Query, Service
from tpf_client.sparql.rewrite.visitor import everything, transformed

T = TypeVar("T")


class SilentSource:
    """A source of a SILENT service, whose failures are `ServiceError`."""

    def __init__(self, source: Source, endpoint: Term) -> None:
        self.url = source.url
        self._source = source
        self._endpoint = endpoint

    def now(self) -> datetime:
        return self._source.now()

    def wake_at(self, instant: datetime) -> datetime:
        """Return our instant at which the source's clock has surely reached `instant`."""
        return self._source.wake_at(instant)

    def begin(self) -> Task[object]:
        return self._marked(self._source.begin())

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        return self._marked(self._source.estimate(pattern))

    def read(self, asked: ReadRequest) -> Task[Content]:
        return self._marked(self._source.read(asked))

    def _marked(self, task: Task[T]) -> Task[T]:
        try:
            return (yield from task)
        except SourceError as error:
            raise ServiceError(error.url, error.reason, self._endpoint) from error


class Services:
    """A continuous query's services; a failing SILENT one is left out for a time."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.failed: dict[str, datetime] = {}
        """The endpoints that failed, and when."""

    @property
    def query(self) -> Query:
        pattern = self._query.pattern
        for endpoint in self.failed:
            pattern = without_service(pattern, endpoint)
        return replace(self._query, pattern=pattern)

    def fail(self, error: ServiceError, at: datetime) -> None:
        if error.endpoint in self.failed:
            raise error
        self.failed[error.endpoint] = at

    def forgive(self, before: datetime) -> bool:
        """Retry services that failed before an instant; return whether there were any."""
        old = [endpoint for endpoint, at in self.failed.items() if at <= before]
        for endpoint in old:
            del self.failed[endpoint]
        return bool(old)


def services_of(value: Any) -> Iterator[Service]:
    """Yield the services of a pattern, those inside EXISTS included."""
    return (each for each in everything(value) if isinstance(each, Service))


def without_service(value: T, endpoint: str) -> T:
    """Mark the SILENT services of an endpoint as failed."""

    def change(pattern: Pattern) -> Pattern:
        if isinstance(pattern, Service) and pattern.silent:
            if pattern.endpoint == endpoint:
                return EMPTY_GROUP
            if is_variable(pattern.endpoint):
                return replace(pattern, failed=(*pattern.failed, Term(endpoint)))
        return pattern

    return transformed(value, change)
