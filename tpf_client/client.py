"""The client: SPARQL over fragments, once or continuously."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from annotations.clock import Clock, SystemClock
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import QuadPattern, Triple
from tpf_client.dataflow.construct import construct
from tpf_client.errors import ClosedError, check_argument
from tpf_client.fragments.destinations import Destinations, with_credentials
from tpf_client.fragments.fetcher import Statistics, with_files
from tpf_client.fragments.responses import Limits
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import answered, finished
from tpf_client.planner.leaves import Step
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
from tpf_client.solutions import Solutions, rdflib_graph
from tpf_client.sparql.algebra import BGP, Query, QueryForm, Row, is_ordered

if TYPE_CHECKING:
    import rdflib
    import requests

    from tpf_client.stream import Stream
    from tpf_client.streaming.change_signal import ChangeSignals
    from tpf_client.streaming.scheduler import Scheduler
    from tpf_client.streaming.streamer import Budgets


class Client:
    """Answer SPARQL queries over one or more datasets of fragments.

    Use it as a context manager, or close it.

    Args:
        urls: the datasets, or RDF files; several are queried as one.
        headers: of requests to the servers of the datasets, and to no others.
        auth: user name and password for these servers (HTTP Basic).
        session: a requests session, for proxies, certificates or tests.
        clock: the clock for waiting.
        parallelism: requests in flight per host; 0: one at a time in the caller's thread.
        cache_bytes: memory for pages.
        limits: timeouts, retries and sizes.
        allowed_origins: further origins that links, forms and redirects may lead to, also in a
            private network.
        vocabulary: the namespace of time labels.
        services: the URLs that SERVICE may ask, beside the datasets; ``None``: any.
        signal: continuous queries follow the servers' change signals.
        strict: refuse queries with unknown functions; otherwise a call is an error (the filter
            drops the solution, BIND leaves its variable unbound).
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
        signal: bool = False,
    ) -> None:
        for name, value, method in (("clock", clock, "now"), ("session", session, "send")):
            if value is not None and not hasattr(value, method):
                raise TypeError(f"{name}: a {name}, not {type(value).__name__}")
        self.clock = clock or SystemClock()
        named, files = with_files(urls, self.clock, vocabulary)
        self.fetcher = ThreadedFetcher(
            clock=self.clock,
            session=session,
            parallelism=parallelism,
            cache_bytes=cache_bytes,
            limits=limits,
            destinations=Destinations(named, allowed_origins, with_credentials(headers, auth)),
            vocabulary=vocabulary,
            files=files,
        )
        self.urls = named
        self._queries = Queries(self.fetcher, named, vocabulary, services, strict=strict)
        self._signals: ChangeSignals | None = None
        if signal:
            self._signals = _signals_of(self.fetcher)
        self._scheduler: Scheduler | None = None
        self._making = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything, and let go of connections."""
        if self._signals is not None:
            self._signals.close()
        with self._making:
            self._closed = True
            scheduler = self._scheduler
        if scheduler is not None:
            scheduler.close()
        self.fetcher.close()

    @property
    def scheduler(self) -> "Scheduler":
        """The scheduler of started streams."""
        with self._making:
            if self._scheduler is None:
                from tpf_client.streaming.scheduler import Scheduler

                self._scheduler = Scheduler(self.clock, self.fetcher.parallelism)
                if self._closed:
                    self._scheduler.close()
            return self._scheduler

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
    ) -> "Solutions | bool | rdflib.Graph":
        """Answer a query.

        Args:
            text: SPARQL 1.1 Query.
            bindings: values for variables, as if they stood in the text: terms of rdflib, or Python
                values for literals.
            at: an instant: answer over the facts that held then, if the server keeps history or the
                data hold intervals.
            timeout: seconds of reading and evaluating; the caller's time between two solutions does
                not count.
            base: resolves relative IRIs.
            options: shows progress and plan, or limits the query.

        Returns:
            `Solutions` for SELECT, which come as they are iterated; a bool for ASK; an rdflib graph
            for CONSTRUCT and DESCRIBE.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered here; no request was sent.
            QueryError: it lacks a variable that is bound.
            HistoryError: the facts of that instant are not available.
            SourceError: a source failed; also while solutions are iterated.
            LimitError: the query takes more than it may; also while solutions are iterated.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        asked = QueryOptions.given(options, at, timeout)
        query = self._queries.parsed(text, base, bindings)
        driver, budget = self._queries.driver(asked.budget, asked.timeout), asked.budget
        with nullcontext() if budget is None else budget.explaining():
            answer = finished(self._queries.answer(query, driver, asked), driver)
            rows: Iterator[Row] = answered(answer.steps(), driver)
            rows = rows if budget is None else budget.stoppable(rows)
            if query.form == "SELECT":
                return Solutions(answer.variables, rows, answer.close)
            if query.form == "ASK":
                return any(True for _ in rows)
            if query.form == "DESCRIBE":
                # Its solutions are the triples themselves.
                return rdflib_graph(rows)
            return rdflib_graph(construct(query.template, answer.variables, rows))

    def select(self, text: str, bindings: Bindings | None = None, **how: Unpack[How]) -> Solutions:
        """Like `query`, for SELECT only."""
        return self._of_form("SELECT", text, bindings, how)  # type: ignore[no-any-return]

    def ask(self, text: str, bindings: Bindings | None = None, **how: Unpack[How]) -> bool:
        """Like `query`, for ASK only."""
        return self._of_form("ASK", text, bindings, how)  # type: ignore[no-any-return]

    def construct(
        self, text: str, bindings: Bindings | None = None, **how: Unpack[How]
    ) -> "rdflib.Graph":
        """Like `query`, for CONSTRUCT only."""
        return self._of_form("CONSTRUCT", text, bindings, how)  # type: ignore[no-any-return]

    def describe(
        self, text: str, bindings: Bindings | None = None, **how: Unpack[How]
    ) -> "rdflib.Graph":
        """Like `query`, for DESCRIBE only."""
        return self._of_form("DESCRIBE", text, bindings, how)  # type: ignore[no-any-return]

    def _of_form(self, form: QueryForm, text: str, bindings: Bindings | None, how: How) -> Any:
        check_form(form, text, bindings, how.get("base"))
        return self.query(text, bindings, **how)

    def explain(self, text: str, bindings: Bindings | None = None, **how: Unpack[How]) -> str:
        """Answer a query whole; return its steps, with the requests and rows of each, as text."""
        from tpf_client.planner.explain import explain_plan

        plan: list[Step] = []
        answer = self.query(text, bindings, **how, options=QueryOptions(plan=plan))
        if isinstance(answer, Solutions):
            answer.fetchall()
        return explain_plan(plan)

    def estimate(self, text: str, budget: Budget | None = None) -> ReadingEstimate:
        """Estimate how much a query reads, by the first pages of its patterns.

        Raises:
            SourceError: a page could not be fetched.
        """
        query, driver = self._queries.parsed(text), self._queries.driver(budget)
        return finished(self._queries.estimate(query, driver), driver)

    def match(self, pattern: QuadPattern) -> Iterator[Triple]:
        """Yield the triples that match a pattern of distinct variables and terms.

        Raises:
            SourceError: a fragment could not be fetched.
            TypeError: no `QuadPattern`.
        """
        check_argument("pattern", pattern, QuadPattern)
        driver = self._queries.driver()
        query = Query("SELECT", BGP((pattern,)))
        answer = finished(self._queries.answer(query, driver, QueryOptions()), driver)
        for row in answered(answer.steps(), driver):
            values: dict[str, Any] = dict(zip(answer.variables, row, strict=True))
            yield Triple(*(values.get(term, term) for term in pattern[:3]))

    def words(self, budget: Budget | None = None) -> Words:
        """Return the predicates and classes in a sample of the datasets' pages.

        Raises:
            SourceError: a page could not be fetched.
        """
        driver = self._queries.driver(budget)
        return finished(driver.run(self._queries.words()), driver)

    def stream(
        self,
        text: str,
        bindings: Bindings | None = None,
        *,
        base: str | None = None,
        min_interval: float = 0.0,
        max_interval: float | None = None,
        every: float | None = None,
        jitter: float | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        static_recheck: float | None = 60.0,
        keep_checking: float | None = None,
        grace: float = 0.0,
        quiet: bool = False,
        budgets: "Budgets | None" = None,
        explain: bool = False,
    ) -> "Stream":
        """Keep the answer of a query of any form up to date.

        Nothing happens before the stream is iterated or started (`Stream.start`).

        Args:
            text: SPARQL 1.1 Query.
            bindings: values for variables; see `query`.
            base: what relative IRIs are relative to.
            min_interval: seconds between two evaluations at least.
            max_interval: seconds between two evaluations at most.
            every: seconds between two evaluations, whatever expires.
            jitter: the most seconds added to each pause at random; ``None``: a tenth, none in a
                replay.
            start: an instant to replay history from, as fast as it can be read.
            until: the last instant to evaluate at, on the server's or the replay's clock.
            static_recheck: seconds until unlabelled facts are read again; ``None``: never.
            keep_checking: seconds between looks at a dataset without labels; ``None``: the stream
                ends after its answer.
            grace: seconds for which an expired fact stays while nothing replaces it
                (``docs/streaming.md``).
            quiet: yield updates without changes, too.
            budgets: gives the budget of each evaluation; exceeding it ends the stream with a
                `LimitError`.
            explain: count the rows of each step, for `Stream.explain` and `Stream.plan`.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered continuously.
            ValueError: seconds out of range, or a replay without an end.
        """
        from tpf_client.stream import Stream

        settings = StreamSettings(
            min_interval=min_interval,
            max_interval=max_interval,
            every=every,
            jitter=jitter,
            start=start,
            until=until,
            static_recheck=static_recheck,
            keep_checking=keep_checking,
            grace=grace,
            quiet=quiet,
            explain=explain,
        )
        query = self._queries.parsed(text, base, bindings)
        streamer = self._queries.streamer(query, settings, budgets, self._signals)
        ordered = query.form == "SELECT" and is_ordered(query.pattern)
        return Stream(streamer, lambda: self.scheduler, form=query.form, ordered=ordered)


def _signals_of(fetcher: ThreadedFetcher) -> "ChangeSignals":
    from tpf_client.streaming.change_signal import ChangeSignals

    return ChangeSignals(fetcher)
