"""A query in CQELS-QL that runs."""

from collections.abc import Callable, Sequence
from typing import Any

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.engine.delivery import Callback, Emission
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.plans.row_maker import EncodedTriples, Make
from tpf_server.continuous.engine.plans.templates import Template
from tpf_server.continuous.engine.result_columns import EmissionColumns, result_variables
from tpf_server.continuous.engine.running_query import RunningQuery
from tpf_server.continuous.engine.windows.continuous_query import ContinuousQuery


class RegisteredQuery(RunningQuery[Emission]):
    """A query that emits at arrivals.

    Attributes:
        query: what was parsed.
        plan: what makes its solutions.
        stream: the stream that its triples are pushed to, if there is one.
        reads: the streams that it names.
        template: what it has in common with others; ``None`` where it is alone.
        made: makes the rows of an emission from solutions of its plan, and the triples that a
            stream is fed with.
    """

    def __init__(
        self,
        name: str,
        query: ContinuousQuery,
        callback: Callback | None,
        backlog: int,
        close: Callable[["RegisteredQuery"], None],
    ) -> None:
        super().__init__(name, callback, backlog, close)
        self.query = query
        self.stream: Term | None = None
        self.reads = frozenset(Term(each.stream) for each in query.windows if not each.varies)
        self.plan: Plan | None = None
        self.number = 0
        self.template: Template | None = None
        self.made: Make = _no_plan

    @property
    def columns(self) -> EmissionColumns:
        """See `RunningQuery`."""
        return EmissionColumns(result_variables(self.query.query))

    def emission(self, each: Emission, number: int) -> Emission:  # noqa: ARG002 (it has its own)
        """See `RunningQuery`."""
        return each

    def explain(self) -> dict[str, Any]:
        """Its state, its plan with present cardinalities and routes."""
        found = super().explain()
        return found if self.plan is None else {**found, **self.plan.explain()}


def _no_plan(_solutions: Sequence[tuple[Solution, int]]) -> tuple[tuple[Row, ...], EncodedTriples]:
    raise AssertionError("the query has no plan")
