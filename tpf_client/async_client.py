"""The client for event loops, on CPython and in a browser's worker."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from annotations.clock import Clock, ManualClock, SystemClock
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import Variable
from tpf_client.dataflow.construct import construct
from tpf_client.fragments.async_fetcher import AsyncFetcher, Http, http_of
from tpf_client.fragments.destinations import Destinations, with_credentials
from tpf_client.fragments.fetcher import Statistics, with_files
from tpf_client.fragments.responses import Limits
from tpf_client.planner.driver import Ask, Driver, Steps, Waking, in_turn, send
from tpf_client.queries import (
    Bindings,
    How,
    Queries,
    QueryOptions,
    ReadingEstimate,
    StreamSettings,
    Words,
    check_form,
)
from tpf_client.solutions import Solution, Solutions, plain_names, rdflib_graph
from tpf_client.sparql.algebra import Query, QueryForm, Row, is_ordered
from tpf_client.stream import Updates
from tpf_client.streaming.streamer import Budgets, Tick

if TYPE_CHECKING:
    import rdflib
    import requests

    from tpf_client.stream import Update

T = TypeVar("T")

_NAP = 60.0
"""Seconds of sleep at most: clocks are set meanwhile, and computers sleep."""
_TURN = 0.02
"""Seconds of rows after which other tasks of the loop go on."""


async def answered_async(
    steps: Generator[Ask | T, None, object], driver: Driver, wake: Waking | None = None
) -> AsyncGenerator[T]:
    """Send the requests of a query's steps and await them; yield everything else."""
    woken, loop = asyncio.Event(), asyncio.get_running_loop()
    turn_ends = loop.time() + _TURN

    driver.when_woken(in_turn(woken.set, wake))
    try:
        for step in steps:
            if not isinstance(step, Ask):
                yield step
                if loop.time() > turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = loop.time() + _TURN
                continue
            send(step, driver)
            if not step.seconds:
                await asyncio.sleep(0)
                continue
            late = loop.call_later(step.seconds, woken.set)
            try:
                await woken.wait()
            finally:
                late.cancel()
            woken.clear()
    finally:
        steps.close()
        driver.restart()
        if isinstance(driver.fetcher, AsyncFetcher):
            driver.fetcher.drop()


async def finished_async(steps: Steps[T], driver: Driver) -> T:
    """The result of steps."""
    results: list[T] = []

    def kept() -> Steps[None]:
        results.append((yield from steps))

    async for _ in answered_async(kept(), driver):
        pass
    return results[0]


