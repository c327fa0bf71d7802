"""The base of the builders of all kinds of patterns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, Self

from annotations.terms import Term, Variable
from tpf_client.dataflow.build.join_order import JoinOrder
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Dataflow, Leaves, Node
from tpf_client.dataflow.operators.basic import Distinct, Extend, Filter, Project
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.matching import Matching
from tpf_client.dataflow.operators.order import Slice, SortKeyOf, TopK
from tpf_client.dataflow.operators.service import Defer, at_once
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, Pattern, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.scopes import in_scope, is_never_an_error

# The rule for keys from outside: where a seed may restrict a pattern, and why no answer changes.
#
# A *seed* is a set S of solutions that all bind the same variables V, and nothing else. It stands
# for what a pattern P is going to meet, so that the leaves of P need only look up what can meet
# it.
#
# **The contract** of whoever evaluates P for S is to give a bag M with M(μ) = [[P]](μ) for every
# solution μ that is compatible with a solution of S. Of every other solution M may hold as many
# copies as it likes: whoever gave the seed throws them away. He does, where S = π_V(L) for
# solutions L that bind V for certain: a join, a left join, a difference and EXISTS look, for a
# left solution λ, at those right solutions alone that are compatible with λ; those are compatible
# with π_V(λ). So the answer over M is the answer over [[P]].
#
# **Fewer variables are always safe**: what is compatible with σ is compatible with each part of σ.
# No seed at all is the seed of the empty solution.
#
# **The rule**, by induction over P. Let μ be compatible with σ ∈ S.
#
# - *Basic graph pattern, path*: what disagrees with every σ in a variable of both is left out. It
#   is no such μ.
# - *Join(A, B)*: μ = α ∪ β, and both parts are compatible with σ: S may go to A and to B. So may
#   the solutions of A go to B, as far as A binds their variables for certain, because β is
#   compatible with an α that is counted right. *Union*: S may go to both sides, one of which has
#   μ. *Filter, Distinct, OrderBy*: S may go to the input, which has μ itself.
# - *LeftJoin(A, B)*: S may go to A, which has α ⊆ μ. **S may not go to B**: whether α stays alone
#   depends on the β that are compatible with α, and not all of them need be compatible with σ where
#   σ binds a variable that α does not. Only what A binds for certain may go to B; then all these β
#   are there. The condition of the left join is no help: it is asked of pairs that are there.
# - *Minus(A, B)*, *EXISTS* in a filter of A: likewise; the answer is a part of A, and B only sees
#   what A binds for certain.
# - *Extend(A, v)*: A has μ without v, so S may go to A without v.
# - *Project(A, W)*: a solution of A has its values of W from μ; of its other variables, which are
#   not those of S even if they are called so, nothing is known. S may go to A as far as it is
#   about W.
# - *Group(A, K)*: μ is made of all solutions of its group, so all of them must be there or none.
#   They agree in the variables among the keys: S may go to A as far as it is about those.
# - *Slice(A)*: the solutions of A that are left out decide which are let through: no seed; but for
#   the variables for each of whose values there is a slice of its own.
#
# Source: SPARQL 1.1 Query Language, sections 18.3 and 18.5; for LeftJoin also Pérez, Arenas and
# Gutierrez, *Semantics and Complexity of SPARQL*, 2009 (well designed patterns are those where the
# difference cannot be seen).


def passed_on(pattern: Pattern, names: Iterable[Variable]) -> tuple[Variable, ...]:
    """Return the variables of a seed that may restrict the (left) input, too."""
    match pattern:
        case algebra.Extend(_, variable):
            return tuple(name for name in names if name != variable)
        case algebra.Project(_, variables):
            return tuple(name for name in names if name in variables)
        case algebra.Group(_, keys):
            return tuple(name for name in names if (name, VariableRef(name)) in keys)
        case algebra.Slice(_, offset, limit, by) if offset or limit is not None:
            return tuple(name for name in names if name in by)
        case _:
            return tuple(names)


class ServiceAccess(NamedTuple):
    """The leaves of each SERVICE (``None``: there are none), and when what they build begins."""

    leaves: Callable[[Term], Leaves] | None = None
    defer: Defer = at_once


NO_SERVICES = ServiceAccess()
NO_DATASET = algebra.DatasetClause()


@dataclass(frozen=True, slots=True)
class Outside:
    """Hold the outer rows of a correlated pattern (in EXISTS)."""

    rows: Node | None = None
    given: Mapping[Variable, Variable] = field(default_factory=dict)


class Construction(ABC):
    """Build nodes for patterns, in small steps.

    `errors` are variables whose values are errors in all solutions built for.
    """

    remembers = False

    def __init__(
        self,
        leaves: Leaves,
        flow: Dataflow,
        environment: Environment,
        services: ServiceAccess = NO_SERVICES,
        dataset: algebra.DatasetClause = NO_DATASET,
    ) -> None:
        self.leaves = leaves
        self.join_order = JoinOrder(leaves)
        self.flow = flow
        self.environment = environment
        self.services = services
        self.dataset = dataset
        self.errors: frozenset[Variable] = frozenset()
        self._numbers = count(1)
        self._outside = Outside()
        self._seeds: dict[tuple[int, tuple[Variable, ...]], Distinct] = {}

    # ----------------------------------------------------------------------------- helpers

    def fresh(self) -> Variable:
        return Variable(f"?.x{next(self._numbers)}")

    def compiler(self, node: Node, row: int | None = None) -> Compiler:
        """Return a compiler of expressions over a node's solutions."""
        return Compiler(self.environment, node.schema, row)

    def project(self, node: Node, names: Sequence[Variable]) -> Node:
        """Project a node to some variables, in this order."""
        return node if node.schema == tuple(names) else self.flow.add(Project(node, names))

    @property
    def outer(self) -> Node | None:
        """The rows outside a correlated pattern; ``None``: it is evaluated by itself."""
        return self._outside.rows

    def within(self, rows: Node, given: Mapping[Variable, Variable]) -> Self:
        """Return a builder in the same dataflow for outer rows (see `Outside`)."""
        return self._with(Outside(rows, given))

    def by_itself(self) -> Self:
        """Return a builder in the same dataflow without outer rows."""
        return self if self.outer is None else self._with(Outside())

    def _with(self, outside: Outside) -> Self:
        other = copy(self)
        other._outside = outside
        return other

    def elsewhere(self, leaves: Leaves) -> Self:
        """Return a builder in the same dataflow with other leaves."""
        other = copy(self.by_itself())
        other.leaves, other.dataset = leaves, NO_DATASET
        other.join_order = JoinOrder(leaves)
        return other

    # These make the nodes that follow one another in a chain, of which nobody else uses one: so
    # rows are asked for where they can be.

    def passing(self, node: Node, condition: Expression) -> Node:
        """Keep the solutions for which a condition without EXISTS is true."""
        test = self.compiler(node).condition(condition)
        return self.flow.add(Filter(node, test, asks=node.askable, expression=condition))

    def extended(
        self, node: Node, variable: Variable, expression: Expression, row: int | None = None
    ) -> Node:
        """Add a variable with the value of an expression without EXISTS."""
        volatile = is_volatile(expression)
        return self.flow.add(
            Extend(
                node,
                variable,
                self.compiler(node, row).binding(expression),
                volatile=volatile,
                always=is_never_an_error(expression),
                asks=node.askable and not volatile,
                expression=expression,
            )
        )

    def copied(self, node: Node, variable: Variable, source: Variable) -> Node:
        """Add a variable with the value of another."""
        names = (*node.schema, variable)
        return self.flow.add(Project(node, names, {variable: source}, asks=node.askable))

    def reduced(self, node: Node, names: Sequence[Variable]) -> Node:
        if node.schema == tuple(names):
            return node
        return self.flow.add(Project(node, names, asks=node.askable))

    def distinct(self, node: Node) -> Node:
        """Keep each solution once."""
        return self.flow.add(Distinct(node))

    def first_ones(self, node: Node, key: SortKeyOf, offset: int, limit: int | None) -> Node:
        """Keep the first solutions in an order (see `TopK`)."""
        return self.flow.add(TopK(node, key, offset, limit, asks=node.askable))

    def some(self, node: Node, offset: int, limit: int | None) -> Node:
        """Keep some solutions in no order (see `Slice`)."""
        return self.flow.add(Slice(node, offset, limit))

    def groups_of(self, node: Node, how: Grouping, pattern: algebra.Group) -> Node:  # noqa: ARG002
        """Group a node's solutions (see `Group`); `pattern` says how."""
        return self.flow.add(Group(node, how))

    def seed(self, node: Node | None, names: Sequence[Variable]) -> Distinct | None:
        """Build the distinct values of those variables that a node certainly binds."""
        if node is None:
            return None
        shared = tuple(name for name in node.schema if name in names and name in node.certain)
        if not shared:
            return None
        key = (id(node), shared)
        if key not in self._seeds:
            reduced = self.project(node, shared)
            self._seeds[key] = (
                reduced if isinstance(reduced, Distinct) else self.flow.add(Distinct(reduced))
            )
        return self._seeds[key]

    def matching(self) -> Callable[[Matching, Node], Matching]:
        """Return a function that adds a matching node; call it before building the right side.

        A left solution's result is final once all requests of the right side, or its own, are
        answered.
        """
        leaves, nodes, start = self.leaves, self.flow.nodes, len(self.flow.nodes)
        mark = leaves.mark()

        def add(node: Matching, left: Node) -> Matching:
            inside, at_rest = nodes[start:], leaves.at_rest(mark)

            def settled() -> bool:
                return at_rest() and not any(
                    each.pending or each.leads_elsewhere for each in inside
                )

            knows_all: Callable[[Solution], bool] | None = None
            test = leaves.seed_test(mark)
            if test is not None and not any(map(_holds_back, inside)):
                names, all_came = test
                if set(names) <= set(left.schema):
                    seed_of = projection(left.schema, names)

                    def knows_all(solution: Solution) -> bool:
                        return all_came(seed_of(solution))

            node.decide_by(settled, knows_all)
            return self.flow.add(node)

        return add

    @contextmanager
    def not_hurried(self) -> Iterator[None]:
        """Build nodes that are read only when all input has come."""
        mark = self.leaves.mark()
        yield
        self.leaves.not_hurried(mark)

    @contextmanager
    def knowing(self, errors: frozenset[Variable]) -> Iterator[None]:
        """Build nodes for solutions in which these variables are errors."""
        before, self.errors = self.errors, errors
        yield
        self.errors = before

    def sideways(self, node: Node, pattern: Pattern) -> Node | None:
        """Build the seed that a node gives to a pattern."""
        return self.seed(node, in_scope(pattern))

    def passed_on(self, pattern: Pattern, seed: Node | None) -> Node | None:
        """Reduce a pattern's seed to what its input may have too."""
        return None if seed is None else self.seed(seed, passed_on(pattern, seed.schema))

    @abstractmethod
    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        """Build a pattern's solutions, correct for those compatible with `seed`."""

    @abstractmethod
    def without_exists(self, node: Node, expression: Expression) -> tuple[Node, Expression]:
        """Replace EXISTS in an expression by variables that the returned node binds."""


def _holds_back(node: Node) -> bool:
    return node.holds or type(node).leads_elsewhere is not Node.leads_elsewhere
