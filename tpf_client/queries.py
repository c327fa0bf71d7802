"""Queries of a client as steps without I/O or waiting, for threads and event loops."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

from annotations.clock import ManualClock
from annotations.instants import utc
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_TYPE, Vocabulary
from annotations.seconds import check_seconds
from annotations.terms import QuadPattern, Term, Variable, iri_value, is_iri, is_variable
from tpf_client.dataflow.build.builder import build_query
from tpf_client.dataflow.build.construction import ServiceAccess
from tpf_client.dataflow.build.join_order import steps_of
from tpf_client.dataflow.changes import Sink, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Leaves, Node
from tpf_client.dataflow.operators import order
from tpf_client.dataflow.operators.basic import Output
from tpf_client.errors import (
    ClosedError,
    OriginError,
    ServiceError,
    SourceError,
    UnsupportedQueryError,
    check_argument,
)
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.fragments.page import Page
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import Ask, Driver, Steps, Task
from tpf_client.planner.evaluation import Evaluation, Learned, Lengths, planned
from tpf_client.planner.fragment_source import ANYTHING, FragmentSource, SourceUse
from tpf_client.planner.leaves import FragmentLeaves, Step
from tpf_client.planner.live_fragment import MOMENT, Freshness
from tpf_client.planner.reading import numbered_pages, together
from tpf_client.planner.service import Services, SilentSource, services_of, without_service
from tpf_client.planner.source import Source
from tpf_client.planner.union import UnionSource
from tpf_client.solutions import bound_terms
from tpf_client.sparql.algebra import (
    BGP,
    Path,
    Pattern,
    Query,
    QueryForm,
    Row,
    Service,
    Slice,
    variables_of_bgp,
)
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.parser import parse_query
from tpf_client.sparql.rewrite.push_down import (
    filters_to_values,
    push_filters,
    push_limits,
    put_constants,
    split_values,
)
from tpf_client.sparql.rewrite.visitor import everything

if TYPE_CHECKING:
    from tpf_client.streaming.change_signal import ChangeSignals
    from tpf_client.streaming.streamer import Budgets, Streamer


# From a query to the dataflow of its plan.


def rewritten(query: Query, *, live: bool) -> Query:
    """Move the filters and limits of a query to where they save work."""
    pattern = put_constants(split_values(filters_to_values(push_filters(query.pattern))))
    if query.form == "ASK" and not live:
        pattern = Slice(pattern, 0, 1)
    return replace(query, pattern=push_limits(pattern))


def plan_query(
    query: Query,
    leaves: FragmentLeaves,
    evaluation: Evaluation,
    now: datetime,
    on_change: Sink | None = None,
    allowed: Collection[str] | None = None,
    *,
    strict: bool = False,
) -> Output:
    """Build the dataflow of a `rewritten` query; it depends on estimates (see `planned`).

    `allowed` are the URLs of SERVICE (``None``: any).
    """
    services: dict[Term, FragmentLeaves] = {}
    asked = list(services_of(query.pattern))
    silent = {each.endpoint for each in asked if each.silent}
    loud = {each.endpoint for each in asked if not each.silent}
    by_name = any(map(is_variable, silent)) and not any(map(is_variable, loud))

    def service(endpoint: Term) -> FragmentLeaves:
        if endpoint not in services:
            url = iri_value(endpoint)
            quiet = endpoint not in loud and (endpoint in silent or by_name)
            sources = evaluation.learned.services
            try:
                if allowed is not None and url not in allowed:
                    raise OriginError(url, "SERVICE may not ask it here")
                if endpoint not in sources:
                    source = _service_source(evaluation, query, endpoint)
                    sources[endpoint] = SilentSource(source, endpoint) if quiet else source
            except SourceError as error:
                if quiet:
                    raise ServiceError(error.url, error.reason, endpoint) from error
                raise
            services[endpoint] = FragmentLeaves(evaluation, sources[endpoint], plan=leaves.plan)
        return services[endpoint]

    if not query.dataset:
        leaves.prepare(patterns_of(query.pattern))
    guard = evaluation.dataflow.guard
    environment = Environment(
        TypedTerms(evaluation.dictionary),
        _now(now),
        strict=strict,
        spend=None if guard is None else lambda _: guard((), 0),
    )
    output = build_query(
        query,
        leaves,
        evaluation.dataflow,
        environment,
        services=ServiceAccess(service, evaluation.when_running),
        on_change=on_change,
        kept=evaluation.live,
    )
    if query.form in ("CONSTRUCT", "DESCRIBE"):
        # A graph is handed out when it is complete.
        leaves.not_hurried(0)
    return output


def _service_source(evaluation: Evaluation, query: Query, endpoint: Term) -> FragmentSource:
    asked = list(services_of(query.pattern))
    use = SourceUse(
        once=not evaluation.live,
        named=endpoint not in {each.endpoint for each in asked},
        service=True,
        joined=any(
            _joins(each.pattern)
            for each in asked
            if each.endpoint == endpoint or is_variable(each.endpoint)
        ),
    )
    return FragmentSource(evaluation.driver.fetcher, iri_value(endpoint), use=use)


class _NoFragments(Leaves):
    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:  # noqa: ARG002
        return self._dataflow.add(Input(variables_of_bgp(tuple(patterns))))


def check(query: Query, allowed: Collection[str] | None = None, *, strict: bool = False) -> None:
    """Check that a query can be answered, without any request."""
    for each in services_of(query.pattern):
        permitted = allowed is None or is_variable(each.endpoint) or each.silent
        if not permitted and iri_value(Term(each.endpoint)) not in (allowed or ()):
            raise UnsupportedQueryError(f"SERVICE {each.endpoint} is not allowed here")
    dictionary = TermDictionary()
    dataflow = Dataflow(dictionary)
    nothing = _NoFragments(dataflow)
    now = DateTime(2000, 1, 1, 0, 0, Decimal(0), 0)
    environment = Environment(TypedTerms(dictionary), now, strict=strict)
    services = ServiceAccess(lambda _: nothing)
    build_query(query, nothing, dataflow, environment, services=services)
    for each in services_of(query.pattern):
        # What is asked of endpoints that solutions name is built later.
        inner = Query("SELECT", each.pattern)
        build_query(inner, nothing, dataflow, environment, services=services)


def patterns_of(value: Any) -> Iterator[QuadPattern]:
    """Yield quad patterns, those of paths and inside EXISTS included."""
    for each in everything(value, Service):
        if isinstance(each, BGP):
            yield from each.patterns
        elif isinstance(each, Path):
            yield from patterns_of(steps_of(each))


def _joins(pattern: Any) -> bool:
    paths = any(isinstance(each, Path) for each in everything(pattern, Service))
    return paths or len(list(patterns_of(pattern))) > 1


def _now(instant: datetime) -> DateTime:
    at = utc(instant)
    second = Decimal(at.second) + Decimal(at.microsecond) / 1_000_000
    return DateTime(at.year, at.month, at.day, at.hour, at.minute, second, 0)


# One evaluation of a query: its solutions as they become known.


_Plan: TypeAlias = Callable[[Sink, Callable[[], bool], Learned], tuple[Evaluation, Output]]
"""Makes a plan that tells of changes and surprises, from the estimates so far."""
OnProgress: TypeAlias = Callable[[int, int], object]
"""Takes the number of pages that a query wanted so far, and of the solutions that it has."""


class Answer:
    """The solutions of a query that is evaluated once, as they become known.

    If a fragment is much longer than promised before anything was handed out, the query is planned
    again.
    """

    def __init__(self, driver: Driver, plan: _Plan, progress: OnProgress | None = None) -> None:
        self.driver = driver
        self._plan = plan
        self._progress = progress
        self.variables: tuple[Variable, ...] = ()

    def begin(self) -> Steps[Self]:
        self._solutions = 0
        self._ready: deque[Solution] = deque()
        self._streams = False
        self._handed_out = False
        self._outdated = False
        self._given: Counter[Solution] = Counter()

        def make(learned: Learned) -> tuple[Evaluation, Output]:
            return self._plan(self._arrive, self._surprised, learned)

        self._evaluation, self._output = yield from planned(self.driver, make)
        self._streams = not self._output.ordered
        self.variables = self._output.variables
        return self

    def _surprised(self) -> bool:
        self._outdated = self._outdated or not self._handed_out
        return self._outdated

    @property
    def pattern(self) -> Pattern | None:
        return self._output.pattern

    def close(self) -> None:
        self.driver.close()

    def steps(self) -> Generator[Ask | Row]:
        """Yield the solutions, with multiplicity, and the requests for them."""
        try:
            while advanced := (yield from self._advance()):
                yield from self._drain()
                if isinstance(advanced, Ask):
                    yield advanced
            if not self._streams:
                for solution in self._output.rows():
                    if self._given[solution]:
                        self._given[solution] -= 1
                    else:
                        self._ready.append(solution)
            yield from self._drain()
        finally:
            self.driver.restart()

    def _advance(self) -> Steps[Ask | bool]:
        if self._outdated:
            self.driver.restart()
            yield from self.begin()
        node = self._output.node
        if isinstance(node, order.Slice) and self._streams and node.missing == 0:
            return False
        if self.driver.closed:
            raise ClosedError("the query was closed")
        worked = self._evaluation.work()
        if self._progress is not None:
            self._progress(self.driver.requests, self._solutions)
        if worked:
            return worked
        self._streams = self._streams and node.monotone
        with self.driver.working():
            self._evaluation.dataflow.flush()
            return self._evaluation.unsettled

    def _arrive(self, solution: Solution, count: int) -> None:
        self._solutions += count
        if self._streams:
            self._handed_out = True
            self._evaluation.solution_sent()
            self._ready.extend([solution] * count)
            if not self._output.node.monotone:
                self._given[solution] += count

    def _drain(self) -> Iterator[Row]:
        decode = self._evaluation.dictionary.decode
        while self._ready:
            solution = self._ready.popleft()
            yield tuple([decode(each) if each else None for each in solution])


class CompleteAnswer:
    """An answer that is complete already."""

    def __init__(self, variables: tuple[Variable, ...], solutions: list[Row]) -> None:
        self.variables = variables
        self._solutions = solutions

    def close(self) -> None:
        """Nothing is under way."""

    def steps(self) -> Generator[Ask | Row]:
        yield from self._solutions


# The predicates and classes that a dataset uses, as far as a sample of its pages shows.
#
# Fragments do not list them. The first page of everything, and of what has a type, tells how many
# pages there are; some that lie far apart show what the data are about for a few dozen requests.

SAMPLED = 12
"""Pages of each fragment that are looked at, beside the first."""
_MOST = 500
"""Words of a kind that are told."""


@dataclass(frozen=True, slots=True)
class Words:
    """The IRIs of predicates and classes in a dataset, most frequent first."""

    predicates: tuple[str, ...]
    classes: tuple[str, ...]


def words_of(fetcher: Fetcher, urls: Iterable[str]) -> Task[Words]:
    """Collect the words of some datasets."""
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
    last, url_of = numbered_pages(following, 1, first)
    # Both ends are among them.
    numbers = dict.fromkeys(2 + n * (last - 2) // (SAMPLED - 1) for n in range(SAMPLED))
    rest = yield [Request(url_of(number)) for number in numbers]
    return [first, *rest]


@dataclass(frozen=True, slots=True)
class ReadingEstimate:
    """What a query is expected to read, by the first pages of its patterns.

    Args:
        facts: about how many; ``None``: a page states no count.
        labelled: some of them are labelled, or the pattern of some is empty in labelled data.
        plan: how it would be read, in the form of `Stream.plan`.
    """

    facts: int | None
    labelled: bool
    plan: Mapping[str, Any]


def _read_by(plan: Sequence[Step]) -> int | None:
    """Return the facts that a plan reads: whole fragments, or about one for each key."""
    total, keys = 0, 0
    for step in plan:
        count = step.estimate.count
        if count is None:
            return None
        read = count if step.how == "scan" else min(count, keys)
        total += read
        keys = max(read, 1)
    return total


def _most(counts: Counter[Term]) -> tuple[str, ...]:
    return tuple(term[1:-1] for term, _ in counts.most_common(_MOST) if is_iri(term))


# What a client is asked.


Bindings: TypeAlias = Mapping[str, object]
"""Values for variables, by their names: terms of rdflib, or Python values for literals."""


class How(TypedDict, total=False):
    """The way in which a query is answered; see `Client.query`."""

    at: datetime | None
    timeout: float | None
    base: str | None


def check_form(form: QueryForm, text: str, bindings: Bindings | None, base: str | None) -> None:
    """Check that a query has this form."""
    if isinstance(text, str):
        check_argument("bindings", bindings, Mapping)
        other = parse_query(text, base, bound_terms(bindings or {})).form
        if other != form:
            raise UnsupportedQueryError(f"this is {other}, not {form}")


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of a query that is answered once; see `Client.query`.

    Args:
        plan: receives the steps of the plan.
        progress: called now and then with the numbers of pages read and of solutions.
        budget: the limits of the query.
    """

    at: datetime | None = None
    timeout: float | None = None
    plan: list[Step] | None = None
    progress: OnProgress | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        check_seconds(timeout=self.timeout)
        check_argument("at", self.at, datetime)

    @classmethod
    def given(
        cls, options: "QueryOptions | None", at: datetime | None, timeout: float | None
    ) -> "QueryOptions":
        """Return the options with the arguments that were given beside them."""
        check_argument("options", options, QueryOptions)
        options = options or cls()
        at = options.at if at is None else at
        timeout = options.timeout if timeout is None else timeout
        return replace(options, at=at, timeout=timeout)


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a stream; see `Client.stream`."""

    min_interval: float = 0.0
    max_interval: float | None = None
    every: float | None = None
    jitter: float | None = None
    start: datetime | None = None
    until: datetime | None = None
    static_recheck: float | None = 60.0
    keep_checking: float | None = None
    grace: float = 0.0
    quiet: bool = False
    explain: bool = False

    def __post_init__(self) -> None:
        check_seconds(
            min_interval=self.min_interval, static_recheck=self.static_recheck, jitter=self.jitter
        )
        check_seconds(
            LEAST_PERIOD,
            max_interval=self.max_interval,
            every=self.every,
            keep_checking=self.keep_checking,
        )
        check_seconds(most=MOST_GRACE, grace=self.grace)
        for name, instant in (("start", self.start), ("until", self.until)):
            check_argument(name, instant, datetime)
            if instant is not None:
                utc(instant)
        if self.start is not None and self.until is None:
            raise ValueError("a replay needs an end: until")


MOST_GRACE = 7 * 86_400
"""Seconds of grace at most."""
LEAST_PERIOD = 1e-6
"""Seconds of a period at least: instants have microseconds."""


class Queries:
    """Answer queries over some datasets, each by itself, as steps."""

    def __init__(
        self,
        fetcher: Fetcher,
        urls: Sequence[str],
        vocabulary: Vocabulary = DEFAULT_VOCABULARY,
        services: Iterable[str] | None = None,
        *,
        strict: bool = False,
    ) -> None:
        if not urls:
            raise ValueError("a client needs the URL of a dataset")
        for url in urls:
            if not isinstance(url, str):
                raise TypeError(f"the URL of a dataset is a str, not {type(url).__name__}")
        check_argument("vocabulary", vocabulary, Vocabulary)
        check_argument("services", services, Iterable)
        self._fetcher = fetcher
        self._urls = urls
        self._clock = fetcher.clock
        self._vocabulary = vocabulary
        self._services = None if services is None else frozenset((*urls, *services))
        self._strict = strict

    def parsed(self, text: str, base: str | None = None, bindings: Bindings | None = None) -> Query:
        if not isinstance(text, str):
            raise TypeError(f"a query is a str, not {type(text).__name__}")
        check_argument("base", base, str)
        check_argument("bindings", bindings, Mapping)
        query = parse_query(text, base, bound_terms(bindings or {}))
        check(query, self._services, strict=self._strict)
        return query

    def driver(self, budget: Budget | None = None, timeout: float | None = None) -> Driver:
        """Return a fetching driver with a budget and a number of seconds."""
        driver = Driver(self._fetcher, seconds=timeout)
        if budget is not None:
            budget.on_stop(driver.close)
        return driver

    def answer(
        self, query: Query, driver: Driver, asked: QueryOptions
    ) -> Steps[Answer | CompleteAnswer]:
        """Answer a query; for the errors see `Client.query`."""
        while any(service.silent for service in services_of(query.pattern)):
            try:
                answer = yield from self._attempt(query, driver, asked)
                rows: list[Row] = []
                for step in answer.steps():
                    if isinstance(step, Ask):
                        yield step
                    else:
                        rows.append(step)
                return CompleteAnswer(answer.variables, rows)
            except ServiceError as failure:
                query = replace(query, pattern=without_service(query.pattern, failure.endpoint))
                driver.restart()
        return (yield from self._attempt(query, driver, asked))

    def words(self) -> Task[Words]:
        """Return the predicates and classes of the datasets; see `Client.words`."""
        return words_of(self._fetcher, self._urls)

    def estimate(self, query: Query, driver: Driver) -> Steps[ReadingEstimate]:
        """Estimate what a query reads, by a few requests."""
        from tpf_client.planner.explain import expected_json
        from tpf_client.streaming.detection import detect_all

        task = detect_all(self._fetcher, self._urls, self._vocabulary)
        detected = yield from driver.run(task)
        plan: list[Step] = []
        answer: Answer | None = None
        while answer is None:
            try:
                answer = yield from self._attempt(query, driver, QueryOptions(plan=plan))
            except ServiceError as failure:
                query = replace(query, pattern=without_service(query.pattern, failure.endpoint))
            driver.restart()
        estimates = [step.estimate for step in plan]
        labelled = detected.how in ("labels", "rewriting") and (
            not plan or any(each.dynamic != 0 or not each.count for each in estimates)
        )
        shown: dict[str, Any] = {"datasets": detected.datasets_json()}
        shown |= expected_json(plan, answer.pattern, labelled=detected.how == "labels")
        return ReadingEstimate(_read_by(plan), labelled, shown)

    def streamer(
        self,
        query: Query,
        settings: StreamSettings,
        budgets: "Budgets | None" = None,
        signals: "ChangeSignals | None" = None,
    ) -> "Streamer":
        """Return a streamer of a query; for `budgets` see `Client.stream`."""
        from tpf_client.streaming.streamer import Schedule, Streamer, StreamingPlan

        def build(leaves: FragmentLeaves, evaluation: Evaluation) -> Output:
            return plan_query(
                rewritten(services.query, live=True),
                leaves,
                evaluation,
                evaluation.source.now(),
                allowed=self._services,
                strict=self._strict,
            )

        services, past = Services(query), settings.start
        jitter = settings.jitter
        if jitter is None:
            alone = past is not None or isinstance(self._clock, ManualClock)
            jitter = 0.0 if alone else 0.1
        how = StreamingPlan(
            schedule=Schedule(
                min_interval=timedelta(seconds=settings.min_interval),
                max_interval=_seconds(settings.max_interval),
                every=_seconds(settings.every),
                jitter=timedelta(seconds=jitter),
                least=timedelta(milliseconds=100) if past is None else MOMENT,
            ),
            freshness=Freshness(
                static_recheck=_seconds(settings.static_recheck),
                replay=past is not None,
                every=_seconds(settings.every),
                grace=timedelta(seconds=settings.grace),
            ),
            until=settings.until,
            keep_checking=_seconds(settings.keep_checking),
            quiet=settings.quiet,
            past=None if past is None else ManualClock(past),
            vocabulary=self._vocabulary,
            services=services,
            budgets=budgets,
            explain=settings.explain,
            signals=signals if past is None else None,
        )
        return Streamer(self._fetcher, self._urls, build, self._clock, how)

    def _attempt(self, query: Query, driver: Driver, asked: QueryOptions) -> Steps[Answer]:
        source, lengths = (yield from self._source(driver, asked.at)), Lengths()
        now = self._clock.now() if asked.at is None else utc(asked.at)
        plan, budget = asked.plan, asked.budget
        timely = None if asked.timeout is None else driver.in_time
        query = rewritten(query, live=False)

        def make(
            on_change: Sink, on_surprise: Callable[[], bool], learned: Learned
        ) -> tuple[Evaluation, Output]:
            evaluation = Evaluation(
                driver,
                source,
                lengths=lengths,
                learned=learned,
                guard=timely if budget is None else budget.pass_change,
                on_surprise=on_surprise,
            )
            if budget is not None:
                on_change = budget.counting(on_change)
            if plan is not None:
                plan.clear()
            leaves = FragmentLeaves(evaluation, explain=plan is not None, plan=plan)
            output = plan_query(
                query, leaves, evaluation, now, on_change, self._services, strict=self._strict
            )
            return evaluation, output

        return (yield from Answer(driver, make, asked.progress).begin())

    def _source(self, driver: Driver, at: datetime | None) -> Steps[Source]:
        if at is not None:
            from tpf_client.streaming.detection import detect_all

            task = detect_all(self._fetcher, self._urls, self._vocabulary, ManualClock(at))
            return (yield from driver.run(task)).source
        use = SourceUse(once=True)
        sources = [FragmentSource(self._fetcher, url, use=use) for url in self._urls]
        return sources[0] if len(sources) == 1 else UnionSource(sources, once=True)


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