class AsyncAnswer:
    """The answer of a query: ``async for`` gives solutions, ``await`` all of it.

    An error, `aclose` or cancelling the task stops the requests.
    """

    def __init__(self, queries: Queries, query: Query, asked: QueryOptions) -> None:
        self.form = query.form
        self.ordered = query.form == "SELECT" and is_ordered(query.pattern)
        self._queries = queries
        self._query = query
        self._asked = asked
        self._driver = queries.driver(asked.budget, asked.timeout)
        self._variables: tuple[Variable, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without question marks, after the first solution."""
        return plain_names(self._variables)

    @property
    def work(self) -> Statistics:
        """The requests made for it so far."""
        return replace(self._driver.work)

    async def __aiter__(self) -> AsyncIterator[Solution]:
        """Yield the solutions of SELECT, or the triples of CONSTRUCT and DESCRIBE.

        Raises:
            SourceError: a source failed; the answer is incomplete.
        """
        async with aclosing(self._read()) as rows:
            async for row in rows:
                yield Solution(self._variables, row)

    def __await__(self) -> Generator[Any, None, "Solutions | bool | rdflib.Graph"]:
        """Solutions for SELECT, a bool for ASK, an rdflib graph for CONSTRUCT and DESCRIBE."""
        return self._whole().__await__()

    async def ask(self) -> bool:
        """Return the answer of ASK."""
        async with aclosing(self._read()) as rows:
            async for _ in rows:
                return True
        return False

    async def aclose(self) -> None:
        """Stop it, and its requests."""
        self._driver.close()

    async def _whole(self) -> "Solutions | bool | rdflib.Graph":
        if self.form == "ASK":
            return await self.ask()
        async with aclosing(self._read()) as read:
            rows = [row async for row in read]
        if self.form == "SELECT":
            return Solutions(self._variables, rows)
        return rdflib_graph(rows)

    async def _read(self) -> AsyncGenerator[Row]:
        driver, query = self._driver, self._query
        answer = await finished_async(self._queries.answer(query, driver, self._asked), driver)
        self._variables = answer.variables
        async with aclosing(answered_async(answer.steps(), driver)) as rows:
            if query.form != "CONSTRUCT":
                async for row in rows:
                    yield row
                return
            # A graph has each triple once, and blank nodes for each solution.
            solutions = [row async for row in rows]
        variables, self._variables = self._variables, _TRIPLE
        for triple in dict.fromkeys(construct(query.template, variables, iter(solutions))):
            yield tuple(triple)


_TRIPLE = (Variable("?subject"), Variable("?predicate"), Variable("?object"))


class AsyncStream(Updates):
    """A continuous query for ``async for``.

    An error, `close` or cancelling the task stops its requests.
    """

    async def __aiter__(self) -> AsyncIterator["Update"]:
        """Yield updates; see `Stream`.

        Raises:
            SourceError: the first evaluation failed.
        """
        streamer, woken = self.streamer, asyncio.Event()
        looks: AsyncGenerator[Tick | datetime] = answered_async(
            streamer.steps(), streamer.driver, woken.set
        )
        async with aclosing(looks):
            async for step in looks:
                if isinstance(step, Tick):
                    yield self.update(step)
                    continue
                await self._sleep(step, woken)
                if streamer.closed:
                    return

    async def _sleep(self, instant: datetime, woken: asyncio.Event) -> None:
        clock = self.streamer.clock
        if isinstance(clock, ManualClock):
            clock.wait_until(instant)
            return
        while (left := (instant - clock.now()).total_seconds()) > 0 and not self.streamer.early:
            timer = asyncio.get_running_loop().call_later(min(left, _NAP), woken.set)
            try:
                await woken.wait()
            finally:
                timer.cancel()
            woken.clear()


class AsyncClient:
    """Answer SPARQL queries over datasets of fragments, in one event loop.

    Use it as an asynchronous context manager, or `aclose` it. For the arguments see `Client`;
    `http` sends the requests (by default ``fetch`` in a browser, otherwise `requests`).
    """

    def __init__(
        self,
        *urls: str | Path,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        session: "requests.Session | None" = None,
        clock: Clock | None = None,
        parallelism: int = 8,
        cache_bytes: int = 64 * 2**20,
        limits: Limits | None = None,
        allowed_origins: Iterable[str] = (),
        vocabulary: Vocabulary = DEFAULT_VOCABULARY,
        services: Iterable[str] | None = None,
        strict: bool = False,
        http: Http | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.urls, files = with_files(urls, self.clock, vocabulary)
        limits = limits or Limits()
        credentials = with_credentials(headers, auth)
        destinations = Destinations(self.urls, allowed_origins, credentials)
        self.fetcher = AsyncFetcher(
            http or http_of(self.clock, limits, destinations, session),
            clock=self.clock,
            parallelism=parallelism,
            cache_bytes=cache_bytes,
            limits=limits,
            destinations=destinations,
            vocabulary=vocabulary,
            files=files,
        )
        self._queries = Queries(self.fetcher, self.urls, vocabulary, services, strict=strict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop everything, and let go of connections."""
        await self.fetcher.aclose()

    @property
    def statistics(self) -> Statistics:
        """The requests made so far."""
        return replace(self.fetcher.statistics)

    def query(
        self,
        text: str,
        bindings: Bindings | None = None,
        *,
        at: datetime | None = None,
        timeout: float | None = None,
        base: str | None = None,
        options: QueryOptions | None = None,
    ) -> AsyncAnswer:
        """Answer a query; for the arguments and errors see `Client.query`.

        Nothing is requested before the answer is awaited or iterated.
        """
        asked = QueryOptions.given(options, at, timeout)
        return AsyncAnswer(self._queries, self._queries.parsed(text, base, bindings), asked)

    async def select(
        self, text: str, bindings: Bindings | None = None, **how: Unpack[How]
    ) -> Solutions:
        """Like `query`, for SELECT only; all solutions are read."""
        return await self._of_form("SELECT", text, bindings, how)  # type: ignore[no-any-return]

    async def ask(self, text: str, bindings: Bindings | None = None, **how: Unpack[How]) -> bool:
        """Like `query`, for ASK only."""
        return await self._of_form("ASK", text, bindings, how)  # type: ignore[no-any-return]

    async def construct(
        self, text: str, bindings: Bindings | None = None, **how: Unpack[How]
    ) -> "rdflib.Graph":
        """Like `query`, for CONSTRUCT only."""
        return await self._of_form("CONSTRUCT", text, bindings, how)  # type: ignore[no-any-return]

    async def describe(
        self, text: str, bindings: Bindings | None = None, **how: Unpack[How]
    ) -> "rdflib.Graph":
        """Like `query`, for DESCRIBE only."""
        return await self._of_form("DESCRIBE", text, bindings, how)  # type: ignore[no-any-return]

    async def _of_form(
        self, form: QueryForm, text: str, bindings: Bindings | None, how: How
    ) -> Any:
        check_form(form, text, bindings, how.get("base"))
        return await self.query(text, bindings, **how)

    async def words(self) -> Words:
        """Return the predicates and classes in a sample of the datasets' pages.

        Raises:
            SourceError: a page could not be fetched.
        """
        driver = self._queries.driver()
        return await finished_async(driver.run(self._queries.words()), driver)

    async def estimate(self, text: str) -> ReadingEstimate:
        """Estimate how much a query reads; see `Client.estimate`."""
        query, driver = self._queries.parsed(text), self._queries.driver()
        return await finished_async(self._queries.estimate(query, driver), driver)

    def stream(
        self,
        text: str,
        bindings: Bindings | None = None,
        *,
        base: str | None = None,
        budgets: Budgets | None = None,
        **settings: Any,
    ) -> AsyncStream:
        """Keep the answer of a query up to date; see `Client.stream`."""
        how = StreamSettings(**settings)
        query = self._queries.parsed(text, base, bindings)
        streamer = self._queries.streamer(query, how, budgets)
        ordered = query.form == "SELECT" and is_ordered(query.pattern)
        return AsyncStream(streamer, form=query.form, ordered=ordered)
