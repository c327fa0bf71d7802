"""Answers queries over fragments once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from annotations.clock import Clock, ManualClock
from annotations.instants import utc
from annotations.namespaces import Vocabulary
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.operators.output import Output
from tpf_client.errors import ServiceError
from tpf_client.fragments.fetcher import Fetcher
from tpf_client.planner.answer import Answer, CompleteAnswer, OnProgress
from tpf_client.planner.budget import Budget
from tpf_client.planner.driver import Driver
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.fragment_source import FragmentSource
from tpf_client.planner.leaves import FragmentLeaves, Step
from tpf_client.planner.lengths import Lengths
from tpf_client.planner.planning import plan_query
from tpf_client.planner.service import services_of, without_service
from tpf_client.planner.source import Source
from tpf_client.planner.union import UnionSource
from tpf_client.sparql.algebra import Query


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
