"""The AGGREGATE clause in the algebra: every solution gets the value of its group.

Source: paper 003, sections 2.2 and 3.1: solutions are extended and not collapsed.
"""

from dataclasses import dataclass

from annotations.terms import Variable
from tpf_client.sparql.algebra import Aggregate, Extend


@dataclass(frozen=True, slots=True)
class Aggregated(Extend):
    """Adds the aggregate of all solutions with the same values of the keys.

    It is an `Extend` to everything that asks for scopes; its expression is an `Aggregate`. The
    value stays unbound where the aggregate is an error.
    """

    keys: tuple[Variable, ...] = ()

    @property
    def aggregate(self) -> Aggregate:
        """What is computed for each group."""
        assert isinstance(self.expression, Aggregate)
        return self.expression
