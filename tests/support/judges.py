"""The expected answer of a random query: pyoxigraph's, and the specification's word by word.

The specification (`tests.support.specification`) shares parser and expressions with the client,
pyoxigraph nothing. Both must agree but for `DIFFERENCES`, where the specification decides.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from pyoxigraph import Store

from annotations.terms import DEFAULT_GRAPH, Quad, is_variable
from tests.support import specification
from tests.support.oracle import store_of, term_of
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Exists, Expression, Pattern, Query, Repeat
from tpf_client.sparql.scopes import in_scope, variables_in

Answer: TypeAlias = bool | Counter[tuple[str | None, ...]]
"""ASK: yes or no. SELECT: rows in the order of the query's variables. CONSTRUCT: the triples."""


class Difference(NamedTuple):
    """Queries that pyoxigraph (0.5) may answer in another way than the specification.

    Args:
        name: for people.
        reason: the section that decides.
        concerns: true for such a query, or its text.
    """

    name: str
    reason: str
    concerns: Callable[[Query, str], bool]


def judged(query: Query, text: str, quads: Iterable[Quad]) -> Answer:
    """Return pyoxigraph's answer, or the specification's where they may differ."""
    quads = list(quads)
    if difference_of(query, text) is None:
        return by_pyoxigraph(text, quads, query.variables)
    return by_specification(query, quads)


def difference_of(query: Query, text: str) -> str | None:
    """Return the name of a known difference that a query may show."""
    return next((each.name for each in DIFFERENCES if each.concerns(query, text)), None)


def by_pyoxigraph(text: str, quads: Iterable[Quad], names: Sequence[str]) -> Answer:
    """Return pyoxigraph's answer."""
    found: Any = _store(tuple(quads)).query(text)
    if hasattr(found, "variables"):
        assert {each.value for each in found.variables} == {name[1:] for name in names}
        return Counter(
            tuple(None if row[n[1:]] is None else term_of(row[n[1:]]) for n in names)
            for row in found
        )
    if hasattr(found, "serialize") and not isinstance(found, bool) and hasattr(found, "__iter__"):
        parts = ((each.subject, each.predicate, each.object) for each in found)
        return Counter({tuple(map(term_of, each)) for each in parts})
    return bool(found)


@lru_cache(maxsize=8)
def _store(quads: tuple[Quad, ...]) -> Store:
    """Return the store of an instant, shared by many queries."""
    return store_of(quads)


def by_specification(query: Query, quads: Iterable[Quad]) -> Answer:
    """Return the specification's answer.

    One exception: the ends of a path of no steps are not substituted inside EXISTS (18.6),
    which would
    connect a term with itself that the graph lacks. All engines join there.

    Raises:
        UnsupportedQueryError: it does not say (BIND of a value inside EXISTS).
    """
    found = specification.answer(query, quads)
    return found if isinstance(found, bool) else Counter(tuple(row) for row in found)


# ---------------------------------------------------------------------------- differences


def _patterns(pattern: Pattern) -> Iterator[Pattern]:
    """Return all patterns in a pattern, including EXISTS."""
    for each in algebra.walk(pattern):
        yield each
        for expression in algebra.expressions_of(each):
            for exists in _exists_in(expression):
                yield from _patterns(exists.pattern)


def _exists_in(expression: Expression | None) -> Iterator[Exists]:
    match expression:
        case Exists():
            yield expression
        case algebra.Call(_, arguments):
            for each in arguments:
                yield from _exists_in(each)
        case algebra.Aggregate(_, argument):
            yield from _exists_in(argument)


def _names_graphs(query: Query, text: str) -> bool:
    # What the parser joins with where no quad pattern tells the graph; or a sub-SELECT hides it.
    return bool(_SELECT_IN_GRAPH.search(text)) or any(
        isinstance(each, algebra.Project)
        and isinstance(each.input, algebra.BGP)
        and len(each.input.patterns) == 1
        and all(_is_hidden(term) for term in each.input.patterns[0][:3])
        and each.input.patterns[0].graph != DEFAULT_GRAPH
        for each in _patterns(query.pattern)
    )


def _looks_at_its_graph(query: Query, _text: str) -> bool:
    # The parser compares what the pattern says of ?g with the name of the graph afterwards.
    return any(
        isinstance(each, algebra.Filter)
        and isinstance(each.condition, algebra.Call)
        and any(
            isinstance(inner, algebra.Call)
            and inner.name == "SAMETERM"
            and any(map(_is_hidden, variables_in(inner)))
            for inner in each.condition.arguments
        )
        for each in _patterns(query.pattern)
    )


