"""One request and its response: limits, redirects, retries, and the typed errors of failure."""

import json
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from annotations.clock import Clock
from annotations.event_reader import EventReader, ServerEvent, event_headers
from annotations.namespaces import HYDRA
from annotations.seconds import check_seconds
from annotations.terms import Term, is_literal, literal_parts
from tpf_client.errors import (
    ClosedError,
    ConnectionFailedError,
    HttpError,
    PageTooLargeError,
    ParseError,
    SourceError,
)
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.exchange import Asker, BadUrlError, Exchange, OpenResponse, cause
from tpf_client.fragments.freshness import read_http_date, whole_number
from tpf_client.fragments.page_reader import parse_page_body

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_DESCRIPTION = Term(f"<{HYDRA}description>")
_EXPLAINED = 10_000
"""Bytes of the body of an error that are read."""
_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}
_WIRE = 2**20
"""Bytes of a response that are neither its decompressed body nor that much again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient and how generous a client is.

    Args:
        connect_timeout: seconds until a connection stands.
        read_timeout: seconds between two bytes.
        total_timeout: seconds for one whole response; one that takes longer is not asked for again.
        retries: how often a failed request is sent again.
        backoff: seconds before the first retry, doubled for each further one, with full jitter.
        max_backoff: seconds at most, also where the server asks for more (``Retry-After``); a
            server that asks for more than that fails the request.
        max_page_bytes: bytes of a decompressed body at most. What it says may take eight times as
            much memory.
        max_query_bytes: bytes of the pages that one query reads at most, and those that one
            evaluation of a continuous query does.
        max_query_requests: how many pages it may want, those included that are kept.
        max_query_seconds: how long it may read and work, without what its caller does between two
            solutions.

    Raises:
        ValueError: seconds that cannot be reckoned with.
    """

    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    total_timeout: float = 120.0
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


