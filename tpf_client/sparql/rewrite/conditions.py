"""Conditions: taken apart, put together, and what is in them."""

from collections.abc import Iterable, Iterator

from tpf_client.sparql.algebra import (
    BGP,
    Aggregate,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Join,
    Path,
    Pattern,
    Project,
    Reduced,
    Union,
    Values,
)
from tpf_client.sparql.expressions.compiler import is_volatile


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The conditions that a condition is the conjunction of; ``!EXISTS`` as a negated one."""
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case Call("&&", arguments):
                waiting.extend(reversed(arguments))
            case Call("!", (Exists(pattern, negated),)):
                yield Exists(pattern, not negated)
            case each:
                yield each


def conjunction(conditions: Iterable[Expression]) -> Expression | None:
    """The condition that all of these are true; ``None`` of none."""
    whole: Expression | None = None
    for each in conditions:
        whole = each if whole is None else Call("&&", (whole, each))
    return whole


def exists_in(expression: Expression) -> Iterator[Exists]:
    """Every EXISTS in an expression, but not those inside another one's pattern."""
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case Exists() as found:
                yield found
            case Call(_, arguments):
                waiting.extend(reversed(arguments))
            case Aggregate(_, argument) if argument is not None:
                waiting.append(argument)


def grows(pattern: Pattern) -> bool:
    """Whether further facts surely take none of a pattern's solutions away."""
    match pattern:
        case BGP() | Values() | Path():
            return True
        case Join(left, right) | Union(left, right):
            return grows(left) and grows(right)
        case Project(inner) | Distinct(inner) | Reduced(inner):
            return grows(inner)
        case Filter(inner, condition):
            return grows(inner) and all(map(_grows, conjuncts(condition)))
        case Extend(inner, _, expression):
            return first_exists(expression) is None and grows(inner)
        case _:
            return False


def _grows(condition: Expression) -> bool:
    if isinstance(condition, Exists):
        return not condition.negated and grows(condition.pattern)
    return first_exists(condition) is None


def first_exists(expression: Expression) -> Exists | None:
    """An EXISTS somewhere in an expression, ``None`` where there is none."""
    return next(exists_in(expression), None)


def movable(expression: Expression) -> bool:
    """Whether an expression is nothing but a function of its variables: no EXISTS, no RAND()."""
    return first_exists(expression) is None and not is_volatile(expression)
