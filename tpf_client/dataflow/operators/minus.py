"""Minus: solutions that share no bound variable with a right solution stay in any case.

Source: SPARQL 1.1 Query Language, section 18.5.
"""

from collections.abc import Mapping, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.layout import Layout, layout
from tpf_client.dataflow.operators.matching import Matching, Pair


class Minus(Matching):
    """Left solutions without a compatible right solution that binds a variable which they bind.

    Args:
        left: the solutions to keep or not.
        right: what is taken away.
        apart: shared variables that must agree, but do not count as shared.
        given: those that count only where another variable of the left lacks a value.
    """

    def __init__(
        self,
        left: Node,
        right: Node,
        apart: Sequence[Variable] = (),
        given: Mapping[Variable, Variable] | None = None,
    ) -> None:
        how = layout(left.schema, left.certain, right.schema, right.certain)
        pair = removes(how, left.schema, right.schema, apart, given or {})
        super().__init__(left, right, how, left.schema, left.certain, pair)

    def render(self, left: Solution, has_partners: bool) -> Solution | None:
        """The left solution, where nothing takes it away."""
        return None if has_partners else left


def removes(
    how: Layout,
    left: tuple[Variable, ...],
    right: tuple[Variable, ...],
    apart: Sequence[Variable],
    given: Mapping[Variable, Variable],
) -> Pair:
    """Whether a right solution takes a left one (with equal keys) away."""
    counting = [name for name in how.shared if name not in apart and name not in given.values()]
    places = [(left.index(name), right.index(name)) for name in counting if name not in given]
    unsure = [
        (left.index(name), right.index(name), left.index(given[name]))
        for name in counting
        if name in given
    ]

    def pair(one: Solution, other: Solution) -> bool:
        if how.merge(one, other) is None:
            return False
        return any(one[at] != UNBOUND and other[there] != UNBOUND for at, there in places) or any(
            one[at] != UNBOUND and other[there] != UNBOUND and one[outside] == UNBOUND
            for at, there, outside in unsure
        )

    return pair
