"""Express GRAPH by the graphs of quad patterns (SPARQL 1.1, section 18.6)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    TermOrVariable,
    Variable,
    is_variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    Call,
    Constant,
    DatasetClause,
    Distinct,
    Expression,
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
    Service,
    Slice,
    Union,
    Values,
    VariableRef,
    variables_of_quad,
)
from tpf_client.sparql.rewrite.visitor import join, with_parts
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned, variables_in


def graph_names(graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """Return a pattern for the names of all named graphs, or the existence of one."""
    quads = BGP((QuadPattern(fresh(), fresh(), fresh(), graph),))
    if is_variable(graph):
        return Distinct(Project(quads, (Variable(graph),)))
    return Slice(Project(quads, ()), 0, 1)


def grounded(pattern: Pattern, graph: TermOrVariable, fresh: Callable[[], Variable]) -> Pattern:
    """Restrict a pattern in GRAPH to existing graphs."""
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


# FROM and FROM NAMED: rewrite a pattern over a chosen dataset (SPARQL 1.1, section 13.2).

T = TypeVar("T")


def restrict(pattern: Pattern, dataset: DatasetClause, fresh: Callable[[], Variable]) -> Pattern:
    """Rewrite a pattern over `dataset` for the whole dataset."""
    if not dataset:
        return pattern
    return _Restriction(dataset, fresh).applied(pattern)


class _Restriction:
    def __init__(self, dataset: DatasetClause, fresh: Callable[[], Variable]) -> None:
        self._dataset = dataset
        self._fresh = fresh

    def applied(self, value: T) -> T:
        result: Any = value
        match value:
            case BGP(quads):
                result = self._bgp(quads)
            case Path():
                result = self._path(value)
            case Service():
                pass
            case _:
                result = with_parts(value, self.applied)
        return result  # type: ignore[no-any-return]

    def _bgp(self, quads: tuple[QuadPattern, ...]) -> Pattern:
        simple: list[QuadPattern] = []
        others: list[Pattern] = []
        named: dict[Variable, None] = {}
        for quad in quads:
            if is_variable(quad.graph):
                named[Variable(quad.graph)] = None
                simple.append(quad)
            elif quad.graph != DEFAULT_GRAPH:
                if quad.graph not in self._dataset.named:
                    return NOTHING
                simple.append(quad)
            elif not self._dataset.default:
                return NOTHING
            elif len(self._dataset.default) == 1:
                simple.append(quad._replace(graph=self._dataset.default[0]))
            else:
                others.append(self._merged(quad))
        result: Pattern = BGP(tuple(simple))
        for each in others:
            result = each if result == BGP(()) else Join(result, each)
        for name in named:
            result = Filter(result, self._one_of(name, self._dataset.named))
        return result

    def _merged(self, quad: QuadPattern) -> Pattern:
        graph = self._fresh()
        inner = Filter(
            BGP((quad._replace(graph=graph),)), self._one_of(graph, self._dataset.default)
        )
        return Distinct(Project(inner, variables_of_quad(quad)))

    def _one_of(self, name: Variable, graphs: tuple[Any, ...]) -> Expression:
        return Call("IN", (VariableRef(name), *map(Constant, graphs)))

    def _path(self, path: Path) -> Pattern:
        if is_variable(path.graph):
            condition = self._one_of(Variable(path.graph), self._dataset.named)
            return Filter(path, condition)
        if path.graph != DEFAULT_GRAPH:
            return path if path.graph in self._dataset.named else NOTHING
        if not self._dataset.default:
            return NOTHING
        if len(self._dataset.default) > 1:
            # Its steps are restricted as they are built.
            return path
        return replace(path, graph=self._dataset.default[0])
