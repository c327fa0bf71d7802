"""A running query in CQELS-QL."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.codegen import compiled
from tpf_client.dataflow.construct import construct_lines, repeated
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Query, Row
from tpf_client.sparql.expressions.typed_terms import Remembered
from tpf_server.continuous.runtime.delivery import Callback, Emission, wanted_variables
from tpf_server.continuous.runtime.plans.plan import Plan
from tpf_server.continuous.runtime.plans.templates import Template
from tpf_server.continuous.runtime.running_query import (
    EmissionColumns,
    RunningQuery,
    result_variables,
)
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple

# From solutions to rows of terms; the code is generated for each query.
#
# Many queries emit far more rows than elements arrive, so what a row costs is what they cost: a
# lookup for each term, a check where a term may not stand in its place, nothing else.

_MOST_ROWS: Final = 1_000
"""So many rows of a query are remembered."""
EncodedTriples: TypeAlias = list[EncodedTriple] | None
_LABELS: Final = itertools.count(1)
"""Of blank nodes: what several queries push into streams may meet there."""
Make: TypeAlias = Callable[[Sequence[tuple[Solution, int]]], tuple[tuple[Row, ...], EncodedTriples]]


class RowMaker:
    """Make rows of terms from solutions.

    Args:
        feeds: make identifiers of the triples of CONSTRUCT, too.
        again: cache rows, as solutions repeat.

    Attributes:
        made: returns the rows of solutions, in their order, repeated by their counts; and nothing,
            or the same as identifiers. Of CONSTRUCT these are the valid triples of the template,
            with new blank nodes for each copy of a solution.
    """

    made: Make

    def __init__(
        self,
        query: Query,
        schema: Schema,
        dictionary: TermDictionary,
        *,
        feeds: bool = False,
        again: bool = False,
    ) -> None:
        self._feeds = feeds
        self._names: dict[str, Any] = {"texts": dictionary.texts, "encode": dictionary.encode}
        variables = wanted_variables(query)
        self._values = {name: f"v{at}" for at, name in enumerate(schema) if name in variables}
        taken = [self._values.get(name, "_") for name in schema]
        unpacked = f"({''.join(f'{name}, ' for name in taken)})"
        values = self._values.values()
        decoded = [f"{name} = texts[{name}] if {name} else None" for name in values]
        row = f"({''.join(f'{self._values.get(name)}, ' for name in variables)})"
        head = f"for {unpacked}, count in solutions:"
        if again and query.form != "CONSTRUCT":
            # No integer is given twice, so that rows are right also where their terms are gone.
            self._names["known"] = Remembered[Solution, Row]()
            head = "for solution, count in solutions:"
            body = _remembered([f"{unpacked} = solution", *decoded], row)
        else:
            body = repeated(row) if query.form != "CONSTRUCT" else self._constructed(query)
            body = [*([] if feeds else decoded), *body]
        lines = ["def rows(solutions):", "    result = []", f"    {head}"]
        lines += [f"        {line}" for line in body]
        texts = "tuple([(texts[s], texts[p], texts[o]) for s, p, o in result])"
        lines.append(f"    return {texts}, result" if feeds else "    return tuple(result), None")
        self.made = compiled("\n".join(lines), "rows", self._names)

    def _constructed(self, query: Query) -> list[str]:
        self._names["fresh"] = lambda: f"made{next(_LABELS)}"
        if not self._feeds:
            return construct_lines(query.template, self._values, self._names)
        return construct_lines(
            query.template, self._values, self._names, text="texts[{}]", term="encode({})"
        )


def _remembered(made: Sequence[str], row: str) -> list[str]:
    """Return the lines that append the row of a solution from the cache, or make it."""
    return [
        "row = known.get(solution)",
        "if row is None:",
        *(f"    {line}" for line in (*made, f"row = {row}")),
        f"    if len(known) >= {_MOST_ROWS}:",
        "        known.clear()",
        "    known[solution] = row",
        *repeated("row"),
    ]


class RegisteredQuery(RunningQuery[Emission]):
    """A query that emits at arrivals.

    Attributes:
        template: shared with similar queries; ``None`` where it is alone.
        made: makes the rows of an emission from solutions of its plan, and the triples for its
            stream.
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
        self.reads = query.reads
        self.plan: Plan | None = None
        self.number = 0
        self.template: Template | None = None
        self.made: Make = _no_plan

    @property
    def columns(self) -> EmissionColumns:
        return EmissionColumns(result_variables(self.query.query))

    def emission(self, each: Emission, number: int) -> Emission:  # noqa: ARG002 (it has its own)
        return each

    @property
    def condition(self) -> dict[str, Any]:
        result, reason = super().condition, None if self.plan is None else self.plan.reason
        return result if reason is None else result | {"state": "waiting", "reason": reason}

    def explain(self) -> dict[str, Any]:
        """Return its state, its plan with present cardinalities and routes."""
        result = super().explain()
        return result if self.plan is None else {**result, **self.plan.explain()}


def _no_plan(_solutions: Sequence[tuple[Solution, int]]) -> tuple[tuple[Row, ...], EncodedTriples]:
    raise AssertionError("the query has no plan")
