"""Fetch pages in threads, or where they are requested."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Unpack

from annotations.clock import Clock
from annotations.event_reader import ServerEvent
from tpf_client.errors import ClientError, ClosedError, ConnectionFailedError, HttpError
from tpf_client.fragments.destinations import Origin, origin
from tpf_client.fragments.fetcher import Fetcher, FetchOptions, FetchOutcome, InFlight, Request
from tpf_client.fragments.page import Page

if TYPE_CHECKING:
    import requests


_MOST_POOLS = 32
"""Origins, those asked last, that keep threads."""


class ThreadedFetcher(Fetcher):
    """Fetch pages in threads; for other arguments see `Fetcher`.

    `session` is a requests session (tests mount applications on it). With `parallelism` 0 every
    request runs in its caller, deterministic on a manual clock.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        session: "requests.Session | None" = None,
        **options: Unpack[FetchOptions],
    ) -> None:
        super().__init__(clock=clock, **options)
        # Who only names the client need not load the library.
        from tpf_client.fragments.transport import Transport

        self._transport = Transport(
            clock,
            self.limits,
            self.destinations,
            session=session,
            connections=max(self.parallelism, 1),
        )
        self._pools: dict[Origin, ThreadPoolExecutor] = {}

    def get(self, request: Request, cancelled: threading.Event | None = None) -> Page:
        kept = self._kept(request)
        if kept is not None:
            return kept
        answer = self._answer(InFlight(request, [(_nobody, cancelled)], None), cancelled)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def document(self, url: str) -> bytes:
        """Return what a server has at a URL beside its fragments."""
        if self._files is not None and url in self._files:
            raise HttpError(url, HTTPStatus.NOT_FOUND, "")
        self._count(None, requests=1)
        return self._transport.get(url, {}).body

    def events(
        self, url: str, last: str | None, seconds: float, over: threading.Event, most: int
    ) -> Iterator[ServerEvent]:
        """Yield server-sent events after `last` until their end or `over`."""
        self._count(None, requests=1)
        return self._transport.events(
            url, last, seconds, lambda: over.is_set() or self._closed, most
        )

    def close(self) -> None:
        """Stop all requests and close connections and threads."""
        super().close()
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._transport.close()

    def _begin(self, entry: InFlight) -> None:
        if self.parallelism == 0:
            try:
                self._run(entry)
            finally:
                with self._lock:
                    self._forget(entry)
            return
        where = origin(entry.request.url)
        try:
            with self._lock:
                pool = self._pools.pop(where, None)
                if pool is None:
                    pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="tpf")
                self._pools[where] = pool
                future = pool.submit(self._run, entry)
                if len(self._pools) > _MOST_POOLS:
                    # Its threads end with what they have to do.
                    self._pools.pop(next(iter(self._pools))).shutdown(wait=False)
        except RuntimeError as error:
            # No thread can be started, or the client was closed just now.
            self._deliver(entry, ConnectionFailedError(entry.request.url, str(error)))
            return

        def surface(finished: Future[None]) -> None:
            # A defect of ours must reach who waits, too, instead of leaving them waiting.
            defect = None if finished.cancelled() else finished.exception()
            if finished.cancelled():
                self._deliver(entry, ClosedError(f"{entry.request.url}: the client is closed"))
            elif defect is not None:
                self._deliver(entry, defect)

        future.add_done_callback(surface)

    def _run(self, entry: InFlight) -> None:
        with self._lock:
            over = entry.over()
            if over:
                self._forget(entry)
        closed = ClosedError(f"{entry.request.url}: the client is closed")
        self._deliver(entry, closed if over else self._answer(entry, entry.cancelled))

    def _answer(self, entry: InFlight, cancelled: threading.Event | None) -> FetchOutcome:
        url, work = entry.request.url, entry.work
        kept, headers = self._asked(entry.request)
        try:
            response = self._transport.get(
                url,
                headers,
                cancelled,
                on_request=lambda retry: self._count(work, requests=1, retries=int(retry)),
                on_bytes=lambda count: self._count(work, bytes=count),
            )
            return self._taken(entry, kept, response, entry.over)
        except ClientError as error:
            return error


def _nobody(_: FetchOutcome) -> None:
    """Do nothing: the caller waits."""
