"""Elements that are named graphs: triples that know the name of their graph.

Only these carry one: an element without is a plain tuple, wherever it goes.
"""

from collections.abc import Iterable
from typing import Final

from annotations.terms import Term

_NAMES: Final = ("<", "_")


class GraphElement(tuple[tuple[Term, Term, Term], ...]):
    """The triples of an element that is a named graph.

    Attributes:
        graph: its name.
    """

    graph: Term


def in_graph(
    name: str | None, triples: Iterable[tuple[Term, Term, Term]]
) -> tuple[tuple[Term, Term, Term], ...]:
    """Triples in the graph of this name; what is no IRI and no blank node names none."""
    if name is None or not name.startswith(_NAMES):
        return tuple(triples)
    found = GraphElement(triples)
    found.graph = Term(name)
    return found


def graph_of(triples: object) -> Term | None:
    """The name of the graph that an element is; ``None``: it has none."""
    return triples.graph if isinstance(triples, GraphElement) else None
