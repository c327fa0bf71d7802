"""A continuous query as its parser gives it: SPARQL over windows."""

from dataclasses import dataclass

from annotations.terms import Term
from tpf_client.sparql.algebra import Query
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
