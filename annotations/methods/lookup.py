"""What a `FactPattern` means, said plainly; stores answer by index and are tested against this."""

from annotations.labels import Fact
from annotations.methods.base import NAMED_GRAPHS, FactPattern
from annotations.methods.names import identity
from annotations.terms import DEFAULT_GRAPH


def matches(pattern: FactPattern, fact: Fact) -> bool:
    """Whether a labelled fact is among those that a pattern looks up."""
    quad, label = fact
    if pattern.graph == NAMED_GRAPHS:
        in_graph = quad.graph != DEFAULT_GRAPH
    else:
        in_graph = pattern.graph in (None, quad.graph)
    return (
        in_graph
        and label is not None
        and pattern.subject in (None, quad.subject)
        and pattern.predicate in (None, quad.predicate)
        and pattern.object in (None, quad.object)
        and pattern.labelling in (None, label.labelling)
        and pattern.start in (None, label.start)
        and pattern.end in (None, label.end)
        and (pattern.identity is None or pattern.identity == identity(fact))
    )
