"""The client: SPARQL over fragments, once or continuously.

What only streams need is imported when the first one is asked for.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from annotations.clock import Clock, ManualClock, SystemClock
from annotations.instants import utc
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_TYPE, Vocabulary
from annotations.seconds import check_seconds
from annotations.terms import QuadPattern, Term, Triple, Variable, is_iri
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.construct import construct
from tpf_client.dataflow.operators.basic import Output
from tpf_client.dataflow.operators.order import Slice
from tpf_client.errors import ClosedError, ServiceError, UnsupportedQueryError
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.fetcher import Fetcher, Request, Statistics
from tpf_client.fragments.page import Page
from tpf_client.fragments.transport import Limits
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import Driver, Task
from tpf_client.planner.evaluation import Evaluation, Lengths
from tpf_client.planner.fragment_source import ANYTHING, FragmentSource
from tpf_client.planner.leaves import FragmentLeaves, Step
from tpf_client.planner.live_fragment import MOMENT, Freshness
from tpf_client.planner.planning import check, plan_query
from tpf_client.planner.reading import foretell, together
from tpf_client.planner.service import Services, services_of, without_service
from tpf_client.planner.source import Source
from tpf_client.planner.union import UnionSource
from tpf_client.solutions import AsyncSolutions, Solutions, rdflib_graph
from tpf_client.sparql.algebra import BGP, Query, Row, is_ordered
from tpf_client.sparql.parser import parse_query

if TYPE_CHECKING:
    import rdflib
    import requests

    from tpf_client.stream import Stream
    from tpf_client.streaming.change_signal import ChangeSignals
    from tpf_client.streaming.scheduler import Scheduler
    from tpf_client.streaming.streamer import Budgets


# One evaluation of a query: its solutions as they become known.

_Plan: TypeAlias = Callable[[Callable[[Solution, int], None]], tuple[Evaluation, Output]]
OnProgress: TypeAlias = Callable[[int, int], None]
"""Takes the number of pages that a query wanted so far, and of the solutions that it has."""


class Answer:
    """The solutions of a query that is evaluated once.

    Solutions come while requests are still under way, where the query allows it; what a LIMIT
    makes needless is not asked for. What comes out stays true, until for the first time operators
    that are not monotone are made to say what they have although inputs may come again; what comes
    out then is held back until nothing comes any more.

    A fragment that turns out much longer than its server promised makes the plan a bad one: as long
    as no solution was handed out, the query is planned anew with what is known then. Pages that
    were read are not asked for again.

    Args:
        plan: makes an evaluation and its dataflow, with a callback for changes of the output.
        progress: called after each piece of work.
    """

    def __init__(self, plan: _Plan, progress: OnProgress | None = None) -> None:
        self._plan = plan
        self._progress = progress
        self._asked = 0
        self._closed = False
        self._begin()
        self.variables: tuple[Variable, ...] = self._output.variables

    def _begin(self) -> None:
        self._solutions = 0
        self._ready: deque[Solution] = deque()
        self._streams = False
        self._handed_out = False
        self._outdated = False
        self._given: Counter[Solution] = Counter()
        self._evaluation, self._output = self._plan(self._arrive)
        self._streams = not self._output.ordered
        self._evaluation.on_surprise = self._surprised

    def _surprised(self) -> bool:
        """Whether to give up the plan, where a fragment is longer than it should be."""
        self._outdated = self._outdated or not self._handed_out
        return self._outdated

    def close(self) -> None:
        """Stop all requests."""
        self._closed = True
        self._evaluation.driver.close()

    def rows(self) -> Iterator[Row]:
        """The solutions, each as often as it occurs.

        Raises:
            SourceError: a fragment could not be read: what came before may be a part only.
            ClosedError: closed meanwhile.
        """
        try:
            while self._advance():
                yield from self._drain()
            if not self._streams:
                for solution in self._output.rows():
                    if self._given[solution]:
                        self._given[solution] -= 1
                    else:
                        self._ready.append(solution)
            yield from self._drain()
        finally:
            self.close()

    def _advance(self) -> bool:
        """Do some work; ``False`` where there is nothing left to do."""
        if self._outdated:
            self._asked += self._evaluation.driver.requests
            self._evaluation.driver.close()
            self._begin()
        node = self._output.node
        if isinstance(node, Slice) and self._streams and node.satisfied:
            return False
        if self._closed or self._evaluation.driver.cancelled.is_set():
            raise ClosedError("the query was closed")
        worked = self._evaluation.work()
        if self._progress is not None:
            self._progress(self._asked + self._evaluation.driver.requests, self._solutions)
        if worked:
            return True
        self._streams = self._streams and node.monotone
        self._evaluation.dataflow.flush()
        return self._evaluation.unsettled

    def _arrive(self, solution: Solution, count: int) -> None:
        self._solutions += count
        if self._streams:
            self._handed_out = True
            self._evaluation.hurried = False
            self._ready.extend([solution] * count)
            if not self._output.node.monotone:
                self._given[solution] += count

    def _drain(self) -> Iterator[Row]:
        decode = self._evaluation.dictionary.decode
        while self._ready:
            solution = self._ready.popleft()
            yield tuple([decode(each) if each else None for each in solution])


@dataclass(frozen=True, slots=True)
class CompleteAnswer:
    """An answer that is there already.

    Args:
        variables: as in `Answer`.
        solutions: what `rows` gives.
    """

    variables: tuple[Variable, ...]
    solutions: list[Row]

    def close(self) -> None:
        """Nothing is under way."""

    def rows(self) -> Iterator[Row]:
        """The solutions, each as often as it occurs."""
        return iter(self.solutions)


# Answers queries over fragments once.


class SingleAnswers:
    """Answers queries over some datasets, each by itself.

    Args:
        fetcher: gets pages.
        urls: the datasets.
        clock: what time it is.
        vocabulary: the namespace of time labels.
        services: the URLs that SERVICE may ask; ``None``: any.
        strict: see `Client`.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        urls: Sequence[str],
        clock: Clock,
        vocabulary: Vocabulary,
        services: frozenset[str] | None,
        *,
        strict: bool,
    ) -> None:
        self._fetcher = fetcher
        self._urls = urls
        self._clock = clock
        self._vocabulary = vocabulary
        self._services = services
        self._strict = strict

    def answer(
        self,
        query: Query,
        plan: list[Step] | None = None,
        progress: OnProgress | None = None,
        at: datetime | None = None,
        budget: Budget | None = None,
    ) -> Answer | CompleteAnswer:
        """The answer of a query; for the arguments and errors see `Client.query`."""
        while any(service.silent for service in services_of(query.pattern)):
            try:
                answer = self._attempt(query, plan, progress, at, budget)
                return CompleteAnswer(answer.variables, list(answer.rows()))
            except ServiceError as failure:
                query = replace(query, pattern=without_service(query.pattern, failure.endpoint))
        return self._attempt(query, plan, progress, at, budget)

    def _attempt(
        self,
        query: Query,
        plan: list[Step] | None,
        progress: OnProgress | None,
        at: datetime | None,
        budget: Budget | None,
    ) -> Answer:
        source, lengths = self._source(at, budget), Lengths()
        now = self._clock.now() if at is None else utc(at)

        def make(on_change: Callable[[Solution, int], None]) -> tuple[Evaluation, Output]:
            evaluation = Evaluation(self.driver(budget), source, lengths=lengths)
            if budget is not None:
                evaluation.dataflow.guard = budget.pass_change
                on_change = budget.counting(on_change)
            leaves = FragmentLeaves(evaluation, explain=plan is not None)
            if plan is not None:
                plan.clear()
                leaves.plan = plan
            output = plan_query(
                query, leaves, evaluation, now, on_change, self._services, strict=self._strict
            )
            return evaluation, output

        return Answer(make, progress)

    def driver(self, budget: Budget | None) -> Driver:
        """What gets the pages that are asked for, within a budget."""
        driver = Driver(self._fetcher)
        if budget is not None:
            budget.on_stop(driver.close)
        return driver

    def _source(self, at: datetime | None = None, budget: Budget | None = None) -> Source:
        if at is not None:
            from tpf_client.streaming.detection import detect_all

            task = detect_all(self._fetcher, self._urls, self._vocabulary, ManualClock(at))
            return self.driver(budget).run(task).source
        sources = [FragmentSource(self._fetcher, url, once=True) for url in self._urls]
        return sources[0] if len(sources) == 1 else UnionSource(sources)


