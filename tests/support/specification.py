"""SPARQL as sections 18.4 to 18.6 define it, word by word, over few quads.

Solutions are dictionaries, bags are lists. EXISTS substitutes. Expressions and set functions are
the
client's own, checked against another engine.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    Triple,
    Variable,
    is_variable,
)
from tests.support.evaluation import NOW
from tpf_client.dataflow.changes import UNBOUND
from tpf_client.dataflow.construct import construct
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.state.aggregates import accumulator
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Aggregate, Call, Constant, Exists, Expression, Pattern, Repeat
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.typed_terms import TypedTerms
from tpf_client.sparql.expressions.values import FALSE, TRUE
from tpf_client.sparql.ordering import sort_key
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.graph import restrict
from tpf_client.sparql.scopes import in_scope

Mapping = dict[Variable, Term]
Row = tuple[Term | None, ...]


def answer(query: algebra.Query, quads: Iterable[Quad]) -> list[Row] | bool | set[Triple]:
    """Return rows in the order of the query's variables, a truth value, or triples."""
    judge = _Specification(query, frozenset(quads))
    found = judge.evaluate(judge.pattern, {})
    if query.form == "ASK":
        return bool(found)
    names = query.variables or in_scope(query.pattern)
    if query.form == "DESCRIBE":
        names = query.variables
    rows = [tuple(each.get(name) for name in names) for each in found]
    if query.form == "CONSTRUCT":
        return set(construct(query.template, names, rows))
    if query.form == "DESCRIBE":
        # What describes a resource is ours to say (16.4): its triples, here without blank nodes.
        described = {*query.described, *(term for row in rows for term in row)}
        triple = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), DEFAULT_GRAPH)
        everything = restrict(algebra.BGP((triple,)), query.dataset, judge.fresh)
        found = judge.evaluate(everything, {})
        triples = {Triple(*(each[Variable(f"?{name}")] for name in "spo")) for each in found}
        return {each for each in triples if each.subject in described}
    return rows


