"""A parsed continuous query: SPARQL over windows."""

from dataclasses import dataclass

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Pattern,
    Project,
    Query,
    Reduced,
    Slice,
    Union,
)
from tpf_server.continuous.runtime.static.service_clauses import ServiceClause
from tpf_server.continuous.runtime.windows.specification import Window

MARK = "urn:x-cqels:window:"
"""The prefix of the graph names that stand for windows."""
VARYING_MARK = "?.window:"
"""The prefix of the variables that stand for windows over every stream."""
_NAMED = Term("<urn:x-cqels:named>")


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A STREAM clause: the stream, its window, and the graph name that stands for it.

    Where the stream is a variable, each stream has a window of its own. Then the graph name is a
    variable, too, that has the stream as its value; or a name with `name_of_stream` beside it.
    """

    stream: TermOrVariable
    window: Window
    graph: TermOrVariable

    @property
    def varies(self) -> bool:
        """True if it reads every stream."""
        return is_variable(self.stream)


def name_of_stream(graph: Term, name: Variable) -> QuadPattern:
    """Return the pattern of a window over every stream that binds `name` to the stream."""
    return QuadPattern(name, _NAMED, name, graph)


def named_stream(pattern: QuadPattern) -> Variable | None:
    """Return the variable that such a pattern binds to the stream, or ``None``."""
    named = pattern.predicate == _NAMED and pattern.graph.startswith("<" + MARK)
    return Variable(pattern.subject) if named else None


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A SPARQL query over windows and static graphs.

    Args:
        query: the algebra; quad patterns of a STREAM clause lie in its reserved graph.
        services: the SERVICE clauses, for which static graphs stand.
    """

    query: Query
    windows: tuple[WindowClause, ...]
    text: str
    services: tuple[ServiceClause, ...] = ()

    def window_of(self, graph: str) -> WindowClause | None:
        """Return the STREAM clause of a graph name, or ``None``."""
        if graph.startswith("<" + MARK):
            return self.windows[int(graph[len(MARK) + 1 : -1])]
        if graph.startswith(VARYING_MARK):
            return self.windows[int(graph[len(VARYING_MARK) :])]
        return None

    @property
    def varies(self) -> bool:
        """True if it reads every stream, present and future."""
        return any(clause.varies for clause in self.windows)

    @property
    def reads(self) -> frozenset[Term]:
        return frozenset(Term(each.stream) for each in self.windows if not each.varies)

    def waits_for_elements(self, pattern: Pattern) -> bool:
        """True if a part of the query surely has no solution while its windows are empty."""
        match pattern:
            case BGP(patterns):
                return any(self.window_of(each.graph) is not None for each in patterns)
            case Join(left, right):
                return self.waits_for_elements(left) or self.waits_for_elements(right)
            case Union(left, right):
                return self.waits_for_elements(left) and self.waits_for_elements(right)
            case LeftJoin(left) | Minus(left):
                return self.waits_for_elements(left)
            case Group(inner, keys):
                return bool(keys) and self.waits_for_elements(inner)
            case (
                Filter(inner)
                | Extend(inner)
                | Project(inner)
                | Distinct(inner)
                | Reduced(inner)
                | OrderBy(inner)
                | Slice(inner)
            ):
                return self.waits_for_elements(inner)
        return False
