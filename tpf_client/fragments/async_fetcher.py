"""Fetch pages in an event loop: with `requests`, or with the browser's ``fetch``."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from annotations.clock import Clock
from tpf_client.errors import (
    ClientError,
    ClosedError,
    ConnectionFailedError,
    PageTooLargeError,
)
from tpf_client.fragments.destinations import IN_BROWSER, Destinations, Origin, origin
from tpf_client.fragments.fetcher import Fetcher, FetchOptions, FetchOutcome, InFlight
from tpf_client.fragments.page_reader import ACCEPTED_FORMATS
from tpf_client.fragments.responses import Attempts, Fields, Limits, Response

if TYPE_CHECKING:
    import requests


class Http(Protocol):
    """Sends requests for an event loop."""

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        """Return the response, whatever its status, to one request with its redirects.

        Cancelling ends the request.
        """

    def close(self) -> None:
        """Let go of connections."""


_THREADS = 8


class RequestsHttp:
    """Send requests with the library `requests`, in a few threads."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        destinations: Destinations,
        *,
        session: "requests.Session | None" = None,
    ) -> None:
        from tpf_client.fragments.transport import Transport

        self._transport = Transport(
            clock, limits, destinations, session=session, connections=_THREADS
        )
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tpf-http")

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        exchange = self._transport.exchange()
        ask = partial(self._transport.once, url, headers, exchange)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, ask)
        finally:
            # Of one that is over this ends nothing; of one that was given up, the connection.
            if not exchange.finished:
                exchange.end()

    def close(self) -> None:
        self._transport.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


class FetchHttp:
    """Send requests with ``fetch``, where Pyodide runs.

    Only ``Accept`` is sent, to avoid CORS preflights; the browser revalidates by itself, and sends
    ``Cache-Control: no-cache`` where it shall load anew.
    """

    def __init__(self, clock: Clock, limits: Limits, destinations: Destinations) -> None:
        self._clock = clock
        self._limits = limits
        self._destinations = destinations

    async def get(self, url: str, headers: Mapping[str, str]) -> Response:
        from js import AbortController, Object, fetch
        from pyodide.ffi import JsException, to_js

        aborting = AbortController.new()
        options = {
            # The same each time: the browser keeps pages by it.
            "headers": {"Accept": ACCEPTED_FORMATS, **self._destinations.headers(url)},
            "cache": "reload" if headers.get("Cache-Control") == "no-cache" else "no-cache",
            "signal": aborting.signal,
        }
        sent, done = self._clock.now(), False
        try:
            response = await fetch(url, to_js(options, dict_converter=Object.fromEntries))
            if response.redirected:
                self._destinations.led(url, response.url)
            body = await self._body(url, response)
            done = True
        except JsException as error:
            raise ConnectionFailedError(url, str(error)[:300] or "no answer") from None
        finally:
            if not done:
                aborting.abort()
        fields = Fields(dict(response.headers.entries()))
        return Response(int(response.status), fields, body, sent, self._clock.now())

    async def _body(self, url: str, response: Any) -> bytes:
        reader = response.body.getReader() if response.body else None
        chunks: list[bytes] = []
        size = 0
        while reader is not None:
            piece = await reader.read()
            if piece.done:
                break
            size += piece.value.length
            if size > self._limits.max_page_bytes:
                reason = f"a body of more than {self._limits.max_page_bytes} bytes"
                raise PageTooLargeError(url, reason)
            chunks.append(piece.value.to_bytes())
        return b"".join(chunks)

    def close(self) -> None:
        """See `Http`."""


class AsyncFetcher(Fetcher):
    """Fetch pages in an event loop, in its thread only; for the arguments see `Fetcher`."""

    def __init__(
        self,
        http: Http,
        *,
        clock: Clock,
        **options: Unpack[FetchOptions],
    ) -> None:
        options["parallelism"] = max(options.get("parallelism", 8), 1)
        super().__init__(clock=clock, **options)
        self._http = http
        self._attempts = Attempts(clock, self.limits)
        self._slots: dict[Origin, asyncio.Semaphore] = {}
        self._tasks: dict[asyncio.Task[None], InFlight] = {}

    def drop(self) -> None:
        """End the requests that nobody waits for any more."""
        for task, entry in self._tasks.items():
            if entry.over():
                task.cancel()

    async def aclose(self) -> None:
        self.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._http.close()

    def _begin(self, entry: InFlight) -> None:
        task = asyncio.get_running_loop().create_task(self._run(entry))
        self._tasks[task] = entry
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        entry = self._tasks.pop(task)
        if task.cancelled():
            # Perhaps before it began. Who waits does so in vain otherwise.
            self._deliver(entry, ClosedError(f"{entry.request.url}: the request was cancelled"))

    async def _run(self, entry: InFlight) -> None:
        answer: FetchOutcome
        try:
            answer = await self._answer(entry)
        except Exception as error:  # noqa: BLE001 - a defect of ours must reach who waits
            answer = error
        self._deliver(entry, answer)

    async def _answer(self, entry: InFlight) -> FetchOutcome:
        url, work = entry.request.url, entry.work
        slot = self._slots.setdefault(origin(url), asyncio.Semaphore(self.parallelism))
        async with slot:
            kept, headers = self._asked(entry.request)
            tries = self._attempts.of(url)
            retry, pause = False, next(tries)
            try:
                while True:
                    if pause:
                        await asyncio.sleep(pause)
                    self._count(work, requests=1, retries=int(retry))
                    answer = await self._tried(url, headers)
                    if isinstance(answer, Response):
                        self._count(work, bytes=len(answer.body))
                    retry, pause = True, tries.send(answer)
            except StopIteration as stop:
                response: Response = stop.value
            except ClientError as error:
                return error
        try:
            return self._taken(entry, kept, response, entry.over)
        except ClientError as error:
            return error

    async def _tried(
        self, url: str, headers: Mapping[str, str]
    ) -> Response | ConnectionFailedError:
        try:
            async with asyncio.timeout(self.limits.total_timeout):
                return await self._http.get(url, headers)
        except ConnectionFailedError as error:
            return error
        except TimeoutError:
            raise ConnectionFailedError(url, "the response takes too long") from None


def http_of(
    clock: Clock,
    limits: Limits,
    destinations: Destinations,
    session: "requests.Session | None" = None,
) -> Http:
    """Return the platform's way to send requests."""
    if IN_BROWSER:
        return FetchHttp(clock, limits, destinations)
    return RequestsHttp(clock, limits, destinations, session=session)
