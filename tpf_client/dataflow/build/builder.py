"""Algebra to dataflow.

Solutions are passed sideways: what a pattern is joined with (or is optional to, or is subtracted
from) tells its leaves which bindings can matter, as a *seed*: a node of the distinct values of the
variables that both sides bind for certain. A seed only spares work; joins decide. How far down it
may go is said, with its proof, in `tpf_client.dataflow.build.seeds`.

Source: SPARQL 1.1 Query Language, section 18.
"""

from collections.abc import Callable
from functools import partial

from annotations.terms import Variable
from tpf_client.dataflow.build.construction import Construction, ServiceLeaves
from tpf_client.dataflow.build.describe_builder import build_description
from tpf_client.dataflow.build.exists_builder import attach_exists
from tpf_client.dataflow.build.group_builder import build_group
from tpf_client.dataflow.build.modifiers_builder import Watch, build_modified
from tpf_client.dataflow.build.path_builder import build_path
from tpf_client.dataflow.build.service_builder import build_service
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.node import (
    CountingLeaves,
    Dataflow,
    EarlyFilter,
    FilteringLeaves,
    Leaves,
    Node,
)
from tpf_client.dataflow.operators.construct import Construct
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.each_endpoint import Defer, at_once
from tpf_client.dataflow.operators.filter import Filter
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.keyed_join import KeyedJoin, joins_by_key
from tpf_client.dataflow.operators.left_join import LeftJoin
from tpf_client.dataflow.operators.minus import Minus
from tpf_client.dataflow.operators.number import Number
from tpf_client.dataflow.operators.on_demand import OnDemand
from tpf_client.dataflow.operators.order import SortKeyOf
from tpf_client.dataflow.operators.output import Output
from tpf_client.dataflow.operators.union import Union
from tpf_client.dataflow.operators.values import Values
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Exists, Expression, Pattern, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.conditions import conjuncts, first_exists, movable
from tpf_client.sparql.rewrite.operands import operands
from tpf_client.sparql.rewrite.rename import replaced
from tpf_client.sparql.rewrite.restrict import restrict
from tpf_client.sparql.scopes import (
    always_bound,
    bound_but_for_errors,
    in_scope,
    is_never_an_error,
    variables_in,
)


def build_query(
    query: algebra.Query,
    leaves: Leaves,
    flow: Dataflow,
    environment: Environment,
    *,
    services: ServiceLeaves | None = None,
    defer: Defer = at_once,
    on_change: Callable[[Solution, int], None] | None = None,
    watch: Watch | None = None,
    kept: bool = False,
) -> Output:
    """The dataflow of a query.

    Args:
        query: SELECT gives its solutions, CONSTRUCT those for its template, ASK a solution where
            the answer is yes, DESCRIBE the triples as solutions of three variables.
        leaves: who provides the matches of basic graph patterns; adds its nodes to `flow`.
        flow: takes in the nodes.
        environment: what expressions depend on.
        services: the leaves of the endpoint of SERVICE.
        defer: see `EachEndpoint`.
        on_change: see `Output`.
        watch: told of the core of a SELECT query, where it has one, while the dataflow is built.
        kept: whether the answer itself is kept up to date: then ASK gives the empty solution where
            the answer is yes, and CONSTRUCT its distinct triples.

    Raises:
        UnsupportedQueryError: something in the query cannot be evaluated; nothing has run yet.
    """
    builder = Builder(leaves, flow, environment, services, defer, query.dataset)
    pattern = restrict(query.pattern, query.dataset, builder.fresh)
    return build_output(builder, query, pattern, on_change, watch, kept=kept)


