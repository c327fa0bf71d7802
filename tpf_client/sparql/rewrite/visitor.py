"""Walk through algebra; *parts* include terms and patterns inside EXISTS."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, TypeVar

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    Aggregate,
    Call,
    Constant,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    Join,
    LeftJoin,
    Minus,
    Path,
    Pattern,
    Project,
    Reduced,
    Service,
    Union,
    Values,
    VariableRef,
    parts_of,
)
from tpf_client.sparql.algebra import everything as everything
from tpf_client.sparql.depth import balanced
from tpf_client.sparql.expressions.compiler import is_volatile

T = TypeVar("T")


# Trees of joins or unions, taken apart and put together.


def operands(pattern: Pattern, kind: type[Join] | type[Union] = Join) -> list[Pattern]:
    """Return the operands of a tree of joins or unions, in textual order."""
    parts: list[Pattern] = []
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        if isinstance(each, kind):
            waiting += (each.right, each.left)
        else:
            parts.append(each)
    return parts


def combined(patterns: Iterable[Pattern], kind: type[Join] | type[Union] = Join) -> Pattern:
    """Make a tree of joins or unions of at least one pattern."""
    return reduce(kind, patterns)


def join(left: Pattern, right: Pattern) -> Pattern:
    """Join two patterns; merge basic graph patterns."""
    if left == EMPTY_GROUP:
        return right
    if right == EMPTY_GROUP:
        return left
    if isinstance(left, BGP) and isinstance(right, BGP):
        return BGP(left.patterns + right.patterns)
    return Join(left, right)


def patterns_in(value: Any) -> Iterator[Pattern]:
    """Yield the patterns in a value, itself and those in EXISTS included."""
    return (each for each in everything(value) if isinstance(each, Pattern))


def with_parts(value: T, change: Callable[[Any], Any]) -> T:
    """Change every part of a value; terms have none."""
    before = parts_of(value)
    after = [change(each) for each in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    result: Any
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value)]
        result = replace(value, **dict(zip(names, after, strict=True)))
    else:
        result = type(value)(*after) if hasattr(value, "_fields") else tuple(after)
    return result  # type: ignore[no-any-return]


def with_children(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """Change the patterns directly inside a pattern (not in its expressions)."""
    return with_parts(value, lambda each: change(each) if isinstance(each, Pattern) else each)


def changed_parts(value: T, change: Callable[[Any], Any]) -> T:
    """Change a value and all its parts, innermost first."""
    result: T = change(with_parts(value, lambda each: changed_parts(each, change)))
    return result


def with_exists(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """Change the pattern of each EXISTS in a value, innermost first."""
    return changed_parts(
        value, lambda each: with_children(each, change) if isinstance(each, Exists) else each
    )


def transformed(value: T, change: Callable[[Pattern], Pattern]) -> T:
    """Change every pattern in a value, innermost first, in EXISTS too."""
    return changed_parts(value, lambda each: change(each) if isinstance(each, Pattern) else each)


# Which variables occur where in a query, to know what nobody needs.


def occurrences(value: Any) -> Counter[Variable]:
    """Count each variable's occurrences, EXISTS included."""
    terms = (each for each in everything(value) if isinstance(each, str))
    return Counter(Variable(term) for term in terms if term.startswith("?"))


def counts_whole_rows(value: Any) -> bool:
    """True if a ``COUNT(DISTINCT *)`` reads every variable."""
    return any(
        isinstance(each, Aggregate) and each.argument is None and each.distinct
        for each in everything(value)
    )


# Conditions: taken apart, put together, and what is in them.


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the conjuncts of a condition; ``!EXISTS`` as a negated one."""
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
    """Return the conjunction of conditions; ``None`` of none."""
    every = list(conditions)
    return balanced(lambda one, two: Call("&&", (one, two)), every) if every else None


def exists_in(expression: Expression) -> Iterator[Exists]:
    """Yield every EXISTS in an expression, but not nested ones."""
    return (each for each in everything(expression, Exists) if isinstance(each, Exists))


def grows(pattern: Pattern) -> bool:
    """True if further facts can take no solution away."""
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


def grows_but_for_absence(pattern: Pattern) -> bool:
    """True if further facts take solutions away only through OPTIONAL, MINUS or EXISTS."""
    match pattern:
        case LeftJoin(left, _) | Minus(left, _):
            return grows_but_for_absence(left)
        case Join(left, right) | Union(left, right):
            return grows_but_for_absence(left) and grows_but_for_absence(right)
        case Project(inner) | Distinct(inner) | Reduced(inner) | Filter(inner) | Extend(inner):
            return grows_but_for_absence(inner)
        case _:
            return grows(pattern)


def _grows(condition: Expression) -> bool:
    if isinstance(condition, Exists):
        return not condition.negated and grows(condition.pattern)
    return first_exists(condition) is None


def first_exists(expression: Expression) -> Exists | None:
    """Return some EXISTS in an expression, if any."""
    return next(exists_in(expression), None)


def movable(expression: Expression) -> bool:
    """True if an expression is a function of its variables: no EXISTS, no RAND()."""
    return first_exists(expression) is None and not is_volatile(expression)


# Other names for variables, and other expressions in the place of some.


def renamed(value: T, old: Variable, new: Variable) -> T:
    """Replace a variable by another everywhere."""
    return changed_parts(value, lambda each: new if each == old else each)


def substituted(value: T, terms: Mapping[Variable, Term]) -> T:
    """A pattern or expression with terms for variables wherever these are read, not assigned."""

    def at(term: TermOrVariable) -> TermOrVariable:
        return terms.get(Variable(term), term)

    result: Any = value
    if isinstance(value, VariableRef):
        result = Constant(terms[value.variable]) if value.variable in terms else value
    elif isinstance(value, QuadPattern):
        result = QuadPattern(*map(at, value))
    else:
        result = with_parts(value, lambda each: substituted(each, terms))
        if isinstance(result, Path):
            ends = at(result.subject), result.path, at(result.object), at(result.graph)
            result = Path(*ends)
        elif isinstance(result, Service):
            result = replace(result, endpoint=at(result.endpoint))
    return result  # type: ignore[no-any-return]


def replaced(value: T, new: Mapping[Expression, Expression]) -> T:
    """Replace parts of an expression, but none inside EXISTS or an aggregate."""
    result: Any = value
    if value in new:
        result = new[value]  # type: ignore[index]
    elif isinstance(value, (Call, tuple)):
        result = with_parts(value, lambda part: replaced(part, new))
    return result  # type: ignore[no-any-return]