class _Specification:
    def __init__(self, query: algebra.Query, quads: frozenset[Quad]) -> None:
        numbers = count(1)
        self.fresh = lambda: Variable(f"?.judge{next(numbers)}")
        self._dataset = query.dataset
        self._quads = quads
        self._dictionary = TermDictionary()
        self._environment = Environment(TypedTerms(self._dictionary), NOW)
        self.pattern = restrict(query.pattern, query.dataset, self.fresh)

    def evaluate(self, pattern: Pattern, outer: Mapping) -> list[Mapping]:
        """Return the solutions of a pattern after substituting the variables of `outer`."""
        match pattern:
            case algebra.BGP(patterns):
                found: list[Mapping] = [{}]
                for quad in dict.fromkeys(patterns):
                    found = [more for one in found for more in self._matches(quad, outer | one)]
                    found = [_without(one, outer) for one in found]
                return found
            case algebra.Path():
                return self._path(pattern, outer)
            case algebra.Join(left, right):
                return _join(self.evaluate(left, outer), self.evaluate(right, outer))
            case algebra.LeftJoin(left, right, condition):
                return self._left_join(left, right, condition, outer)
            case algebra.Filter(inner, condition):
                return [m for m in self.evaluate(inner, outer) if self._holds(condition, outer | m)]
            case algebra.Union(left, right):
                return self.evaluate(left, outer) + self.evaluate(right, outer)
            case algebra.Extend(inner, name, expression):
                return self._extend(inner, name, expression, outer)
            case algebra.Minus(left, right, apart):
                removed = self.evaluate(right, outer)
                return [
                    one
                    for one in self.evaluate(left, outer)
                    if not any(
                        _compatible(one, other) and one.keys() & other.keys() - set(apart)
                        for other in removed
                    )
                ]
            case algebra.Values(names, rows):
                data = [
                    {name: term for name, term in zip(names, row, strict=True) if term is not None}
                    for row in rows
                ]
                return [_without(each, outer) for each in data if _compatible(each, outer)]
            case algebra.Service():
                raise UnsupportedQueryError("SERVICE")
            case _:
                # A sub-SELECT has variables of its own: it is evaluated as it stands.
                found = self._modified(pattern)
                return [_without(each, outer) for each in found if _compatible(each, outer)]

    # ------------------------------------------------------------------------- modifiers

    def _modified(self, pattern: Pattern) -> list[Mapping]:
        match pattern:
            case algebra.Group():
                return self._group(pattern)
            case algebra.Project(inner, names):
                return [
                    {name: each[name] for name in names if name in each}
                    for each in self.evaluate(inner, {})
                ]
            case algebra.Distinct(inner) | algebra.Reduced(inner):
                kept: list[Mapping] = []
                for each in self.evaluate(inner, {}):
                    if each not in kept or isinstance(pattern, algebra.Reduced):
                        kept.append(each)
                return kept
            case algebra.OrderBy(inner, conditions):
                found = self.evaluate(inner, {})
                names = tuple(sorted({name for each in found for name in each}))
                key = sort_key(Compiler(self._environment, names), conditions)
                return sorted(found, key=lambda each: key(self._row(each, names)))
            case algebra.Slice(inner, offset, limit, by):
                seen: dict[tuple[Term | None, ...], int] = {}
                kept = []
                for each in self.evaluate(inner, {}):
                    group = tuple(each.get(name) for name in by)
                    place = seen[group] = seen.get(group, -1) + 1
                    if place >= offset and (limit is None or place < offset + limit):
                        kept.append(each)
                return kept
            case _:
                raise AssertionError(pattern)

    def _group(self, pattern: algebra.Group) -> list[Mapping]:
        groups: dict[tuple[Term | None, ...], list[Mapping]] = {} if pattern.keys else {(): []}
        for each in self.evaluate(pattern.input, {}):
            key = tuple(self._value(expression, each) for _, expression in pattern.keys)
            groups.setdefault(key, []).append(each)
        result = []
        for key, members in groups.items():
            made = {name: t for (name, _), t in zip(pattern.keys, key, strict=True) if t}
            for name, aggregate in pattern.aggregates:
                value = self._aggregate(aggregate, members)
                if value is not None:
                    made[name] = value
            result.append(made)
        return result

    def _aggregate(self, aggregate: Aggregate, members: list[Mapping]) -> Term | None:
        encode, decode = self._dictionary.encode, self._dictionary.decode
        if aggregate.argument is None:
            rows = [{n: t for n, t in each.items() if n[1] != "."} for each in members]
            if aggregate.distinct:
                rows = [each for place, each in enumerate(rows) if each not in rows[:place]]
            return Term(f'"{len(rows)}"^^<http://www.w3.org/2001/XMLSchema#integer>')
        state = accumulator(aggregate, self._environment.typed)()
        for each in members:
            value = self._value(aggregate.argument, each)
            state.add(UNBOUND if value is None else encode(value), 1)
        result = state.result()
        return decode(result) if result else None

    # ------------------------------------------------------------------------- operators

    def _left_join(
        self, left: Pattern, right: Pattern, condition: Expression | None, outer: Mapping
    ) -> list[Mapping]:
        result = []
        others = self.evaluate(right, outer)
        for one in self.evaluate(left, outer):
            pairs = [
                one | other
                for other in others
                if _compatible(one, other)
                and (condition is None or self._holds(condition, outer | one | other))
            ]
            result += pairs or [one]
        return result

    def _extend(
        self, inner: Pattern, name: Variable, expression: Expression, outer: Mapping
    ) -> list[Mapping]:
        found = self.evaluate(inner, outer)
        if name in outer and found:
            raise UnsupportedQueryError("BIND of a value")
        result = []
        for each in found:
            value = self._value(expression, outer | each)
            result.append(each if value is None else each | {name: value})
        return result

    def _matches(self, quad: QuadPattern, bound: Mapping) -> Iterable[Mapping]:
        for each in self._quads:
            made = dict(bound)
            for wanted, found in zip(quad, each, strict=True):
                if not is_variable(wanted):
                    if wanted != found:
                        break
                elif found == DEFAULT_GRAPH or made.setdefault(Variable(wanted), found) != found:
                    break
            else:
                yield made

    # ----------------------------------------------------------------------------- paths

    def _path(self, pattern: algebra.Path, outer: Mapping) -> list[Mapping]:
        if is_variable(pattern.graph):
            name = Variable(pattern.graph)
            graphs = {quad.graph for quad in self._quads} - {DEFAULT_GRAPH}
            if name in outer:
                graphs &= {outer[name]}
            return [
                _without(each | {name: graph}, outer)
                for graph in sorted(graphs)
                for each in self._in_graph(pattern, graph, outer)
                if each.get(name, graph) == graph
            ]
        return self._in_graph(pattern, Term(pattern.graph), outer)

    def _in_graph(self, pattern: algebra.Path, graph: Term, outer: Mapping) -> list[Mapping]:
        repeat = pattern.path
        assert isinstance(repeat, Repeat)
        start, end = self.fresh(), self.fresh()
        nodes: dict[Term, None] = {}
        edges: set[tuple[Term, Term]] = set()

        def ask(part: Pattern) -> list[Mapping]:
            if graph == DEFAULT_GRAPH:
                part = restrict(part, self._dataset, self.fresh)
            return self.evaluate(part, {})

        for each in ask(path_pattern(start, repeat.path, end, graph, self.fresh)):
            edges.add((each[start], each[end]))
        for each in ask(algebra.BGP((QuadPattern(start, self.fresh(), end, graph),))):
            nodes |= dict.fromkeys((each[start], each[end]))
        ends = [pattern.subject, pattern.object]
        nodes |= {Term(term): None for term in ends if not is_variable(term)}
        pairs: set[tuple[Term, Term]] = set() if repeat.at_least_once else {(n, n) for n in nodes}
        step = set(edges)
        while not step <= pairs:
            pairs |= step
            if repeat.many:
                step = {(a, d) for a, b in pairs for c, d in edges if b == c}
        result = []
        for pair in sorted(pairs):
            made: Mapping = {}
            for wanted, found in zip(ends, pair, strict=True):
                if is_variable(wanted):
                    if made.setdefault(Variable(wanted), found) != found:
                        break
                elif wanted != found:
                    break
            else:
                # Not substituted: see `judges.by_specification`.
                if _compatible(made, outer):
                    result.append(_without(made, outer))
        return result

    # ----------------------------------------------------------------------- expressions

    def _holds(self, condition: Expression, bound: Mapping) -> bool:
        return self._ask(condition, bound, lambda maker, plain: maker.condition(plain))

    def _value(self, expression: Expression, bound: Mapping) -> Term | None:
        found = self._ask(expression, bound, lambda maker, plain: maker.binding(plain))
        return self._dictionary.decode(found) if found else None

    def _ask(
        self,
        expression: Expression,
        bound: Mapping,
        make: Callable[[Compiler, Expression], Callable[[tuple[int, ...]], Any]],
    ) -> Any:
        plain = self._plain(expression, bound)
        names = tuple(bound)
        return make(Compiler(self._environment, names), plain)(self._row(bound, names))

    def _plain(self, expression: Expression, bound: Mapping) -> Expression:
        match expression:
            case Exists(pattern, negated):
                return Constant(TRUE if bool(self.evaluate(pattern, bound)) != negated else FALSE)
            case Call(name, arguments):
                return Call(name, tuple(self._plain(each, bound) for each in arguments))
            case _:
                return expression

    def _row(self, solution: Mapping, names: Sequence[Variable]) -> tuple[int, ...]:
        encode = self._dictionary.encode
        return tuple(encode(solution[n]) if n in solution else UNBOUND for n in names)


def _compatible(one: Mapping, other: Mapping) -> bool:
    return all(other.get(name, term) == term for name, term in one.items())


def _without(solution: Mapping, outer: Mapping) -> Mapping:
    return {name: term for name, term in solution.items() if name not in outer}


def _join(left: list[Mapping], right: list[Mapping]) -> list[Mapping]:
    return [one | other for one in left for other in right if _compatible(one, other)]
