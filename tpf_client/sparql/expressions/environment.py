"""The environment of compiled expressions."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Any, TypeAlias

from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.typed_terms import Remembered, TypedTerms
from tpf_client.sparql.expressions.values import Value

Solution: TypeAlias = tuple[int, ...]
"""Identifiers of terms, one for each variable of a schema; 0 where there is none."""
Spend: TypeAlias = Callable[[int], None]
"""Takes a number of characters, or work that costs as much as reading these."""
ValueOf: TypeAlias = Callable[[Solution], Value]
TermOf: TypeAlias = Callable[[Solution], int]


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies of expressions beside the solution."""

    typed: TypedTerms
    now: DateTime
    random: Random = field(default_factory=SystemRandom)
    nodes: Remembered[tuple[Any, ...], int] = field(default_factory=Remembered)
    """Blank nodes that BNODE(label) has made, by the row and the label."""
    strict: bool = True
    """Whether a function that is not known is refused; else a call of it is an error, which leaves
    its variable unbound (section 17.6)."""
    spend: Spend | None = None
    """Called before long texts are read or made, and for rows of large expressions; may raise an
    error that ends the query. ``None``: no bound."""

    def forget(self, identifiers: Collection[int]) -> None:
        dropped = set(identifiers)
        for key in [key for key, node in self.nodes.items() if node in dropped]:
            del self.nodes[key]
