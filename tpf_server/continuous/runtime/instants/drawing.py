"""Draw operator graphs as text.

As in the paper's figure 1, sources are below and results above.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Variable
from tpf_client.sparql import algebra
from tpf_server.continuous.runtime.instants.operator_graph import OperatorGraph

_INFIX = ("=", "!=", "<", ">", "<=", ">=", "&&", "||", "+", "-", "*", "/")


_Lines: TypeAlias = tuple[str, ...]
"""Those of an operator, with its inputs indented below it."""


def drawn(graph: OperatorGraph) -> str:
    """Write a line for each operator of a query, from its result down to its sources."""
    query = graph.query
    label = f"{query.form} result" + (f" {' '.join(query.variables)}" if query.variables else "")
    return "\n".join(_drawn(label, [_operator(graph, graph.pattern)])) + "\n"


def _drawn(label: str, inputs: Iterable[_Lines]) -> _Lines:
    return (label, *(f"  {line}" for each in inputs for line in each))


def _operator(graph: OperatorGraph, pattern: algebra.Pattern) -> _Lines:
    if isinstance(pattern, algebra.BGP):
        return _graph_pattern(graph, pattern)
    if isinstance(pattern, algebra.Path):
        quad = QuadPattern(pattern.subject, Variable("?.path"), pattern.object, pattern.graph)
        label = f"path {pattern.subject} {pattern.path} {pattern.object}"
        return _drawn(label, _sources(graph, quad, "mixed"))
    return _drawn(_label(pattern), [_operator(graph, each) for each in algebra.children(pattern)])


def _graph_pattern(graph: OperatorGraph, bgp: algebra.BGP) -> _Lines:
    parts = {quad: graph.part_of(quad) for quad in bgp.patterns}
    sources = (each for quad, part in parts.items() for each in _sources(graph, quad, part))
    patterns = " . ".join(_quad(graph, quad) for quad in bgp.patterns)
    kinds = ", ".join(dict.fromkeys(parts.values()))
    label = f"graph pattern ({kinds}) {{ {patterns} }}" if bgp.patterns else "one row"
    return _drawn(label, dict.fromkeys(sources))


def _quad(graph: OperatorGraph, quad: QuadPattern) -> str:
    text = " ".join(quad[:3])
    where = graph.graph_of(quad)
    if where != DEFAULT_GRAPH:
        text = f"GRAPH {where} {{ {text} }}"
    return f"{text} @ {quad.graph}" if quad.graph in graph.stamps else text


def _sources(graph: OperatorGraph, quad: QuadPattern, part: str) -> Iterator[_Lines]:
    source = graph.sources.of(graph.graph_of(quad))
    if source is None:
        return
    if part != "streaming":
        for name in source.static:
            yield ("graph " + (name if name != DEFAULT_GRAPH else "of the repository"),)
    if part != "static":
        for stream in source.streams:
            clause = graph.clause_of(stream)
            yield f"window {clause.window}", f"  stream {clause.stream}"


def _label(pattern: algebra.Pattern) -> str:
    match pattern:
        case algebra.Aggregated(_, variable, expression, keys):
            return f"aggregation {variable} = {expression_text(expression)} by {' '.join(keys)}"
        case algebra.Filter(_, condition):
            return f"filter {expression_text(condition)}"
        case algebra.Extend(_, variable, expression):
            return f"extend {variable} = {expression_text(expression)}"
        case algebra.LeftJoin(_, _, condition):
            return "left join" + (f" on {expression_text(condition)}" if condition else "")
        case algebra.Project(_, variables):
            return f"project {' '.join(variables)}"
        case algebra.Group(_, keys, aggregates):
            result = [f"{name} = {expression_text(each)}" for name, each in aggregates]
            by = [expression_text(each) for _, each in keys]
            return f"group by {' '.join(by) or 'nothing'}: {', '.join(result)}"
        case algebra.OrderBy(_, conditions):
            return "order by " + ", ".join(expression_text(each.expression) for each in conditions)
        case algebra.Slice(_, offset, limit):
            return f"slice from {offset}" + ("" if limit is None else f", at most {limit}")
        case algebra.Values(variables, rows):
            return f"values {' '.join(variables)}: {len(rows)} row(s)"
        case _:
            return type(pattern).__name__.lower()


def expression_text(expression: algebra.Expression) -> str:
    """Write an expression about as a query does."""
    match expression:
        case algebra.Constant(term):
            return str(term)
        case algebra.VariableRef(variable):
            return str(variable)
        case algebra.Exists(_, negated):
            return "NOT EXISTS {…}" if negated else "EXISTS {…}"
        case algebra.Aggregate(name, argument, distinct):
            inner = "*" if argument is None else expression_text(argument)
            return f"{name}({'DISTINCT ' if distinct else ''}{inner})"
        case algebra.Call(name, (left, right)) if name in _INFIX:
            return f"({expression_text(left)} {name} {expression_text(right)})"
        case algebra.Call(name, arguments):
            return f"{name}({', '.join(map(expression_text, arguments))})"