_SELECT_IN_GRAPH = re.compile(r"GRAPH \?\w+ \{.*\{ SELECT")


def _is_hidden(term: str) -> bool:
    return term.startswith("?.")


def _counts_blank_nodes(query: Query, _text: str) -> bool:
    return any(
        isinstance(each, algebra.Group)
        and any(a.argument is None and a.distinct for _, a in each.aggregates)
        and any(map(_is_hidden, in_scope(each.input)))
        for each in _patterns(query.pattern)
    )


def _subtracts_in_exists(query: Query, _text: str) -> bool:
    return any(
        isinstance(inner, algebra.Minus)
        for each in _patterns(query.pattern)
        for expression in algebra.expressions_of(each)
        for exists in _exists_in(expression)
        for inner in algebra.walk(exists.pattern)
    )


def _subtracts_in_graph(query: Query, _text: str) -> bool:
    return any(
        isinstance(each, algebra.Minus) and bool(each.apart) for each in _patterns(query.pattern)
    )


def _starts_at_a_term(query: Query, _text: str) -> bool:
    return any(
        isinstance(each, algebra.Path)
        and isinstance(each.path, Repeat)
        and not each.path.at_least_once
        and (bool(query.dataset) or each.graph != DEFAULT_GRAPH)
        and not (is_variable(each.subject) and is_variable(each.object))
        for each in _patterns(query.pattern)
    )


def _connects_twice(query: Query, _text: str) -> bool:
    # The parser makes a union of an alternative path, and a hidden predicate of a negated set.
    return any(
        (
            isinstance(each, algebra.Union)
            and isinstance(each.left, algebra.BGP)
            and isinstance(each.right, algebra.BGP)
            and len(each.left.patterns) == len(each.right.patterns) == 1
            and _ends(each.left) == _ends(each.right)
        )
        or (
            isinstance(each, algebra.BGP)
            and any(_is_hidden(quad.predicate) for quad in each.patterns)
        )
        for each in _patterns(query.pattern)
    )


def _ends(pattern: algebra.BGP) -> frozenset[str]:
    (quad,) = pattern.patterns
    return frozenset((quad.subject, quad.object))


DIFFERENCES = [
    Difference(
        "GRAPH without a quad pattern",
        "GRAPH ?g is a union over all named graphs, GRAPH :g is empty where there is no such graph,"
        " whatever stands inside (18.6, evaluation of Graph). pyoxigraph knows the graph from quad"
        " patterns alone: around VALUES or an aggregating sub-SELECT ?g stays unbound.",
        _names_graphs,
    ),
    Difference(
        "COUNT(DISTINCT *) over blank nodes",
        "A solution is about the variables of a basic graph pattern, not about its blank nodes"
        " (18.3.1). pyoxigraph counts rows as different that differ in a blank node only.",
        _counts_blank_nodes,
    ),
    Difference(
        "MINUS inside EXISTS",
        "Substitution replaces the variables outside (18.6), so that both sides of MINUS do not"
        " share them (18.5). pyoxigraph has them shared: then MINUS takes away what is disjoint.",
        _subtracts_in_exists,
    ),
    Difference(
        "?g inside GRAPH ?g",
        "?g is joined with the solutions in a graph afterwards (18.6): inside it is a variable like"
        " any other (W3C tests graph-optional, graph-variable-scope). pyoxigraph gives it its value"
        " before.",
        _looks_at_its_graph,
    ),
    Difference(
        "MINUS inside GRAPH ?g",
        "?g is joined with the solutions in a graph afterwards (18.6): the sides of MINUS do not"
        " share it (18.5). pyoxigraph has them share it: then MINUS takes away what is disjoint.",
        _subtracts_in_graph,
    ),
    Difference(
        "a path of no steps from a term",
        "It connects a term with itself also where the graph lacks it (18.4, ZeroLengthPath)."
        " pyoxigraph asks that it occurs in the graph.",
        _starts_at_a_term,
    ),
    Difference(
        "a path that connects twice",
        "The alternative of two paths is the bag union of both (18.4). A negated property set"
        " stands for a pattern with a hidden variable, whose projection leaves duplicates (9.3)."
        " pyoxigraph gives a pair once that two of the predicates connect.",
        _connects_twice,
    ),
    Difference(
        "several default graphs",
        "The default graph is the merge of the graphs that FROM names (13.2.1), a set of triples."
        " pyoxigraph gives a triple once for each of them that has it.",
        lambda query, _text: len(query.dataset.default) > 1,
    ),
]
