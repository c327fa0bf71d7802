"""Translate algebra to a dataflow (SPARQL 1.1 Query Language, section 18).

Bindings are passed sideways as *seeds*: the distinct values of the variables that both sides of a
join certainly bind. They only save work; `construction` proves how far down they may go.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
    is_iri,
    is_variable,
)
from tpf_client.dataflow.build.construction import NO_SERVICES, Construction, ServiceAccess
from tpf_client.dataflow.build.modifiers_builder import Modified, build_group, build_modified
from tpf_client.dataflow.changes import UNBOUND, Solution, TermId
from tpf_client.dataflow.construct import TRIPLE, Construct
from tpf_client.dataflow.node import Dataflow, EarlyFilter, Input, Leaves, Node
from tpf_client.dataflow.operators.basic import (
    Distinct,
    Filter,
    Number,
    Output,
    Project,
    Union,
    Values,
)
from tpf_client.dataflow.operators.closure import Closure, PairSolution, Place
from tpf_client.dataflow.operators.hash_join import HashJoin, KeyedJoin, joins_by_key
from tpf_client.dataflow.operators.matching import LeftJoin, Mark, Minus, SemiJoin
from tpf_client.dataflow.operators.service import EachEndpoint, OnDemand
from tpf_client.errors import SourceError, UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Call, Exists, Expression, Path, Pattern, Query, VariableRef
from tpf_client.sparql.depth import chained
from tpf_client.sparql.expressions.compiler import Compiler, is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.values import FALSE, TRUE
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.graph import restrict
from tpf_client.sparql.rewrite.visitor import (
    conjuncts,
    everything,
    first_exists,
    movable,
    operands,
    replaced,
)
from tpf_client.sparql.scopes import (
    always_bound,
    bound_but_for_errors,
    in_scope,
    is_part_of_triple,
    variables_in,
)

# DESCRIBE: a concise bounded description of every resource.
#
# The triples of which it is the subject, and, where their objects are blank nodes, the triples of
# those, and so on.


def build_description(
    builder: Construction, query: Query, pattern: Pattern
) -> tuple[Node, tuple[Variable, ...]]:
    """Build the triples of a DESCRIBE, from the default graph of FROM."""
    (subject, predicate, object_), target = TRIPLE, builder.fresh()
    starts = _resources(builder, query, pattern, subject)

    frontier = builder.flow.add(Input((subject,)))
    steps = algebra.BGP((QuadPattern(subject, predicate, target),))
    to_blank = algebra.Filter(
        restrict(steps, query.dataset, builder.fresh), Call("ISBLANK", (VariableRef(target),))
    )
    edges = builder.project(builder.build(to_blank, frontier), (subject, target))

    def end(_start: Place, node: Place) -> Solution:
        return node

    reached = Closure(starts, edges, frontier, (subject,), end, at_least_once=False, many=True)
    subjects = builder.flow.add(Distinct(builder.flow.add(reached)))
    describing = algebra.BGP((QuadPattern(subject, predicate, object_),))
    triples = builder.build(restrict(describing, query.dataset, builder.fresh), subjects)
    variables = (subject, predicate, object_)
    joined = builder.project(builder.flow.add(HashJoin(subjects, triples)), variables)
    return builder.flow.add(Distinct(joined)) if query.dataset else joined, variables


def _resources(builder: Construction, query: Query, pattern: Pattern, name: Variable) -> Node:
    dictionary = builder.flow.dictionary
    given = [(dictionary.encode(term),) for term in query.described]
    sources: list[Node] = [builder.flow.add(Values((name,), given))] if given else []
    if query.variables:
        # Built once: what a LIMIT chooses must be the same for all variables.
        node = builder.build(pattern, None)
        for variable in query.variables:
            if variable in node.schema:
                bound = builder.flow.add(
                    Filter(node, partial(_is_bound, node.schema.index(variable)))
                )
                sources.append(builder.flow.add(Project(bound, (name,), {name: variable})))
    if not sources:
        sources = [builder.flow.add(Values((name,), []))]
    union = reduce(lambda left, right: builder.flow.add(Union(left, right)), sources)
    return builder.flow.add(Distinct(union))


def _is_bound(column: int, solution: Solution) -> bool:
    return bool(solution[column])


# EXISTS in a dataflow.
#
# Where a pattern in EXISTS sees the outer row only through the variables that its own matches
# bind, a semi join is enough. A FILTER around all of it may mention outer variables too: then it
# decides which pairs of a row and a match count. Otherwise (such a FILTER further inside,
# OPTIONAL, MINUS, BIND) the pattern is *correlated*: it is evaluated for the numbered outer rows,
# each of its leaves joined with them, and its solutions are brought back to their rows by the
# number.
#
# Source: SPARQL 1.1 Query Language, section 18.6 (exists by substitution).


def attach_exists(
    builder: Construction, node: Node, exists: Exists, variable: Variable | None
) -> Node:
    """Filter by EXISTS, or bind its truth value to a variable."""
    encode = builder.flow.dictionary.encode
    mark = None if variable is None else Mark(variable, encode(TRUE), encode(FALSE))
    schema = node.schema if variable is None else (*node.schema, variable)
    pattern, negated = exists.pattern, exists.negated
    add = builder.matching()
    if not _sees_outside(pattern, frozenset(node.schema)):
        within = builder.seed(node, in_scope(pattern))
        inner = builder.by_itself().build(pattern, within)
        shared = tuple(name for name in node.schema if name in inner.schema)
        reduced = builder.flow.add(Distinct(builder.project(inner, shared)))
        return add(SemiJoin(node, reduced, negated=negated, mark=mark), node)
    conditions, around = _filtered(pattern)
    if conditions and not _sees_outside(around, frozenset(node.schema)):
        return _attach_conditional(builder, node, around, conditions, negated, mark)
    numbered = builder.flow.add(Number(node, builder.fresh()))
    number = numbered.schema[-1]
    rows: Node = builder.flow.add(Distinct(numbered))
    given: dict[Variable, Variable] = {}
    for name in node.schema:
        if name not in node.certain and any(
            isinstance(each, algebra.Minus) for each in algebra.walk(pattern)
        ):
            # Inside it may get a value that does not come from outside.
            copy = given[name] = builder.fresh()
            rows = builder.copied(rows, copy, name)
    inner = builder.within(rows, given).build(pattern, None)
    matched = builder.flow.add(Distinct(builder.project(inner, (number,))))
    kept = add(SemiJoin(numbered, matched, negated=negated, mark=mark), numbered)
    return builder.project(kept, schema)


def _filtered(pattern: Pattern) -> tuple[list[Expression], Pattern]:
    conditions: list[Expression] = []
    while isinstance(pattern, algebra.Filter):
        conjoined = list(conjuncts(pattern.condition))
        if not all(map(movable, conjoined)):
            break
        conditions += conjoined
        pattern = pattern.input
    return conditions, pattern


def _attach_conditional(
    builder: Construction,
    node: Node,
    pattern: Pattern,
    conditions: Sequence[Expression],
    negated: bool,
    mark: Mark | None,
) -> Node:
    add = builder.matching()
    within = builder.seed(node, in_scope(pattern))
    inner = builder.by_itself().build(pattern, within)
    used = {name for each in conditions for name in variables_in(each)}
    names = [name for name in inner.schema if name in node.schema or name in used]
    reduced = builder.project(inner, names)
    merged = (*node.schema, *(name for name in names if name not in node.schema))
    compiler = builder.compiler(Node(merged, frozenset()))
    tests = [compiler.condition(each) for each in conditions]

    def condition(solution: Solution) -> bool:
        return all(test(solution) for test in tests)

    test = tests[0] if len(tests) == 1 else condition
    joined = SemiJoin(
        node, reduced, negated=negated, condition=test, mark=mark, expressions=conditions
    )
    return add(joined, node)


def _sees_outside(pattern: Pattern, outside: frozenset[Variable]) -> bool:
    match pattern:
        case algebra.BGP() | algebra.Path() | algebra.Values() | algebra.Service():
            return False
        case algebra.Join(left, right) | algebra.Union(left, right):
            return _sees_outside(left, outside) or _sees_outside(right, outside)
        case algebra.Filter(inner, condition):
            used = variables_in(condition) & outside
            return not used <= always_bound(inner) or _sees_outside(inner, outside)
        case algebra.Extend(inner, _, expression) if is_part_of_triple(expression):
            # As if the pattern had matched it: a value from outside is one to be equal to.
            return _sees_outside(inner, outside)
        case algebra.LeftJoin() | algebra.Minus() | algebra.Extend():
            return True
        case _:
            return False


# Property paths of any length in a dataflow: where to start, in which direction, over what.


def build_path(builder: Construction, path: Path, seed: Node | None) -> Node:
    """Build the distinct pairs of ends of a path, as solutions."""
    repeat = path.path
    assert isinstance(repeat, algebra.Repeat)
    start, end = path.subject, path.object
    steps = repeat.path
    bound = () if seed is None else tuple(name for name in seed.schema if name in seed.certain)
    if is_variable(start) and not _is_known(start, bound) and _is_known(end, bound):
        start, end, steps = end, start, algebra.Inverse(steps)
    graphs = (Variable(path.graph),) if is_variable(path.graph) else ()

    source, target = builder.fresh(), builder.fresh()
    pattern = _in_dataset(
        builder, path.graph, path_pattern(source, steps, target, path.graph, builder.fresh)
    )
    builder = builder.by_itself()
    frontier: Input | None = None
    if _is_known(start, bound):
        frontier = builder.flow.add(Input((source, *graphs)))
        starts = _known_starts(builder, start, path.graph, seed, repeat)
        edges = builder.build(pattern, frontier)
    else:
        edges = builder.build(pattern, None)
        if repeat.at_least_once:
            starts = builder.flow.add(Distinct(builder.project(edges, (source, *graphs))))
        else:
            starts = _all_places(builder, Variable(start), path.graph, None)

    schema, shape = _output(builder, start, end, graphs)
    edges = builder.project(edges, (source, target, *graphs))
    closure = Closure(
        starts,
        edges,
        frontier,
        schema,
        shape,
        at_least_once=repeat.at_least_once,
        many=repeat.many,
    )
    return builder.flow.add(closure)


def _is_known(end: TermOrVariable, bound: tuple[Variable, ...]) -> bool:
    return not is_variable(end) or end in bound


def _known_starts(
    builder: Construction,
    start: TermOrVariable,
    graph: TermOrVariable,
    seed: Node | None,
    repeat: algebra.Repeat,
) -> Node:
    graphs = (Variable(graph),) if is_variable(graph) else ()
    if not is_variable(start):
        name = builder.fresh()
        start_node = builder.flow.add(
            Values((name,), [(builder.flow.dictionary.encode(Term(start)),)])
        )
        if not graphs:
            return start_node
        return builder.flow.add(HashJoin(start_node, _graph_names(builder, graphs[0], seed)))
    name = Variable(start)
    given = builder.seed(seed, (name, *graphs))
    assert given is not None
    if repeat.at_least_once and set(graphs) <= set(given.schema):
        return builder.project(given, (name, *graphs))
    # A path of no steps connects only what occurs in the graph.
    nodes = _all_places(builder, name, graph, given)
    return builder.project(builder.flow.add(SemiJoin(nodes, given)), (name, *graphs))


def _graph_names(builder: Construction, graph: Variable, seed: Node | None) -> Node:
    quad = QuadPattern(builder.fresh(), builder.fresh(), builder.fresh(), graph)
    pattern = algebra.Distinct(algebra.Project(algebra.BGP((quad,)), (graph,)))
    return builder.build(pattern, builder.seed(seed, (graph,)))


def _all_places(
    builder: Construction, name: Variable, graph: TermOrVariable, seed: Node | None
) -> Node:
    fresh = builder.fresh
    graphs = (Variable(graph),) if is_variable(graph) else ()
    out = algebra.BGP((QuadPattern(name, fresh(), fresh(), graph),))
    into = algebra.BGP((QuadPattern(fresh(), fresh(), name, graph),))
    pattern = _in_dataset(builder, graph, algebra.Union(out, into))
    return builder.build(algebra.Distinct(algebra.Project(pattern, (name, *graphs))), seed)


def _in_dataset(builder: Construction, graph: TermOrVariable, pattern: Pattern) -> Pattern:
    return restrict(pattern, builder.dataset, builder.fresh) if graph == DEFAULT_GRAPH else pattern


def _output(
    builder: Construction,
    start: TermOrVariable,
    end: TermOrVariable,
    graphs: tuple[Variable, ...],
) -> tuple[tuple[Variable, ...], PairSolution]:
    names = tuple(Variable(each) for each in (start, end) if is_variable(each))
    schema = tuple(dict.fromkeys((*names, *graphs)))
    identifier = None if is_variable(end) else builder.flow.dictionary.encode(Term(end))
    in_graph = bool(graphs)

    def shape(one: Place, other: Place) -> Solution | None:
        values: dict[Variable, int] = {}
        if identifier is not None and other[0] != identifier:
            return None
        pairs = [(start, one[0]), (end, other[0])]
        if in_graph:
            pairs.append((graphs[0], one[1]))
        for name, value in pairs:
            if is_variable(name) and values.setdefault(Variable(name), value) != value:
                return None
        return tuple([values[name] for name in schema])

    return schema, shape


# SERVICE in a dataflow.
#
# Source: SPARQL 1.1 Federated Query.


def build_service(builder: Construction, pattern: algebra.Service, seed: Node | None) -> Node:
    """Build the solutions of a pattern at an endpoint, or at those of `seed`."""
    if builder.services.leaves is None:
        raise UnsupportedQueryError(f"SERVICE {pattern.endpoint} cannot be asked from here")
    if not is_variable(pattern.endpoint):
        return _asked_there(builder, Term(pattern.endpoint), pattern, seed)
    name, names = Variable(pattern.endpoint), in_scope(pattern)
    given = builder.seed(seed, names)
    if given is None or name not in given.schema:
        if name in builder.errors:
            # It is no endpoint, which fails like one that does not answer.
            return builder.project(builder.flow.add(Values((), [()] * pattern.silent)), names)
        raise UnsupportedQueryError(f"SERVICE {name}: nothing before it gives it a value")

    def build(endpoint: TermId, entry: Node) -> Node:
        term = builder.flow.dictionary.decode(endpoint)
        named = builder.flow.add(Values((name,), [(endpoint,)]))
        matches = _asked_there(builder, term, pattern, entry)
        return builder.project(builder.flow.add(HashJoin(named, matches)), names)

    return builder.flow.add(EachEndpoint(given, name, names, build, builder.services.defer))


def _asked_there(
    builder: Construction, endpoint: Term, pattern: algebra.Service, seed: Node | None
) -> Node:
    silent = pattern.silent and (endpoint in pattern.failed or not is_iri(endpoint))
    if not silent and not is_iri(endpoint):
        raise SourceError(endpoint, "not the IRI of a service")
    assert builder.services.leaves is not None
    leaves = builder.leaves if silent else builder.services.leaves(endpoint)
    elsewhere = builder.elsewhere(leaves)
    return elsewhere.build(algebra.EMPTY_GROUP if silent else pattern.pattern, seed)


def build_query(
    query: algebra.Query,
    leaves: Leaves,
    flow: Dataflow,
    environment: Environment,
    *,
    services: ServiceAccess = NO_SERVICES,
    on_change: Callable[[Solution, int], None] | None = None,
    kept: bool = False,
) -> Output:
    """Build the dataflow of a query.

    ASK gives a solution for yes, DESCRIBE its triples; with `kept` ASK gives the empty solution and
    CONSTRUCT distinct triples.
    """
    builder = Builder(leaves, flow, environment, services, query.dataset)
    pattern = restrict(query.pattern, query.dataset, builder.fresh)
    return build_output(builder, query, pattern, on_change, kept=kept)


def build_output(
    builder: "Builder",
    query: algebra.Query,
    pattern: Pattern,
    on_change: Callable[[Solution, int], None] | None = None,
    *,
    kept: bool = False,
) -> Output:
    """Build the output of a query by its form (see `build_query`)."""
    if query.form == "ASK" and kept:
        pattern = algebra.Distinct(algebra.Project(pattern, ()))
    elif query.form == "ASK":
        pattern = algebra.Slice(pattern, 0, 1)
    if query.form == "DESCRIBE":
        described = build_description(builder, query, pattern)
        return Output(*described, None, on_change, pattern=query.pattern)
    if query.form == "CONSTRUCT" and kept:
        modified = builder.modified(pattern, None)
        solutions = builder.project(modified.node, modified.variables)
        made = builder.flow.add(Construct(solutions, query.template, builder.flow.dictionary))
        return Output(made, made.schema, None, on_change, pattern=query.pattern)
    node, variables, order, core = builder.modified(pattern, None)
    return Output(node, variables, order, on_change, pattern=query.pattern, core=core)


class Builder(Construction):
    """Builds nodes for patterns, bottom-up."""

    # ---------------------------------------------------------------------------- patterns

    def build(self, pattern: Pattern, seed: Node | None) -> Node:
        """Build a pattern's solutions, correct for those compatible with `seed`."""
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
                bound = bound_but_for_errors(left)

                def minus(left: Node, _seed: Node | None) -> Node:
                    return self._minus(left, right, apart)

                return self.with_keys(self.build(left, seed), bound, right, minus)
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
        bound = bound_but_for_errors(first)
        estimate = self.join_order.foreseen(first)
        for each in rest:

            def join(
                left: Node, seed: Node | None, each: Pattern = each, estimate: float = estimate
            ) -> Node:
                keys = self.sideways(left, each)
                if keys is not None:
                    keys.expected = estimate
                return self.joined(left, self.build(each, keys or seed))

            node = self.with_keys(node, bound, each, join, always_bound(each), seed)
            bound |= bound_but_for_errors(each)
            estimate = min(estimate, self.join_order.foreseen(each))
        return node

    def with_keys(
        self,
        node: Node,
        bound: frozenset[Variable],
        pattern: Pattern,
        combine: Callable[[Node, Node | None], Node],
        added: frozenset[Variable] = frozenset(),
        seed: Node | None = None,
    ) -> Node:
        """Combine a node's and a pattern's solutions by the most keys.

        Errors are no keys. `bound` and `added` are the variables that node and pattern certainly
        bind.
        """
        unsure = (bound & set(in_scope(pattern)) & set(node.schema)) - node.certain
        if not unsure or self.outer is not None:
            return combine(node, seed)
        services = (each for each in everything(pattern) if isinstance(each, algebra.Service))
        endpoints = unsure & {each.endpoint for each in services}
        if not endpoints and not self.leaves.counts:
            return combine(node, seed)
        if endpoints:
            unsure = frozenset({min(endpoints)})
        errors = self.errors | endpoints & unsure
        columns = [node.schema.index(name) for name in unsure]

        def has_all(solution: Solution) -> bool:
            return all(solution[column] for column in columns)

        sure = self.flow.add(Filter(node, has_all, node.certain | unsure))
        without_error = self.with_keys(sure, bound, pattern, combine, added, seed)
        names = {*node.schema, *in_scope(pattern)}
        schema = tuple(name for name in without_error.schema if name in names)
        certain = without_error.certain & (node.certain | added)

        def with_errors(left: Node, seed: Node | None) -> Node:
            with self.knowing(errors):
                node = self.with_keys(left, bound - unsure, pattern, combine, added, seed)
            return self.project(node, schema)

        others = OnDemand(
            self.flow.add(Filter(node, lambda solution: not has_all(solution))),
            schema,
            certain & set(schema),
            with_errors,
            self.services.defer,
            monotone=without_error.monotone,
            seed=self.seed(seed, in_scope(pattern)),
        )
        both = (self.project(without_error, schema), self.flow.add(others))
        return self.flow.add(Union(*both))

    def joined(self, left: Node, right: Node) -> Node:
        """Join two nodes, by their keys if both can be asked."""
        if left.askable and right.askable and joins_by_key(left, right):
            return self.flow.add(KeyedJoin(left, right))
        return self.flow.add(HashJoin(left, right))

    def _left_join(self, pattern: algebra.LeftJoin, seed: Node | None) -> Node:
        left = self.build(pattern.left, seed)
        bound = bound_but_for_errors(pattern.left)

        def optional(left: Node, _seed: Node | None) -> Node:
            return self._optional(left, pattern)

        return self.with_keys(left, bound, pattern.right, optional)

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
        matches = self.project(pairs, (numbered.schema[-1], *loose, *added))
        joined = add(LeftJoin(numbered, matches), numbered)
        return self.project(joined, left.schema + added)

    def _filtered_bgp(self, bgp: algebra.BGP, condition: Expression, seed: Node | None) -> Node:
        """A condition on variables of the pattern alone may run between its parts."""
        early: list[EarlyFilter] = []
        late: list[Expression] = []
        for each in chained(conjuncts(condition)):
            used = variables_in(each)
            if self.leaves.counts and used <= always_bound(bgp) and movable(each):
                early.append(EarlyFilter(used, partial(self.filtered, condition=each)))
            else:
                late.append(each)
        if early:
            within = self.seed(seed or self.outer, in_scope(bgp))
            node = self._correlated(self.leaves.filtered_bgp(bgp.patterns, within, early))
        else:
            node = self.build(bgp, seed)
        for each in late:
            node = self.filtered(node, each)
        return node

    def filtered(self, node: Node, condition: Expression) -> Node:
        """Keep the solutions of a node for which a condition is true."""
        for each in chained(conjuncts(condition)):
            if isinstance(each, Exists):
                node = attach_exists(self, node, each, None)
                continue
            schema = node.schema
            node, plain = self.without_exists(node, each)
            if is_volatile(plain):
                # The verdict about a row must be the same when the row goes.
                verdict = self.fresh()
                node = self.extended(node, verdict, plain)
                plain = VariableRef(verdict)
            node = self.project(self.passing(node, plain), schema)
        return node

    def without_exists(self, node: Node, expression: Expression) -> tuple[Node, Expression]:
        """Replace EXISTS in an expression by variables that the returned node binds."""
        while (exists := first_exists(expression)) is not None:
            variable = self.fresh()
            node = attach_exists(self, node, exists, variable)
            expression = replaced(expression, {exists: VariableRef(variable)})
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
        extended = self.extended(node, pattern.variable, expression, len(schema) - depth)
        return self.project(extended, (*schema, pattern.variable))

    def _without_value(self, node: Node, variable: Variable) -> Node:
        """Outer values replace variables in EXISTS (section 18.6): BIND of one is no query."""
        column = node.schema.index(variable)
        message = f"BIND of {variable} inside EXISTS, which has a value outside"
        if variable in node.certain:
            raise UnsupportedQueryError(message)

        def test(solution: Solution) -> bool:
            if solution[column]:
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
        """Build the groups of a pattern's solutions, with their aggregates."""
        with self.not_hurried():
            node = self.build(pattern.input, self.passed_on(pattern, seed))
        return build_group(self, pattern, node)

    def _sub_select(self, pattern: Pattern, seed: Node | None) -> Node:
        modified = self.by_itself().modified(pattern, seed or self.outer)
        return self._correlated(self.reduced(modified.node, modified.variables))

    def modified(self, pattern: Pattern, seed: Node | None) -> Modified:
        return build_modified(self, pattern, seed)
