"""EXISTS in a dataflow.

Where a pattern in EXISTS sees the outer row only through the variables that its own matches bind,
a semi join is enough. A FILTER around all of it may mention outer variables too: then it decides
which pairs of a row and a match count. Otherwise (such a FILTER further inside, OPTIONAL, MINUS,
BIND) the pattern is *correlated*: it is evaluated for the numbered outer rows, each of its leaves
joined with them, and its solutions are brought back to their rows by the number.

Source: SPARQL 1.1 Query Language, section 18.6 (exists by substitution).
"""

from collections.abc import Sequence

from annotations.terms import Variable
from tpf_client.dataflow.build.construction import Construction
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.number import Number
from tpf_client.dataflow.operators.semi_join import Mark, SemiJoin
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Exists, Expression, Pattern
from tpf_client.sparql.expressions.values import FALSE, TRUE
from tpf_client.sparql.rewrite.conditions import conjuncts, movable
from tpf_client.sparql.scopes import always_bound, in_scope, is_part_of_triple, variables_in


def attach_exists(
    builder: Construction, node: Node, exists: Exists, variable: Variable | None
) -> Node:
    """Filter the solutions of a node by EXISTS, or bind its truth value to a variable.

    Args:
        builder: builds the pattern.
        node: the outer rows.
        exists: the pattern, and whether it is negated.
        variable: what to bind; ``None`` to filter.
    """
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
    found = builder.flow.add(Distinct(builder.project(inner, (number,))))
    kept = add(SemiJoin(numbered, found, negated=negated, mark=mark), numbered)
    return builder.project(kept, schema)


def _filtered(pattern: Pattern) -> tuple[list[Expression], Pattern]:
    """The conditions of the filters around a pattern, and the pattern.

    Only those that are functions of a solution; the others count as part of the pattern.
    """
    conditions: list[Expression] = []
    while isinstance(pattern, algebra.Filter):
        here = list(conjuncts(pattern.condition))
        if not all(map(movable, here)):
            break
        conditions += here
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
    """A semi join with the matches of a pattern, for pairs that meet conditions."""
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
    """Whether a pattern must be evaluated for each outer row."""
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
