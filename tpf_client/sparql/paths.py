"""Translate property paths to simpler patterns; only `Repeat` stays a `Path`."""

from collections.abc import Callable

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable
from tpf_client.sparql.algebra import (
    BGP,
    Alternative,
    Call,
    Constant,
    Expression,
    Filter,
    Inverse,
    Join,
    Link,
    NegatedSet,
    Path,
    PathExpression,
    Pattern,
    Repeat,
    Sequence,
    Union,
    VariableRef,
)

Fresh = Callable[[], Variable]


def path_pattern(
    subject: TermOrVariable,
    path: PathExpression,
    object_: TermOrVariable,
    graph: TermOrVariable,
    fresh: Fresh,
) -> Pattern:
    """Translate a path between two ends; `fresh` makes new variables."""
    match path:
        case Link(predicate):
            return BGP((QuadPattern(subject, predicate, object_, graph),))
        case Inverse(inner):
            return path_pattern(object_, inner, subject, graph, fresh)
        case Sequence(left, right):
            middle = fresh()
            first = path_pattern(subject, left, middle, graph, fresh)
            second = path_pattern(middle, right, object_, graph, fresh)
            if isinstance(first, BGP) and isinstance(second, BGP):
                return BGP(first.patterns + second.patterns)
            return Join(first, second)
        case Alternative(left, right):
            return Union(
                path_pattern(subject, left, object_, graph, fresh),
                path_pattern(subject, right, object_, graph, fresh),
            )
        case NegatedSet(forward, backward):
            sides = []
            # !() has a forward side that excludes nothing; !(^p) has none.
            if forward or not backward:
                sides.append(_any_but(subject, forward, object_, graph, fresh))
            if backward:
                sides.append(_any_but(object_, backward, subject, graph, fresh))
            return sides[0] if len(sides) == 1 else Union(*sides)
        case Repeat():
            return Path(subject, path, object_, graph)


def _any_but(
    subject: TermOrVariable,
    excluded: tuple[Term, ...],
    object_: TermOrVariable,
    graph: TermOrVariable,
    fresh: Fresh,
) -> Pattern:
    predicate = fresh()
    pattern = BGP((QuadPattern(subject, predicate, object_, graph),))
    if not excluded:
        return pattern
    terms: tuple[Expression, ...] = tuple(Constant(term) for term in excluded)
    return Filter(pattern, Call("NOT IN", (VariableRef(predicate), *terms)))
