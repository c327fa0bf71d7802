"""The client: SPARQL over fragments, once or continuously."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from annotations.clock import Clock, SystemClock
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from annotations.terms import QuadPattern, Triple
from tpf_client.dataflow.construct import construct
from tpf_client.errors import UnsupportedQueryError
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.fetcher import Statistics
from tpf_client.fragments.responses import Limits
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import answered, finished
from tpf_client.planner.leaves import Step
from tpf_client.queries import OnProgress, Queries, QueryOptions, StreamSettings, Words
from tpf_client.solutions import Solutions, rdflib_graph
from tpf_client.sparql.algebra import BGP, Query, Row, is_ordered

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
        urls: the datasets; several are queried as one.
        session: a requests session, for authentication, proxies or tests.
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
        *urls: str,
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
        self.urls = urls
        self.clock = clock or SystemClock()
        self.fetcher = ThreadedFetcher(
            clock=self.clock,
            session=session,
            parallelism=parallelism,
            cache_bytes=cache_bytes,
            limits=limits,
            destinations=Destinations(urls, allowed_origins),
            vocabulary=vocabulary,
        )
        self._queries = Queries(self.fetcher, urls, vocabulary, services, strict=strict)
        self._signals = _signals_of(self.fetcher) if signal else None
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
        *,
        base: str | None = None,
        at: datetime | None = None,
        plan: list[Step] | None = None,
        progress: OnProgress | None = None,
        budget: Budget | None = None,
    ) -> "Solutions | bool | rdflib.Graph":
        """Answer a query.

        Args:
            text: SPARQL 1.1 Query.
            base: resolves relative IRIs.
            at: an instant: answer over the facts that held then, if the server keeps history or the
                data hold intervals.
            plan: receives the steps of the plan.
            progress: called now and then with the numbers of pages read and of solutions.
            budget: the limits of the query.

        Returns:
            `Solutions` for SELECT, which come as they are iterated; a bool for ASK; an rdflib graph
                for CONSTRUCT and DESCRIBE.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered here; no request was sent.
            HistoryError: the facts of that instant are not available.
            SourceError: a source failed; also while solutions are iterated.
            LimitError: the budget is used up; also while solutions are iterated.
        """
        query = self._queries.parsed(text, base)
        driver, asked = self._queries.driver(budget), QueryOptions(at, plan, progress, budget)
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

    def select(
        self, text: str, *, base: str | None = None, at: datetime | None = None
    ) -> Solutions:
        """Answer a SELECT query.

        Raises:
            UnsupportedQueryError: another form of query.
        """
        result = self.query(text, base=base, at=at)
        if not isinstance(result, Solutions):
            raise UnsupportedQueryError("not a SELECT query")
        return result

    def match(self, pattern: QuadPattern) -> Iterator[Triple]:
        """Yield the triples that match a pattern of distinct variables and terms.

        Raises:
            SourceError: a fragment could not be fetched.
        """
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
            base: resolves relative IRIs.
            min_interval: the least seconds between two evaluations.
            max_interval: the most seconds between two evaluations.
            every: seconds between two evaluations, whatever expires.
            jitter: the most seconds added to each pause at random; ``None``: a tenth, none on a
                simulated clock.
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
        query = self._queries.parsed(text, base)
        streamer = self._queries.streamer(query, settings, budgets, self._signals)
        ordered = query.form == "SELECT" and is_ordered(query.pattern)
        return Stream(streamer, lambda: self.scheduler, form=query.form, ordered=ordered)


def _signals_of(fetcher: ThreadedFetcher) -> "ChangeSignals":
    from tpf_client.streaming.change_signal import ChangeSignals

    return ChangeSignals(fetcher)
