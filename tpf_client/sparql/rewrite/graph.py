"""Express GRAPH by the graphs of quad patterns (SPARQL 1.1, section 18.6)."""

from collections.abc import Callable

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    Call,
    Distinct,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    Path,
    Pattern,
    Project,
    Reduced,
    Repeat,
    Slice,
    Union,
    Values,
    VariableRef,
)
from tpf_client.sparql.rewrite.visitor import join
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned, variables_in


def graph_names(graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """Return a pattern for the names of all named graphs, or the existence of one."""
    quads = BGP((QuadPattern(fresh(), fresh(), fresh(), graph),))
    if is_variable(graph):
        return Distinct(Project(quads, (Variable(graph),)))
    return Slice(Project(quads, ()), 0, 1)


def grounded(pattern: Pattern, graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """Restrict a pattern in GRAPH to existing graphs.

    Patterns without quads are joined with the names of graphs, outside unless absence matters.
    """
    if graph == DEFAULT_GRAPH or _lies_in(pattern, graph):
        return pattern
    return join(graph_names(graph, fresh), pattern)


def _lies_in(pattern: Pattern, graph: TermOrVariable) -> bool:
    match pattern:
        case BGP(quads):
            return any(quad.graph == graph for quad in quads)
        case Path(_, path, _, there):
            # A path of no steps needs no quad.
            steps = isinstance(path, Repeat) and path.at_least_once
            return there == graph and (steps or is_variable(graph))
        case Join(left, right):
            return _lies_in(left, graph) or _lies_in(right, graph)
        case Union(left, right):
            return _lies_in(left, graph) and _lies_in(right, graph)
        case LeftJoin(inner) | Minus(inner) | Extend(inner) | Filter(inner):
            return _lies_in(inner, graph)
        case OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
            return _lies_in(inner, graph)
        case Project(inner, variables):
            return _lies_in(inner, graph) and (graph in variables or not is_variable(graph))
        case Group(inner, keys):
            kept = any(key == (graph, VariableRef(Variable(graph))) for key in keys)
            return _lies_in(inner, graph) and (kept or (bool(keys) and not is_variable(graph)))
        case _:
            return False


def same_if_joined_before(pattern: Pattern, name: Variable) -> bool:
    """True if binding a variable before evaluation can only drop solutions."""
    if name not in mentioned(pattern):
        return True
    match pattern:
        case BGP() | Values():
            return True
        case Path(subject, path, object_):
            # A path of no steps would begin at any term.
            steps = isinstance(path, Repeat) and path.at_least_once
            return steps or name not in (subject, object_)
        case Join(left, right) | Union(left, right):
            return same_if_joined_before(left, name) and same_if_joined_before(right, name)
        case Filter(inner, expression) | Extend(inner, _, expression):
            bound = name not in variables_in(expression) or name in always_bound(inner)
            return name in in_scope(inner) and bound and same_if_joined_before(inner, name)
        case _:
            return False


def same_where_bound(pattern: Pattern, inner: Variable, name: Variable) -> Pattern:
    """Keep solutions in which a variable is unbound or equal to another."""
    unbound = Call("!", (Call("BOUND", (VariableRef(inner),)),))
    same = Call("SAMETERM", (VariableRef(inner), VariableRef(name)))
    return Filter(pattern, Call("||", (unbound, same)))
