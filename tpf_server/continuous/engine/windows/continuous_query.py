"""A continuous query as its parser gives it: SPARQL over windows."""

from dataclasses import dataclass

from annotations.terms import Term
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
from tpf_server.continuous.engine.windows.specification import Window

MARK = "urn:x-cqels:window:"
"""What the graph names begin with that stand for windows."""


@dataclass(frozen=True, slots=True)
class WindowClause:
    """A STREAM clause: the stream, its window, and the graph name that stands for it."""

    stream: Term
    window: Window
    graph: Term


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A continuous query: a SPARQL query over windows and static graphs.

    Args:
        query: the algebra; quad patterns of a STREAM clause lie in its reserved graph.
        windows: the STREAM clauses, in the order of the text.
        text: what was parsed.
    """

    query: Query
    windows: tuple[WindowClause, ...]
    text: str

    def window_of(self, graph: str) -> WindowClause | None:
        """The STREAM clause that a graph name stands for; ``None`` for every other graph."""
        if not graph.startswith("<" + MARK):
            return None
        return self.windows[int(graph[len(MARK) + 1 : -1])]

    def waits_for_elements(self, pattern: Pattern) -> bool:
        """Whether a part of the query surely has no solution before there is something in a window.

        Args:
            pattern: the part.
        """
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
