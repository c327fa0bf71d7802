"""GRAPH, said by the graphs of quad patterns. Source: SPARQL 1.1 Query Language, section 18.6."""

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
    """The names of all named graphs; of one name, an empty solution if there is such a graph."""
    quads = BGP((QuadPattern(fresh(), fresh(), fresh(), graph),))
    if is_variable(graph):
        return Distinct(Project(quads, (Variable(graph),)))
    return Slice(Project(quads, ()), 0, 1)


def grounded(pattern: Pattern, graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """A pattern for GRAPH, every solution of which lies in a graph that there is.

    GRAPH ?g is a union over all named graphs (section 18.6). Said with ?g as the graph of quad
    patterns it is the same as long as what has no such pattern is joined with the names of graphs.
    That may be done outside, but for where the absence of a solution means something: there the
    left side must have the names by itself.
    """
    if graph == DEFAULT_GRAPH or _lies_in(pattern, graph):
        return pattern
    return join(graph_names(graph, fresh), pattern)


def _lies_in(pattern: Pattern, graph: TermOrVariable) -> bool:
    """Whether each solution is about a quad of this graph."""
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
    """Whether a variable of a pattern may as well have its value before the pattern is evaluated.

    So it is where the value can do nothing but leave solutions out: where what looks at it looks at
    a value that it has for certain.
    """
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
    """The solutions in which one variable is unbound or has the value of the other."""
    unbound = Call("!", (Call("BOUND", (VariableRef(inner),)),))
    same = Call("SAMETERM", (VariableRef(inner), VariableRef(name)))
    return Filter(pattern, Call("||", (unbound, same)))
