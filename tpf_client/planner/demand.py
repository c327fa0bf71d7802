"""Find the lookups that can change an answer, under DISTINCT.

Where the variables shown are bound, a few keys are looked up first; not where absence matters.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Schema, Solution, projection
from tpf_client.dataflow.node import Node
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Pattern
from tpf_client.sparql.rewrite.visitor import movable

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


def demand_of(pattern: Pattern) -> "Demand | None":
    """Return the demand of a SELECT DISTINCT; ``None``: all solutions."""
    if isinstance(pattern, algebra.Slice):
        if pattern.by:
            return None
        pattern = pattern.input
    match pattern:
        case algebra.Distinct(algebra.Project(inner, variables)) if _one_by_one(inner):
            return Demand(variables)
        case _:
            return None


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


class Demand:
    """The distinct solutions that an answer needs, but for those that it has."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self._variables = tuple(variables)
        self._seen: set[Solution] = set()

    def attach(self, node: Node) -> None:
        see = projection(node.schema, self._variables)

        def arrive(solution: Solution, _count: int) -> None:
            self._seen.add(see(solution))

        node.connect(arrive)

    def choice(self, schema: Schema, rows_of: RowsOf) -> "Choice | None":
        """Return the choice among the keys that solutions look up; ``None``: all matter."""
        if not set(self._variables) <= set(schema):
            return None
        return Choice(self._seen, projection(schema, self._variables), rows_of)


class Choice:
    """A choice among the keys of a lookup, repeated while answers come."""

    def __init__(
        self, seen: set[Solution], project: Callable[[Solution], Solution], rows_of: RowsOf
    ) -> None:
        self._seen = seen
        self._project = project
        self._rows_of = rows_of
        self._tries = 1

    def needed(self, keys: Iterable[Solution]) -> list[Solution]:
        """Return the keys that can still change the answer: one per combination, then a second."""
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
        """Return how many of the needed keys are worth a try now."""
        count = min(self._missing * self._tries, len(keys))
        self._tries *= 2
        return count
