"""The timestamp function: a further variable of each triple pattern that may give the answer.

``timestamp(?v)`` is the highest timestamp of the triples that bind ?v in the pattern that its
expression belongs to; ``timestamp(?v, g)`` counts the triples of stream g only. It is an
``xsd:integer`` of milliseconds, and an error where no triple of a stream binds ?v. A triple that is
in a window more than once has its latest timestamp. Source: paper 003, sections 2.7 and 3.3.

A triple pattern with a timestamp has, in place of its graph, a hidden variable that is bound to the
timestamp (unbound for static triples); `Stamp` says which graph is meant. To be applied after
GRAPH ?g has been resolved.
"""

from dataclasses import dataclass, replace

from annotations.terms import QuadPattern, Term, Variable
from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Call,
    Constant,
    Expression,
    Extend,
    Filter,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    OrderCondition,
    Pattern,
    Reduced,
    Union,
    VariableRef,
)
from tpf_client.sparql.rewrite.visitor import transformed
from tpf_server.continuous.csparql.parser import TIMESTAMP
from tpf_server.continuous.csparql.sources import Sources

_PREFIX = "?.t"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a hidden timestamp variable in a graph position means.

    Args:
        graph: the graph of the triple pattern.
        streams: whose timestamps count.
    """

    graph: Term
    streams: tuple[Term, ...]


def with_timestamps(
    pattern: Pattern, sources: Sources, streams: tuple[Term, ...]
) -> tuple[Pattern, dict[Variable, Stamp]]:
    """The pattern with every call of timestamp() resolved, and what its new variables mean."""
    rewriter = _Timestamps(sources, streams)
    return transformed(pattern, rewriter.change), rewriter.stamps


class _Timestamps:
    def __init__(self, sources: Sources, streams: tuple[Term, ...]) -> None:
        self.stamps: dict[Variable, Stamp] = {}
        self._sources = sources
        self._streams = streams
        self._inner: Pattern = BGP(())

    def change(self, pattern: Pattern) -> Pattern:
        match pattern:
            case LeftJoin(left, right, condition) if condition is not None:
                # The condition sees the solutions of both sides.
                self._inner = Join(left, right)
                condition = self._expression(condition)
                assert isinstance(self._inner, Join)
                return LeftJoin(self._inner.left, self._inner.right, condition)
            case Filter(inner, condition):
                self._inner = inner
                condition = self._expression(condition)
                return replace(pattern, input=self._inner, condition=condition)
            case Extend(inner, _, expression) if not isinstance(expression, Aggregate):
                self._inner = inner
                expression = self._expression(expression)
                return replace(pattern, input=self._inner, expression=expression)
            case Group(inner, keys, aggregates):
                self._inner = inner
                keys = tuple((name, self._expression(each)) for name, each in keys)
                aggregates = tuple((name, self._aggregate(each)) for name, each in aggregates)
                return Group(self._inner, keys, aggregates)
            case OrderBy(inner, conditions):
                self._inner = inner
                conditions = tuple(
                    OrderCondition(self._expression(each.expression), each.descending)
                    for each in conditions
                )
                return OrderBy(self._inner, conditions)
        return pattern

    def _aggregate(self, aggregate: Aggregate) -> Aggregate:
        if aggregate.argument is None:
            return aggregate
        return replace(aggregate, argument=self._expression(aggregate.argument))

    def _expression(self, expression: Expression) -> Expression:
        if not isinstance(expression, Call):
            return expression
        if expression.name != TIMESTAMP:
            arguments = tuple(self._expression(each) for each in expression.arguments)
            return (
                expression
                if arguments == expression.arguments
                else replace(expression, arguments=arguments)
            )
        variable, *rest = expression.arguments
        assert isinstance(variable, VariableRef)
        if not rest:
            return self._latest(variable.variable, self._streams)
        (graph,) = rest
        if isinstance(graph, Constant):
            return self._latest(variable.variable, (graph.term,))
        result: Expression = Call("ABS", (Constant(Term('""')),))
        for stream in self._streams:
            same = Call("=", (graph, Constant(stream)))
            result = Call("IF", (same, self._latest(variable.variable, (stream,)), result))
        return result

    def _latest(self, variable: Variable, streams: tuple[Term, ...]) -> Expression:
        """The highest of all timestamps of a variable; adds them to the inner pattern."""
        found: list[Variable] = []
        self._inner = self._stamped(self._inner, variable, streams, found)
        result: Expression | None = None
        for name in dict.fromkeys(found):
            one: Expression = VariableRef(name)
            if result is None:
                result = one
                continue
            later = Call("IF", (Call("<", (result, one)), one, result))
            result = Call("COALESCE", (later, result, one))
        # An error, which an expression without any timestamp is.
        return result or Call("ABS", (Constant(Term('""')),))

    def _stamped(
        self,
        pattern: Pattern,
        variable: Variable,
        streams: tuple[Term, ...],
        found: list[Variable],
    ) -> Pattern:
        match pattern:
            case BGP(quads):
                return BGP(tuple(self._stamped_quads(quads, variable, streams, found)))
            case Join(left, right) | Union(left, right) | LeftJoin(left, right):
                return replace(
                    pattern,
                    left=self._stamped(left, variable, streams, found),
                    right=self._stamped(right, variable, streams, found),
                )
            case Minus(left):
                return replace(pattern, left=self._stamped(left, variable, streams, found))
            case Filter(inner) | Extend(inner) | OrderBy(inner) | Reduced(inner):
                return replace(pattern, input=self._stamped(inner, variable, streams, found))
            case _:
                return pattern

    def _stamped_quads(
        self,
        quads: tuple[QuadPattern, ...],
        variable: Variable,
        streams: tuple[Term, ...],
        found: list[Variable],
    ) -> list[QuadPattern]:
        result = list(quads)
        plain = dict.fromkeys(quad._replace(graph=self._graph_of(quad)) for quad in quads)
        for quad in plain:
            source = self._sources.of(Term(quad.graph))
            relevant = tuple(each for each in streams if source and each in source.streams)
            if variable not in quad[:3] or not relevant:
                continue
            stamp = Stamp(Term(quad.graph), relevant)
            known = [
                Variable(each.graph)
                for each in result
                if each[:3] == quad[:3] and self.stamps.get(Variable(each.graph)) == stamp
            ]
            if known:
                found += known
                continue
            name = Variable(f"{_PREFIX}{len(self.stamps)}")
            self.stamps[name] = stamp
            found.append(name)
            # It has the same solutions as the pattern without a timestamp.
            if quad in result:
                result.remove(quad)
            result.append(quad._replace(graph=name))
        return result

    def _graph_of(self, quad: QuadPattern) -> Term:
        stamp = self.stamps.get(Variable(quad.graph))
        return Term(quad.graph) if stamp is None else stamp.graph
