"""Responses over HTTP: limits and retries, whoever sends the requests."""

import json
import random
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from annotations.clock import Clock, ManualClock
from annotations.namespaces import HYDRA
from annotations.seconds import check_seconds
from annotations.terms import Term, is_literal, literal_parts
from tpf_client.errors import (
    ConnectionFailedError,
    HttpError,
    PageTooLargeError,
    ParseError,
    SourceError,
    check_argument,
)
from tpf_client.fragments.destinations import THIS_MACHINE, Origin, origin
from tpf_client.fragments.freshness import read_http_date, whole_number
from tpf_client.fragments.page_reader import parse_page_body

_SECOND: Final = timedelta(seconds=1)
_LEAST_RATE: Final = 1e-6
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DESCRIPTION: Final = Term(f"<{HYDRA}description>")
_EXPLAINED: Final = 10_000
"""Bytes of the body of an error that are read."""
_EXPLAINED_MEMORY: Final = 100 * _EXPLAINED
"""Bytes of memory that what it says may take."""
PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}
"""What statuses are called."""


class Fields(Mapping[str, str]):
    """The fields of a head, with case-insensitive names."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in pairs.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a client.

    Args:
        connect_timeout: seconds until a connection stands.
        read_timeout: seconds between two bytes.
        total_timeout: seconds for one whole response, which is not retried.
        max_requests_per_second: to one host, on average; no limit to the machine itself, nor on a
            simulated clock.
        retries: how often a failed request is sent again.
        backoff: seconds before the first retry, doubled for each further one, with full jitter.
        max_backoff: the most seconds; a longer ``Retry-After`` fails the request.
        max_page_bytes: of a decompressed body; parsed it may take eight times as much.
        max_query_bytes: of the pages read by a query, or an evaluation of a continuous one.
        max_query_requests: the most pages, cached ones included.
        max_query_seconds: the most time of reading and work.

    Raises:
        ValueError: a number out of range.
    """

    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0
    max_requests_per_second: float = 100.0
    retries: int = 3
    backoff: float = 0.25
    max_backoff: float = 30.0
    max_page_bytes: int = 64 * 2**20
    max_query_bytes: int = 2**30
    max_query_requests: int = 1_000_000
    max_query_seconds: float = 3600.0

    def __post_init__(self) -> None:
        check_seconds(
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            total_timeout=self.total_timeout,
            backoff=self.backoff,
            max_backoff=self.max_backoff,
            max_query_seconds=self.max_query_seconds,
        )
        for name in ("retries", "max_page_bytes", "max_query_bytes", "max_query_requests"):
            number = getattr(self, name)
            check_argument(name, number, int)
            if number < 0:
                raise ValueError(f"{name}: 0 or more, not {number!r}")
        if not self.max_requests_per_second >= _LEAST_RATE:
            value = self.max_requests_per_second
            raise ValueError(f"max_requests_per_second: {_LEAST_RATE} or more, not {value!r}")


@dataclass(slots=True)
class Response:
    """A whole response, with the instants (our clock) between which it was made."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent: datetime
    received: datetime


class Attempts:
    """Decide when the requests of a client are sent, and sent again. Thread-safe."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._jitter = random.Random()  # noqa: S311 - it spreads the retries of many clients
        self._lock = threading.Lock()
        self._turns: dict[Origin, datetime] = {}

    def of(self, url: str) -> Generator[float, Response | ConnectionFailedError, Response]:
        """Yield seconds to wait before each request; return the response with status 200 or 304.

        It is sent the response to that request, or the failure.

        Raises:
            SourceError: no such response; the leaf class says why.
        """
        limits, attempt, seconds = self._limits, 0, 0.0
        while True:
            answer = yield max(seconds, self._turn(url))
            wish: float | None = None
            failure: SourceError
            if isinstance(answer, Response):
                if answer.status in (200, 304):
                    return answer
                failure = HttpError(url, answer.status, _explanation(answer))
                if answer.status not in _RETRIED:
                    raise failure
                wish = _retry_after(answer)
            else:
                failure = answer
            if attempt >= limits.retries or (wish or 0.0) > limits.max_backoff:
                raise failure
            pause = min(limits.backoff * 2**attempt, limits.max_backoff)
            seconds = self._jitter.uniform(0, pause) if wish is None else wish
            attempt += 1

    def _turn(self, url: str) -> float:
        """Return the seconds until the host may get one more request."""
        try:
            place = origin(url)
        except SourceError:  # as the request will say
            return 0.0
        if place.host == THIS_MACHINE or isinstance(self._clock, ManualClock):
            return 0.0
        with self._lock:
            now = self._clock.now()
            # A second's requests that were not made may be made at once, the first ones too.
            turn = max(self._turns.get(place, now - _SECOND), now - _SECOND)
            self._turns[place] = turn + _SECOND / self._limits.max_requests_per_second
        return max((turn - now).total_seconds(), 0.0)


def _retry_after(response: Response) -> float | None:
    text = response.headers.get("Retry-After", "").strip()
    seconds = whole_number(text)
    if seconds is not None:
        return float(seconds)
    until = read_http_date(text)
    if until is None:
        return None
    now = read_http_date(response.headers.get("Date")) or response.received
    return max((until - now).total_seconds(), 0.0)


def _explanation(response: Response) -> str:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    text = PHRASES.get(response.status, "")
    body = response.body[:_EXPLAINED]
    if kind == "text/plain":
        text = body.decode("utf-8", "replace")
    elif kind in ("application/problem+json", "application/json"):
        with suppress(ValueError, RecursionError):
            problem = json.loads(body)
            if isinstance(problem, dict):
                text = str(problem.get("detail") or problem.get("title") or text)
    else:
        with suppress(ParseError, PageTooLargeError):
            quads = parse_page_body(body, kind, "urn:error", _EXPLAINED_MEMORY)
            objects = {quad.predicate: quad.object for quad in quads}
            described = objects.get(_DESCRIPTION, "")
            text = literal_parts(described).lexical if is_literal(described) else text
    return " ".join(text.split())[:300]