# The predicates and classes that a dataset uses, as far as a sample of its pages shows.
#
# Fragments do not list them. The first page of everything, and of what has a type, tells how many
# pages there are; some that lie far apart show what the data are about for a few dozen requests.

SAMPLED = 12
"""Pages of each fragment that are looked at, beside the first."""
_MOST = 500
"""Words of a kind that are told."""
_ALL_PAGES = 1_000_000


@dataclass(frozen=True, slots=True)
class Words:
    """What a dataset is described with, what occurs most often first.

    Args:
        predicates: IRIs of predicates.
        classes: IRIs of classes.
    """

    predicates: tuple[str, ...]
    classes: tuple[str, ...]


def words_of(fetcher: Fetcher, urls: Iterable[str]) -> Task[Words]:
    """The words of some datasets together.

    Args:
        fetcher: gets the pages.
        urls: of the datasets.

    Raises:
        SourceError: a page could not be had.
    """
    typed = ANYTHING._replace(predicate=RDF_TYPE)
    tasks = [
        _sampled(FragmentSource(fetcher, url), pattern)
        for url in urls
        for pattern in (ANYTHING, typed)
    ]
    predicates: Counter[Term] = Counter()
    classes: Counter[Term] = Counter()
    for pages in (yield from together(tasks)):
        for fact in (fact for page in pages for fact in page.facts):
            predicates[fact.quad.predicate] += 1
            if fact.quad.predicate == RDF_TYPE:
                classes[fact.quad.object] += 1
    return Words(_most(predicates), _most(classes))


