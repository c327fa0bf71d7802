"""Find the lookups that can change an answer, under DISTINCT and ORDER BY with LIMIT.

Where the variables shown are bound, a few keys are looked up first, the others if still needed.
This holds for joins, unions and filters, not where absence matters or solutions are counted.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Schema, Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.order import TopK
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.ordering import sort_key
from tpf_client.sparql.rewrite.visitor import movable
from tpf_client.sparql.scopes import variables_in

RowsOf: TypeAlias = Callable[[Solution], Iterable[Solution]]


class Need:
    """The need for a part of a query: all, or until limits are met."""

    def __init__(self) -> None:
        self._limits: list[Callable[[], int | None]] = []
        self.hurried = True
        """Whether solutions of the query may come out before this part is complete."""
        self.doubtful = False
        """Whether a limit may never be met, because something may let nothing through."""
        self.decides = False
        """Whether a solution may have to wait until it is sure that it finds nothing here."""

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return bool(self._limits)

    @property
    def missing(self) -> int | None:
        """The number of solutions still needed; ``None``: unknown."""
        return min((n for each in self._limits if (n := each()) is not None), default=None)

    @property
    def met(self) -> bool:
        """True if a limit is met, so that nothing more is needed."""
        return self.missing == 0

    @property
    def enough(self) -> Callable[[], bool] | None:
        """Return a test whether a limit is met, if there is one."""
        return (lambda: self.met) if self._limits else None

    def limit(self, missing: Callable[[], int | None], *, doubtful: bool = False) -> None:
        """Need nothing more once no solution is missing."""
        self._limits.append(missing)
        self.doubtful = self.doubtful or doubtful

    def hold_back(self) -> None:
        """Let no solution come out before this part is complete."""
        self.hurried = False

    def decide(self) -> None:
        """Let solutions wait until it is sure that they find nothing here."""
        self.decides = True


class Choice(Protocol):
    """A choice among the keys of a lookup, repeated while answers come."""

    def needed(self, keys: Iterable[Solution]) -> list[Solution]:
        """Return the keys that can still change the answer, best first."""

    def enough(self, keys: Sequence[Solution]) -> int:
        """Return how many of the needed keys are worth a try now."""


class Demand(Protocol):
    """The solutions that an answer needs."""

    def attach(self, node: Node) -> None:
        """Watch what comes out of a node."""

    def choice(self, schema: Schema, rows_of: RowsOf) -> Choice | None:
        """Return the choice among the keys of a lookup; ``None``: all matter.

        `schema` and `rows_of` are those of the solutions that look up keys.
        """


def demand_of(pattern: Pattern, environment: Environment) -> Demand | None:
    """Return the demand of a SELECT with its modifiers; ``None``: all solutions."""
    limit: int | None = None
    if isinstance(pattern, algebra.Slice):
        if pattern.by:
            return None
        limit = None if pattern.limit is None else pattern.offset + pattern.limit
        pattern = pattern.input
    distinct = isinstance(pattern, algebra.Distinct)
    if isinstance(pattern, algebra.Distinct):
        pattern = pattern.input
    if not isinstance(pattern, algebra.Project):
        return None
    variables, pattern = pattern.variables, pattern.input
    if isinstance(pattern, algebra.OrderBy):
        conditions = pattern.conditions
        simple = all(movable(each.expression) for each in conditions)
        if distinct or not limit or not simple or not _one_by_one(pattern.input):
            return None
        return _FirstOnes(conditions, limit, environment)
    return _Different(variables) if distinct and _one_by_one(pattern) else None


def _one_by_one(pattern: Pattern) -> bool:
    """True if each solution comes from one solution of every part, and no absence."""
    match pattern:
        case algebra.BGP() | algebra.Values():
            return True
        case algebra.Join(left, right) | algebra.Union(left, right):
            return _one_by_one(left) and _one_by_one(right)
        case algebra.Filter(inner, expression) | algebra.Extend(inner, _, expression):
            return movable(expression) and _one_by_one(inner)
        case _:
            return False


class _Different:
    def __init__(self, variables: Sequence[Variable]) -> None:
        self._variables = tuple(variables)
        self._seen: set[Solution] = set()

    def attach(self, node: Node) -> None:
        see = projection(node.schema, self._variables)

        def arrive(solution: Solution, _count: int) -> None:
            self._seen.add(see(solution))

        node.connect(arrive)

    def choice(self, schema: Schema, rows_of: RowsOf) -> Choice | None:
        if not set(self._variables) <= set(schema):
            return None
        return _DifferentChoice(self._seen, projection(schema, self._variables), rows_of)


class _DifferentChoice:
    def __init__(
        self, seen: set[Solution], project: Callable[[Solution], Solution], rows_of: RowsOf
    ) -> None:
        self._seen = seen
        self._project = project
        self._rows_of = rows_of
        self._tries = 1

    def needed(self, keys: Iterable[Solution]) -> list[Solution]:
        """See `Choice`: one key per combination, then a second one."""
        turns: dict[Solution, int] = {}
        placed: list[tuple[int, int, Solution]] = []
        for number, key in enumerate(keys):
            missing = {self._project(row) for row in self._rows_of(key)} - self._seen
            if missing:
                for each in missing:
                    turns[each] = turns.get(each, 0) + 1
                placed.append((min(turns[each] for each in missing), number, key))
        placed.sort()
        self._missing = len(turns)
        return [key for _, _, key in placed]

    def enough(self, keys: Sequence[Solution]) -> int:
        count = min(self._missing * self._tries, len(keys))
        self._tries *= 2
        return count


class _FirstOnes:
    def __init__(
        self,
        conditions: tuple[algebra.OrderCondition, ...],
        limit: int,
        environment: Environment,
    ) -> None:
        self._conditions = conditions
        self._limit = limit
        self._environment = environment
        self._best: list[Any] = []

    @property
    def bound(self) -> Any:
        """The key behind which nothing matters, if known."""
        return self._best[-1] if len(self._best) == self._limit else None

    def attach(self, node: Node) -> None:
        assert isinstance(node, TopK)
        before, order = node.upstream, node.sorts_by

        def arrive(solution: Solution, count: int) -> None:
            key = order(solution)
            for _ in range(min(count, self._limit)):
                if len(self._best) == self._limit:
                    if not key < self._best[-1]:
                        return
                    self._best.pop()
                insort(self._best, key)

        before.connect(arrive)

    def choice(self, schema: Schema, rows_of: RowsOf) -> Choice | None:
        used = {name for each in self._conditions for name in variables_in(each.expression)}
        if not used <= set(schema):
            return None
        key = sort_key(Compiler(self._environment, schema), self._conditions)
        return _FirstChoice(self, key, rows_of, self._limit)


class _FirstChoice:
    def __init__(
        self,
        demand: _FirstOnes,
        key: Callable[[Solution], Any],
        rows_of: RowsOf,
        limit: int,
    ) -> None:
        self._demand = demand
        self._key = key
        self._rows_of = rows_of
        self._count = limit

    def needed(self, keys: Iterable[Solution]) -> list[Solution]:
        """See `Choice`: those that come first in the order."""
        bound = self._demand.bound
        placed = []
        for number, key in enumerate(keys):
            first = min(map(self._key, self._rows_of(key)), default=None)
            if first is not None and (bound is None or not bound < first):
                placed.append((first, number, key))
        placed.sort()
        return [key for _, _, key in placed]

    def enough(self, keys: Sequence[Solution]) -> int:
        count = min(self._count, len(keys))
        self._count *= 2
        return count
