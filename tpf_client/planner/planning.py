"""From a query to the dataflow that answers it over fragments."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from annotations.instants import utc
from annotations.terms import QuadPattern, Term, iri_value, is_variable
from tpf_client.dataflow.build.builder import build_query
from tpf_client.dataflow.build.construction import ServiceAccess
from tpf_client.dataflow.build.join_order import steps_of
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Node
from tpf_client.dataflow.operators.basic import Output
from tpf_client.errors import OriginError, ServiceError, UnsupportedQueryError
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.fragment_source import FragmentSource, SourceUse
from tpf_client.planner.leaves import FragmentLeaves
from tpf_client.planner.service import SilentSource, services_of
from tpf_client.sparql.algebra import (
    BGP,
    Path,
    Query,
    Service,
    Slice,
    variables_of_bgp,
)
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.rewrite.push_down import (
    filters_to_values,
    push_filters,
    push_limits,
    put_constants,
    split_values,
)
from tpf_client.sparql.rewrite.visitor import everything


def plan_query(
    query: Query,
    leaves: FragmentLeaves,
    evaluation: Evaluation,
    now: datetime,
    on_change: Callable[[Solution, int], None] | None = None,
    allowed: Collection[str] | None = None,
    *,
    strict: bool = False,
) -> Output:
    """Build the dataflow of a query that `check` passed; it depends on estimates (see `planned`).

    `allowed` are the URLs of SERVICE (``None``: any).
    """
    services: dict[Term, FragmentLeaves] = {}
    silent, loud = (
        {each.endpoint for each in services_of(query.pattern) if each.silent is is_silent}
        for is_silent in (True, False)
    )
    by_name = any(map(is_variable, silent)) and not any(map(is_variable, loud))

    def service(endpoint: Term) -> FragmentLeaves:
        if endpoint not in services:
            url = iri_value(endpoint)
            quiet = endpoint not in loud and (endpoint in silent or by_name)
            if allowed is not None and url not in allowed:
                reason = "SERVICE may not ask it here"
                raise ServiceError(url, reason, endpoint) if quiet else OriginError(url, reason)
            sources = evaluation.learned.services
            if endpoint not in sources:
                source = _service_source(evaluation, query, endpoint)
                sources[endpoint] = SilentSource(source, endpoint) if quiet else source
            services[endpoint] = FragmentLeaves(evaluation, sources[endpoint], plan=leaves.plan)
        return services[endpoint]

    pattern = put_constants(split_values(filters_to_values(push_filters(query.pattern))))
    if query.form == "ASK" and not evaluation.live:
        pattern = Slice(pattern, 0, 1)
    query = replace(query, pattern=push_limits(pattern))
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


class _NoFragments:
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