@dataclass(slots=True)
class Response:
    """A whole response, with the instants (our clock) between which it was made."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent: datetime
    received: datetime


@dataclass(slots=True)
class Transport:
    """Sends GET requests and reads the responses whole. Thread-safe, as far as what asks is.

    Args:
        asker: sends them.
        clock: our clock; waiting between retries goes by it.
        limits: timeouts, retries, sizes.
        destinations: decides where redirects may lead.
        jitter: spreads the retries of many clients.
    """

    asker: Asker
    clock: Clock
    limits: Limits
    destinations: Destinations = field(default_factory=Destinations)
    jitter: random.Random = field(default_factory=random.Random)
    _exchanges: set[Exchange] = field(default_factory=set)
    _closed: bool = False

    def close(self) -> None:
        """End what is under way."""
        self._closed = True
        for exchange in tuple(self._exchanges):
            exchange.end()

    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        cancelled: threading.Event | None = None,
        *,
        on_request: Callable[[bool], None] = lambda _retry: None,
        on_bytes: Callable[[int], None] = lambda _count: None,
    ) -> Response:
        """The response with status 200 or 304, after as many retries as are allowed.

        Args:
            url: what to get.
            headers: of the request.
            cancelled: set when nobody wants it any more.
            on_request: called before each request that is sent, with ``True`` for a retry.
            on_bytes: called with the number of bytes of each body.

        Raises:
            SourceError: no such response; the leaf class says why.
            ClosedError: `cancelled` was set.
        """
        attempt = 0
        while True:
            if self._closed or (cancelled is not None and cancelled.is_set()):
                raise ClosedError(f"{url}: the request was cancelled")
            on_request(attempt > 0)
            wish: float | None = None
            failure: SourceError
            exchange = self._exchange()
            try:
                response = self._once(url, headers, exchange, cancelled)
            except ConnectionFailedError as error:
                if exchange.over:
                    # It came, too slowly: the next one would do so as well.
                    raise
                failure = error
            else:
                on_bytes(len(response.body))
                if response.status in (200, 304):
                    return response
                failure = HttpError(url, response.status, _explanation(response))
                if response.status not in _RETRIED:
                    raise failure
                wish = self._retry_after(response)
            if attempt >= self.limits.retries or (wish or 0.0) > self.limits.max_backoff:
                raise failure
            pause = min(self.limits.backoff * 2**attempt, self.limits.max_backoff)
            seconds = self.jitter.uniform(0, pause) if wish is None else wish
            self.clock.wait_until(self.clock.now() + timedelta(seconds=seconds), cancelled)
            attempt += 1

    def events(
        self, url: str, last: str | None, seconds: float, over: Callable[[], bool], most: int
    ) -> Iterator[ServerEvent]:
        """Server-sent events; see `Fetcher.events`.

        Raises:
            SourceError: they cannot be had, or are lost.
        """
        headers = event_headers(last)
        exchange = Exchange(math.inf, seconds, math.inf, self.limits.connect_timeout)
        with self._asking(url, exchange), self.asker.ask(url, headers, exchange) as raw:
            if raw.status != HTTPStatus.OK:
                raise HttpError(url, raw.status, _PHRASES.get(raw.status, ""))
            reader = EventReader(most)
            for chunk in raw.pieces(eager=True):
                if over():
                    return
                yield from reader.feed(chunk)

    def _retry_after(self, response: Response) -> float | None:
        text = response.headers.get("Retry-After", "").strip()
        seconds = whole_number(text)
        if seconds is not None:
            return float(seconds)
        until = read_http_date(text)
        if until is None:
            return None
        now = read_http_date(response.headers.get("Date")) or response.received
        return max((until - now).total_seconds(), 0.0)

    def _exchange(self) -> Exchange:
        limits = self.limits
        size = 2 * limits.max_page_bytes + _WIRE
        return Exchange(limits.total_timeout, limits.read_timeout, size, limits.connect_timeout)

    def _once(
        self,
        url: str,
        headers: Mapping[str, str],
        exchange: Exchange,
        cancelled: threading.Event | None,
    ) -> Response:
        with self._asking(url, exchange):
            return self._follow(url, headers, exchange, cancelled)

    @contextmanager
    def _asking(self, url: str, exchange: Exchange) -> Iterator[None]:
        """While something is asked: `close` ends it, and what fails is a `SourceError`."""
        self._exchanges.add(exchange)
        try:
            yield
        except BadUrlError as error:
            raise SourceError(url, str(error)) from error
        except TimeoutError as error:
            raise ConnectionFailedError(url, "timed out") from error
        except (OSError, ValueError) as error:
            raise ConnectionFailedError(url, cause(error)) from error
        finally:
            self._exchanges.discard(exchange)

    def _follow(
        self,
        url: str,
        headers: Mapping[str, str],
        exchange: Exchange,
        cancelled: threading.Event | None,
    ) -> Response:
        target = url
        for _ in range(_MAX_REDIRECTS + 1):
            sent = self.clock.now()
            with self.asker.ask(target, headers, exchange) as raw:
                if raw.status in _REDIRECTS and "Location" in raw.headers:
                    target = self.destinations.led(url, raw.headers["Location"], target)
                    continue
                body = self._read(raw, url, exchange, cancelled)
                return Response(raw.status, raw.headers, body, sent, self.clock.now())
        raise SourceError(url, f"more than {_MAX_REDIRECTS} redirects")

    def _read(
        self,
        raw: OpenResponse,
        url: str,
        exchange: Exchange,
        cancelled: threading.Event | None,
    ) -> bytes:
        limit = self.limits.max_page_bytes
        chunks: list[bytes] = []
        size = 0
        for chunk in raw.pieces():
            size += len(chunk)
            if size > limit:
                raise PageTooLargeError(url, f"a body of more than {limit} bytes")
            if exchange.over:
                raise ConnectionFailedError(url, "the response takes too long")
            if cancelled is not None and cancelled.is_set():
                raise ClosedError(f"{url}: the request was cancelled")
            chunks.append(chunk)
        return b"".join(chunks)


def _explanation(response: Response) -> str:
    """The first words of an error's body, where it is text for humans."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    text = _PHRASES.get(response.status, "")
    body = response.body[:_EXPLAINED]
    if kind == "text/plain":
        text = body.decode("utf-8", "replace")
    elif kind in ("application/problem+json", "application/json"):
        with suppress(ValueError, RecursionError):
            problem = json.loads(body)
            if isinstance(problem, dict):
                text = str(problem.get("detail") or problem.get("title") or text)
    else:
        with suppress(ParseError):
            said = {
                quad.predicate: quad.object for quad in parse_page_body(body, kind, "urn:error")
            }
            described = said.get(_DESCRIPTION, "")
            text = literal_parts(described).lexical if is_literal(described) else text
    return " ".join(text.split())[:300]
