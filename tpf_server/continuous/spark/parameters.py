"""The shape of a query: equal for queries that differ in constants alone."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from annotations.terms import QuadPattern, Term, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Constant,
    Path,
    Pattern,
    Values,
    VariableRef,
)
from tpf_client.sparql.expressions.values import value_of
from tpf_client.sparql.rewrite.visitor import patterns_in, with_parts
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph
from tpf_server.continuous.spark.terms import Parameter


@dataclass(frozen=True)
class Shape:
    """Equal for queries that one plan can answer.

    Args:
        version: of the static data.
    """

    pattern: Hashable
    kinds: tuple[str, ...]
    form: str
    rest: tuple[Hashable, ...]
    version: int

    @classmethod
    def of(cls, graph: OperatorGraph, version: int) -> tuple["Shape", tuple[Term, ...]]:
        """Return the shape of a query, and its constants."""
        constants: list[Term] = []

        def note(term: str) -> str:
            constants.append(Term(term))
            return "<>"

        pattern = replaced(graph.pattern, note)
        parts = tuple(graph.part_of(quad) for quad in quads_in(graph.pattern))
        rest = (
            tuple(replace(clause, position=0) for clause in graph.clauses),
            tuple(graph.stamps.items()),
            graph.instants,
            graph.sources.names,
            graph.query.dataset,
            parts,
        )
        kinds = tuple(map(_kind, constants))
        return cls(pattern, kinds, graph.query.form, rest, version), tuple(constants)

    @staticmethod
    def parameterised(graph: OperatorGraph, rows: Sequence[tuple[Term, ...]]) -> OperatorGraph:
        """Replace constants that differ with parameters; `rows` has those of each query."""
        columns = list(zip(*rows, strict=True))
        if len(rows) == 1 or not columns:
            return graph
        waiting = iter(columns)

        def parameter(term: str) -> str:
            values = next(waiting)
            return term if len(set(values)) == 1 else Parameter(values)

        return graph.with_pattern(replaced(graph.pattern, parameter))


def replaced(node: Any, change: Callable[[str], str]) -> Any:
    """Replace the constants of a pattern: subjects and objects, and those of expressions."""
    match node:
        case QuadPattern(subject, _, object_):
            ends: list[Any] = [
                end if is_variable(end) else change(end) for end in (subject, object_)
            ]
            return node._replace(subject=ends[0], object=ends[1])
        case Constant(term):
            return Constant(Term(change(term)))
        case Values() | Path():
            return node
        case _:
            return with_parts(node, lambda part: replaced(part, change))


def parameters_of(node: Any) -> list[Parameter]:
    """The parameters in a pattern or an expression."""
    result: list[Parameter] = []

    def note(term: str) -> str:
        if isinstance(term, Parameter):
            result.append(term)
        return term

    replaced(node, note)
    return result


def with_variables(node: Any, name: Callable[[Parameter], Variable]) -> Any:
    """Replace the parameters of an expression with variables."""
    if isinstance(node, Constant):
        return VariableRef(name(node.term)) if isinstance(node.term, Parameter) else node
    return with_parts(node, lambda part: with_variables(part, name))


def instance_of(pattern: Pattern, index: int) -> Pattern:
    """Replace parameters with their values for one query."""

    def value(term: str) -> str:
        return term.values[index] if isinstance(term, Parameter) else term

    result: Pattern = replaced(pattern, value)
    return result


def quads_in(pattern: Pattern) -> Iterator[QuadPattern]:
    """Yield the triple patterns of a pattern, those in EXISTS included."""
    for each in patterns_in(pattern):
        if isinstance(each, BGP):
            yield from each.patterns


def _kind(term: Term) -> str:
    if not term.startswith('"'):
        return term[:2] if term.startswith(("<<", "_:")) else term[:1]
    value = value_of(term)
    number = hasattr(value, "__float__") and not isinstance(value, bool)
    _, _, tag = term.rpartition('"')
    return f"{tag} {number}"