def _sampled(source: FragmentSource, pattern: QuadPattern) -> Task[list[Page]]:
    form = yield from source.form()
    (first,) = yield [Request(form.url(pattern))]
    following = first.metadata.next_page
    if following is None:
        return [first]
    others = foretell(following, 1, first, _ALL_PAGES)
    # Both ends are among them.
    places = dict.fromkeys(n * (len(others) - 1) // (SAMPLED - 1) for n in range(SAMPLED))
    rest = yield [Request(others[place]) for place in places]
    return [first, *rest]


def _most(counts: Counter[Term]) -> tuple[str, ...]:
    return tuple(term[1:-1] for term, _ in counts.most_common(_MOST) if is_iri(term))


MOST_GRACE = 7 * 86_400
"""Seconds of grace at most."""
LEAST_PERIOD = 1e-6
"""Seconds of a period at least: instants have microseconds."""


class Client:
    """Answers SPARQL queries over one or more datasets of fragments.

    Use it as a context manager, or close it.

    Args:
        urls: the datasets; several are queried as one.
        session: a requests session to use, for authentication, proxies or tests.
        clock: the clock that waiting goes by.
        parallelism: requests in flight per host; 0: one after the other in the caller's thread.
        cache_bytes: memory for pages.
        limits: timeouts, retries and sizes.
        allowed_origins: further origins that links, forms and redirects may lead to, also such
            that are addresses of a private network.
        vocabulary: the namespace of time labels.
        services: the URLs that SERVICE may ask, beside the datasets; ``None``: any.
        signal: whether continuous queries look at once when a server tells that they should.
        strict: whether a query that calls a function that is not known is refused; else the call
            is an error, as SPARQL has it: a filter drops the solution, BIND leaves its variable
            without a value.
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
        if not urls:
            raise ValueError("a client needs the URL of a dataset")
        self.urls = urls
        self.clock = clock or SystemClock()
        self.fetcher = Fetcher(
            clock=self.clock,
            session=session,
            parallelism=parallelism,
            cache_bytes=cache_bytes,
            limits=limits,
            destinations=Destinations(urls, allowed_origins),
            vocabulary=vocabulary,
        )
        self._vocabulary = vocabulary
        self._services = None if services is None else frozenset((*urls, *services))
        self._strict = strict
        self._answers = SingleAnswers(
            self.fetcher, urls, self.clock, vocabulary, self._services, strict=strict
        )
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
        """What evaluates the streams that were started or are read by `async for`."""
        with self._making:
            if self._scheduler is None:
                from tpf_client.streaming.scheduler import Scheduler

                self._scheduler = Scheduler(self.clock, self.fetcher.parallelism)
                if self._closed:
                    self._scheduler.close()
            return self._scheduler

    @property
    def statistics(self) -> Statistics:
        """What was requested so far."""
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
        """Answer a query over the data as they are.

        Args:
            text: SPARQL 1.1 Query.
            base: what relative IRIs are relative to.
            at: another instant: the answer is over the facts that held then, as far as the server
                keeps history or the data hold intervals; ``None``: over the data as they are.
            plan: takes in the steps of the plan, for explanations.
            progress: called now and then with the number of pages that this query wanted so far,
                and of the solutions that it has.
            budget: what the query may take; ``None``: whatever it needs.

        Returns:
            `Solutions` for SELECT, which come as they are iterated; a bool for ASK; an rdflib graph
            for CONSTRUCT and DESCRIBE.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered here; no request was sent.
            HistoryError: the facts of another instant are wanted, and nobody tells them.
            SourceError: a source failed; also while solutions are iterated.
            LimitError: the budget is used up; also while solutions are iterated.
        """
        query = parse_query(text, base)
        check(query, self._services, strict=self._strict)
        with nullcontext() if budget is None else budget.explaining():
            answer = self._answers.answer(query, plan, progress, at, budget)
            rows = answer.rows() if budget is None else budget.stoppable(answer.rows())
            if query.form == "SELECT":
                return Solutions(answer.variables, rows, answer.close)
            if query.form == "ASK":
                return any(True for _ in rows)
            if query.form == "DESCRIBE":
                # Its solutions are the triples themselves.
                return rdflib_graph(rows)
            return rdflib_graph(construct(query.template, answer.variables, rows))

    async def aquery(
        self, text: str, *, base: str | None = None, progress: OnProgress | None = None
    ) -> "AsyncSolutions | bool | rdflib.Graph":
        """Like `query`, for coroutines: the work is done in threads.

        Returns:
            As `query`; the solutions of SELECT come by ``async for``.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered here; no request was sent.
            SourceError: a source failed; also while solutions are iterated.
        """
        import asyncio

        answer = await asyncio.to_thread(self.query, text, base=base, progress=progress)
        return AsyncSolutions(answer) if isinstance(answer, Solutions) else answer

    def select(
        self, text: str, *, base: str | None = None, at: datetime | None = None
    ) -> Solutions:
        """Like `query`, for SELECT queries only.

        Raises:
            UnsupportedQueryError: another form of query.
        """
        result = self.query(text, base=base, at=at)
        if not isinstance(result, Solutions):
            raise UnsupportedQueryError("not a SELECT query")
        return result

    def match(self, pattern: QuadPattern) -> Iterator[Triple]:
        """The triples that match a pattern, as terms; blank nodes as this client gave them.

        Args:
            pattern: different variables, and terms.

        Raises:
            SourceError: a fragment could not be had.
        """
        answer = self._answers.answer(Query("SELECT", BGP((pattern,))))
        for row in answer.rows():
            values: dict[str, Any] = dict(zip(answer.variables, row, strict=True))
            yield Triple(*(values.get(term, term) for term in pattern[:3]))

    def words(self, budget: Budget | None = None) -> Words:
        """The predicates and classes that the datasets use, as far as a sample of pages shows.

        Args:
            budget: what this may take; ``None``: whatever it needs.

        Raises:
            SourceError: a page could not be had.
        """
        return self._answers.driver(budget).run(words_of(self.fetcher, self.urls))

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

        Nothing happens before the stream is read: by iterating over it, by ``async for``, or by
        `Stream.start` with a callback.

        Args:
            text: SPARQL 1.1 Query.
            base: what relative IRIs are relative to.
            min_interval: seconds between two evaluations at least.
            max_interval: seconds between two evaluations at most.
            every: seconds between two evaluations, whatever expires.
            jitter: seconds that are added to each pause, at most, at random; ``None``: a tenth, and
                none on a simulated clock, where nobody is in another's way.
            start: an instant to replay history from, as fast as it can be read; ``None``: now.
            until: the last instant to evaluate at, on the server's clock or that of the replay.
            static_recheck: seconds after which what is not labelled is asked for again; whether it
                has got a label is looked at when its page stops being fresh. ``None``: never.
            keep_checking: seconds between looks at a dataset in which nothing is labelled;
                ``None``: its answer is given once and the stream ends.
            grace: seconds for which a fact stays whose label has ended, while nothing replaces it:
                its renewal may just be late (``docs/streaming.md``).
            quiet: whether evaluations that changed nothing give an update, too.
            budgets: gives the budget of each evaluation; one that takes more ends the stream with
                a `LimitError`. ``None``: whatever it needs.
            explain: whether to count the rows of each step, for `Stream.explain` and `Stream.plan`.

        Raises:
            QuerySyntaxError: the text is not a query.
            UnsupportedQueryError: it cannot be answered continuously.
            ValueError: seconds that cannot be reckoned with, or a replay without an end.
        """
        from tpf_client.stream import Stream
        from tpf_client.streaming.streamer import Schedule, Streamer

        check_seconds(min_interval=min_interval, static_recheck=static_recheck, jitter=jitter)
        check_seconds(
            LEAST_PERIOD, max_interval=max_interval, every=every, keep_checking=keep_checking
        )
        check_seconds(most=MOST_GRACE, grace=grace)
        query = parse_query(text, base)
        check(query, self._services, strict=self._strict)
        if start is not None and until is None:
            raise ValueError("a replay needs an end: until")
        if jitter is None:
            jitter = 0.0 if isinstance(self.clock, ManualClock) else 0.1

        def build(leaves: FragmentLeaves, evaluation: Evaluation) -> Output:
            now = evaluation.source.now()
            return plan_query(
                services.query,
                leaves,
                evaluation,
                now,
                allowed=self._services,
                strict=self._strict,
            )

        services = Services(query)
        recheck = None if static_recheck is None else timedelta(seconds=static_recheck)
        streamer = Streamer(
            self.fetcher,
            self.urls,
            build,
            self.clock,
            schedule=Schedule(
                min_interval=timedelta(seconds=min_interval),
                max_interval=_seconds(max_interval),
                every=_seconds(every),
                jitter=timedelta(seconds=jitter),
                least=timedelta(milliseconds=100) if start is None else MOMENT,
            ),
            freshness=Freshness(
                static_recheck=recheck,
                replay=start is not None,
                every=_seconds(every),
                grace=timedelta(seconds=grace),
            ),
            until=until,
            keep_checking=_seconds(keep_checking),
            quiet=quiet,
            past=None if start is None else ManualClock(start),
            vocabulary=self._vocabulary,
            services=services,
            budgets=budgets,
            explain=explain,
            signals=self._signals if start is None else None,
        )
        ordered = query.form == "SELECT" and is_ordered(query.pattern)
        return Stream(streamer, lambda: self.scheduler, form=query.form, ordered=ordered)


def _signals_of(fetcher: Fetcher) -> "ChangeSignals":
    from tpf_client.streaming.change_signal import ChangeSignals

    return ChangeSignals(fetcher)


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