def build_output(
    builder: "Builder",
    query: algebra.Query,
    pattern: Pattern,
    on_change: Callable[[Solution, int], None] | None = None,
    watch: Watch | None = None,
    *,
    kept: bool = False,
) -> Output:
    """What each form of query makes of a pattern (see `build_query`)."""
    if query.form == "ASK" and kept:
        pattern = algebra.Distinct(algebra.Project(pattern, ()))
    elif query.form == "ASK":
        pattern = algebra.Slice(pattern, 0, 1)
    if query.form == "DESCRIBE":
        return Output(*build_description(builder, query, pattern), None, on_change)
    if query.form == "CONSTRUCT" and kept:
        node, variables, _ = builder.modified(pattern, None)
        solutions = builder.project(node, variables)
        made = builder.flow.add(Construct(solutions, query.template, builder.flow.dictionary))
        return Output(made, made.schema, None, on_change)
    node, variables, order = builder.modified(pattern, None, watch)
    return Output(node, variables, order, on_change)


class Builder(Construction):
    """Builds nodes for patterns, bottom-up."""

    # ---------------------------------------------------------------------------- patterns

    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        """The node of a pattern's solutions.

        Right about those that are compatible with a solution of `seed` (see
        `tpf_client.dataflow.build.seeds`).
        """
        match pattern:
            case algebra.BGP(patterns):
                if not patterns:
                    return self.outer or self.flow.add(Values((), [()]))
                within = self.seed(seed or self.outer, in_scope(pattern))
                return self._correlated(self.leaves.bgp(patterns, within))
            case algebra.Path():
                return self._correlated(build_path(self, pattern, seed or self.outer))
            case algebra.Values(variables, rows):
                encode = self.flow.dictionary.encode
                encoded = [tuple([encode(t) if t else UNBOUND for t in row]) for row in rows]
                return self._correlated(self.flow.add(Values(variables, encoded)))
            case algebra.Join():
                return self._join(pattern, seed)
            case algebra.LeftJoin():
                return self._left_join(pattern, seed)
            case algebra.Filter(algebra.BGP(patterns) as bgp, condition) if patterns:
                return self._filtered_bgp(bgp, condition, seed)
            case algebra.Filter(inner, condition):
                return self.filtered(self.build(inner, seed), condition)
            case algebra.Union(left, right):
                return self.flow.add(Union(self.build(left, seed), self.build(right, seed)))
            case algebra.Extend():
                return self._extend(pattern, seed)
            case algebra.Minus(left, right, apart):
                there = bound_but_for_errors(left)

                def minus(left: Node, _seed: Node | None) -> Node:
                    return self._minus(left, right, apart)

                return self.with_keys(self.build(left, seed), there, right, minus)
            case algebra.Group():
                return self.grouped(pattern, seed)
            case algebra.Service():
                return self._correlated(build_service(self, pattern, seed or self.outer))
            case _:
                return self._sub_select(pattern, seed)

    def _correlated(self, node: Node) -> Node:
        return node if self.outer is None else self.flow.add(HashJoin(self.outer, node))

    def _join(self, pattern: Pattern, seed: Node | None) -> Node:
        first, *rest = self.join_order.of(operands(pattern), seed or self.outer)
        node = self.build(first, seed)
        there = bound_but_for_errors(first)
        about = self.join_order.foreseen(first)
        for each in rest:

            def join(
                left: Node, seed: Node | None, each: Pattern = each, about: float = about
            ) -> Node:
                keys = self.sideways(left, each)
                if keys is not None:
                    keys.expected = about
                return self.joined(left, self.build(each, keys or seed))

            node = self.with_keys(node, there, each, join, always_bound(each), seed)
            there |= bound_but_for_errors(each)
            about = min(about, self.join_order.foreseen(each))
        return node

    def with_keys(
        self,
        node: Node,
        there: frozenset[Variable],
        pattern: Pattern,
        combine: Callable[[Node, Node | None], Node],
        added: frozenset[Variable] = frozenset(),
        seed: Node | None = None,
    ) -> Node:
        """What is made of a node's solutions and a pattern, each by itself, with the most keys.

        What is computed is a key, too, where that was no error. So solutions without an error are
        combined by themselves; the others, as soon as there is one, with what they agree with.

        Args:
            node: the solutions.
            there: variables that they bind, but for errors.
            pattern: what they are combined with.
            combine: makes the combination of a node of some of the solutions, for a seed.
            added: variables that the pattern binds in every solution of the combination.
            seed: what the combination is needed for.
        """
        unsure = (there & set(in_scope(pattern)) & set(node.schema)) - node.certain
        if not unsure or self.outer is not None or not isinstance(self.leaves, CountingLeaves):
            return combine(node, seed)
        places = [node.schema.index(name) for name in unsure]

        def has_all(solution: Solution) -> bool:
            return all(solution[place] for place in places)

        sure = self.flow.add(Filter(node, has_all, node.certain | unsure))
        without_error = combine(sure, seed)
        names = {*node.schema, *in_scope(pattern)}
        schema = tuple(name for name in without_error.schema if name in names)
        certain = without_error.certain & (node.certain | added)
        others = OnDemand(
            self.flow.add(Filter(node, lambda solution: not has_all(solution))),
            schema,
            certain & set(schema),
            lambda left, seed: self.project(combine(left, seed), schema),
            self.defer,
            monotone=without_error.monotone,
            seed=self.seed(seed, in_scope(pattern)),
        )
        both = (self.project(without_error, schema), self.flow.add(others))
        return self.flow.add(Union(*both))

    def joined(self, left: Node, right: Node) -> Node:
        """The join of two nodes; of two that can be asked by their keys."""
        if left.askable and right.askable and joins_by_key(left, right):
            return self.flow.add(KeyedJoin(left, right))
        return self.flow.add(HashJoin(left, right))

    def _left_join(self, pattern: algebra.LeftJoin, seed: Node | None) -> Node:
        left = self.build(pattern.left, seed)
        there = bound_but_for_errors(pattern.left)

        def optional(left: Node, _seed: Node | None) -> Node:
            return self._optional(left, pattern)

        return self.with_keys(left, there, pattern.right, optional)

    def _optional(self, left: Node, pattern: algebra.LeftJoin) -> Node:
        condition, add = pattern.condition, self.matching()
        if condition is None:
            right = self.build(pattern.right, self.sideways(left, pattern.right))
            return add(LeftJoin(left, right), left)
        if movable(condition):
            right = self.build(pattern.right, self.sideways(left, pattern.right))
            merged = left.schema + tuple(n for n in right.schema if n not in left.schema)
            test = Compiler(self.environment, merged).condition(condition)
            return add(LeftJoin(left, right, test), left)
        # Number the rows, so that the filtered pairs come back to exactly their left row.
        numbered = self.flow.add(Number(left, self.fresh()))
        right = self.build(pattern.right, self.sideways(left, pattern.right))
        # Once for equal rows: they come back to each copy.
        each = self.flow.add(Distinct(numbered))
        pairs = self.filtered(self.flow.add(HashJoin(each, right)), condition)
        added = tuple(name for name in right.schema if name not in left.schema)
        loose = tuple(name for name in left.schema if name not in left.certain)
        found = self.project(pairs, (numbered.schema[-1], *loose, *added))
        joined = add(LeftJoin(numbered, found), numbered)
        return self.project(joined, left.schema + added)

    def _filtered_bgp(self, bgp: algebra.BGP, condition: Expression, seed: Node | None) -> Node:
        """The matches of a basic graph pattern that fulfil a condition, filtered early if can be.

        What looks at nothing but the pattern may run between its parts.
        """
        leaves = self.leaves
        early: list[EarlyFilter] = []
        late: list[Expression] = []
        for each in conjuncts(condition):
            used = variables_in(each)
            inside = used <= always_bound(bgp) and movable(each)
            if isinstance(leaves, FilteringLeaves) and inside:
                early.append(EarlyFilter(used, partial(self.filtered, condition=each)))
            else:
                late.append(each)
        if early and isinstance(leaves, FilteringLeaves):
            within = self.seed(seed or self.outer, in_scope(bgp))
            node = self._correlated(leaves.filtered_bgp(bgp.patterns, within, early))
        else:
            node = self.build(bgp, seed)
        for each in late:
            node = self.filtered(node, each)
        return node

    def filtered(self, node: Node, condition: Expression) -> Node:
        """The solutions of a node for which a condition is true."""
        for each in conjuncts(condition):
            if isinstance(each, Exists):
                node = attach_exists(self, node, each, None)
                continue
            schema = node.schema
            node, plain = self.without_exists(node, each)
            if is_volatile(plain):
                # The verdict about a row must be the same when the row goes.
                verdict = self.fresh()
                compute = self.compiler(node).binding(plain)
                node = self.extended(node, verdict, compute, volatile=True)
                plain = VariableRef(verdict)
            test = self.compiler(node).condition(plain)
            node = self.project(self.passing(node, test, plain), schema)
        return node

    def without_exists(self, node: Node, expression: Expression) -> tuple[Node, Expression]:
        """The expression with its EXISTS replaced by variables that the node returned binds."""
        while (found := first_exists(expression)) is not None:
            variable = self.fresh()
            node = attach_exists(self, node, found, variable)
            expression = replaced(expression, {found: VariableRef(variable)})
        return node, expression

    def _extend(self, pattern: algebra.Extend, seed: Node | None) -> Node:
        base: Pattern = pattern.input
        depth = 0
        while isinstance(base, algebra.Extend):
            base, depth = base.input, depth + 1
        inner = self.build(pattern.input, self.passed_on(pattern, seed) or self.outer)
        if pattern.variable in inner.schema:
            inner = self._without_value(inner, pattern.variable)
        schema = inner.schema
        source = pattern.expression
        if isinstance(source, VariableRef) and source.variable in schema:
            return self.copied(inner, pattern.variable, source.variable)
        node, expression = self.without_exists(inner, pattern.expression)
        compute = self.compiler(node, len(schema) - depth).binding(expression)
        extended = self.extended(
            node,
            pattern.variable,
            compute,
            volatile=is_volatile(expression),
            always=is_never_an_error(expression),
            expression=expression,
        )
        return self.project(extended, (*schema, pattern.variable))

    def _without_value(self, node: Node, variable: Variable) -> Node:
        """The solutions of a node, none of which may have a value for a variable.

        Inside EXISTS values take the places of the variables of the outer solution (section 18.6);
        BIND of a value is no query. Where the variable has no value outside, it is one.
        """
        place = node.schema.index(variable)
        message = f"BIND of {variable} inside EXISTS, which has a value outside"
        if variable in node.certain:
            raise UnsupportedQueryError(message)

        def test(solution: Solution) -> bool:
            if solution[place]:
                raise UnsupportedQueryError(message)
            return True

        tested = self.flow.add(Filter(node, test))
        return self.project(tested, tuple(name for name in node.schema if name != variable))

    def _minus(self, left: Node, right: Pattern, apart: tuple[Variable, ...]) -> Node:
        given = self._outside.given
        if self.outer is not None:
            apart = (*apart, *(name for name in self.outer.schema if name not in given))
        elif not set(left.schema) & set(in_scope(right)) - set(apart):
            return left
        add = self.matching()
        removed = self.build(right, self.sideways(left, right))
        shared = tuple(name for name in left.schema if name in removed.schema)
        reduced = self.flow.add(Distinct(self.project(removed, shared)))
        return add(Minus(left, reduced, apart, given), left)

    def grouped(self, pattern: algebra.Group, seed: Node | None) -> Node:
        """The groups of a pattern's solutions, with their aggregates."""
        with self.not_hurried():
            node = self.build(pattern.input, self.passed_on(pattern, seed))
        return build_group(self, pattern, node)

    def _sub_select(self, pattern: Pattern, seed: Node | None) -> Node:
        node, variables, _ = self.by_itself().modified(pattern, seed or self.outer)
        return self._correlated(self.reduced(node, variables))

    def modified(
        self, pattern: Pattern, seed: Node | None, watch: Watch | None = None
    ) -> tuple[Node, tuple[Variable, ...], SortKeyOf | None]:
        """A pattern with its solution modifiers.

        Returns:
            The node; the visible variables (its schema may have more, which the order needs); and
            the sorting key of its solutions, if there is an order.
        """
        return build_modified(self, pattern, seed, watch)
