"""FROM and FROM NAMED: rewrite a pattern over a chosen dataset (SPARQL 1.1, section 13.2)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    NOTHING,
    Call,
    Constant,
    DatasetClause,
    Distinct,
    Expression,
    Filter,
    Join,
    Path,
    Pattern,
    Project,
    Service,
    VariableRef,
    variables_of_quad,
)
from tpf_client.sparql.rewrite.visitor import with_parts

T = TypeVar("T")


def restrict(pattern: Pattern, dataset: DatasetClause, fresh: Callable[[], Variable]) -> Pattern:
    """Rewrite a pattern over `dataset` for the whole dataset.

    A `Path` in the default graph then ranges over the union of its graphs, if several.
    """
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
