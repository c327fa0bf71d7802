"""The SPARQL algebra: hashable, comparable values (SPARQL 1.1, section 18).

Terms are canonical N-Triples texts; hidden variables begin with ``?.`` (blank nodes with ``?.b_``).
GRAPH sets the graph position of quad patterns: `DEFAULT_GRAPH` is the default graph alone, a
*variable ranges over named graphs only*.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeAlias

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    TriplePattern,
    Variable,
    is_variable,
)

# What stands between the ends of a property path: values, hashable and comparable.
#
# Source: SPARQL 1.1 Query Language, section 18.1.7.


@dataclass(frozen=True, slots=True)
class Link:
    """One step along a predicate."""

    predicate: Term


@dataclass(frozen=True, slots=True)
class Inverse:
    """A path walked backwards."""

    path: "PathExpression"


@dataclass(frozen=True, slots=True)
class Sequence:
    """One path after the other."""

    left: "PathExpression"
    right: "PathExpression"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One path or the other."""

    left: "PathExpression"
    right: "PathExpression"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``path*`` (0, many), ``path+`` (1, many) and ``path?`` (0, once): distinct pairs of ends."""

    path: "PathExpression"
    at_least_once: bool
    many: bool


@dataclass(frozen=True, slots=True)
class NegatedSet:
    """``!(p|^q)``: one step along any predicate but these."""

    forward: tuple[Term, ...]
    backward: tuple[Term, ...]


PathExpression: TypeAlias = Link | Inverse | Sequence | Alternative | Repeat | NegatedSet


# ---------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Constant:
    """A term."""

    term: Term


@dataclass(frozen=True, slots=True)
class VariableRef:
    """The value of a variable; an error if unbound."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class Call:
    """An operator (``neg``: unary minus), a builtin in upper case, or the IRI of a function."""

    name: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """``[NOT] EXISTS { pattern }``."""

    pattern: "Pattern"
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A set function over a group; only in `Group.aggregates`.

    `argument` is ``None`` for ``COUNT(*)``.
    """

    name: str
    argument: "Expression | None"
    distinct: bool = False
    separator: str = " "


Expression: TypeAlias = Constant | VariableRef | Call | Exists | Aggregate
Row: TypeAlias = tuple[Term | None, ...]
"""What a solution binds the variables of a query to, in their order; ``None``: nothing."""

# ------------------------------------------------------------------------------- patterns


class _Remembering:
    __slots__ = ("_always_bound", "_bound_but_for_errors")


@dataclass(frozen=True, slots=True)
class BGP(_Remembering):
    """A basic graph pattern; an empty one has one empty solution."""

    patterns: tuple[QuadPattern, ...]


@dataclass(frozen=True, slots=True)
class Path(_Remembering):
    """A property path between two ends."""

    subject: TermOrVariable
    path: PathExpression
    object: TermOrVariable
    graph: TermOrVariable = DEFAULT_GRAPH


@dataclass(frozen=True, slots=True)
class Join(_Remembering):
    """Compatible solutions of both sides."""

    left: "Pattern"
    right: "Pattern"


@dataclass(frozen=True, slots=True)
class LeftJoin(_Remembering):
    """OPTIONAL; the condition (``None``: true) takes the solutions of both sides."""

    left: "Pattern"
    right: "Pattern"
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Filter(_Remembering):
    """Solutions for which the condition is true."""

    input: "Pattern"
    condition: Expression


@dataclass(frozen=True, slots=True)
class Union(_Remembering):
    """Solutions of either side."""

    left: "Pattern"
    right: "Pattern"


@dataclass(frozen=True, slots=True)
class Extend(_Remembering):
    """BIND: adds a variable, unbound where the expression is an error."""

    input: "Pattern"
    variable: Variable
    expression: Expression


@dataclass(frozen=True, slots=True)
class Aggregated(Extend):
    """The AGGREGATE clause of C-SPARQL (paper 003, sections 2.2 and 3.1)."""

    keys: tuple[Variable, ...] = ()

    @property
    def aggregate(self) -> Aggregate:
        assert isinstance(self.expression, Aggregate)
        return self.expression


@dataclass(frozen=True, slots=True)
class Minus(_Remembering):
    """Left solutions without a compatible right one that shares a variable."""

    left: "Pattern"
    right: "Pattern"
    apart: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Values(_Remembering):
    """Inline data; ``None`` is UNDEF."""

    variables: tuple[Variable, ...]
    rows: tuple[tuple[Term | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Group(_Remembering):
    """Grouping by named expressions, with aggregates; one group where there are no keys."""

    input: "Pattern"
    keys: tuple[tuple[Variable, Expression], ...]
    aggregates: tuple[tuple[Variable, Aggregate], ...]


@dataclass(frozen=True, slots=True)
class OrderCondition:
    """One criterion of ORDER BY."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class OrderBy(_Remembering):
    """A sequence in this order."""

    input: "Pattern"
    conditions: tuple[OrderCondition, ...]


@dataclass(frozen=True, slots=True)
class Project(_Remembering):
    """Only these variables, in this order."""

    input: "Pattern"
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Distinct(_Remembering):
    """Every solution once."""

    input: "Pattern"


@dataclass(frozen=True, slots=True)
class Reduced(_Remembering):
    """Duplicates may go."""

    input: "Pattern"


@dataclass(frozen=True, slots=True)
class Slice(_Remembering):
    """OFFSET and LIMIT (``None``: to the end), separately for each value of `by`."""

    input: "Pattern"
    offset: int = 0
    limit: int | None = None
    by: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Service(_Remembering):
    """A pattern that another source answers."""

    endpoint: TermOrVariable
    pattern: "Pattern"
    silent: bool = False
    failed: tuple[Term, ...] = ()


Pattern: TypeAlias = (
    BGP
    | Path
    | Join
    | LeftJoin
    | Filter
    | Union
    | Extend
    | Minus
    | Values
    | Group
    | OrderBy
    | Project
    | Distinct
    | Reduced
    | Slice
    | Service
)

EMPTY_GROUP = BGP(())
"""One solution without a value."""
NOTHING = Values((), ())
"""No solution."""

# -------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class DatasetClause:
    """FROM and FROM NAMED; both empty: the source's dataset as it is."""

    default: tuple[Term, ...] = ()
    named: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.default or self.named)


QueryForm: TypeAlias = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query; `described` are IRIs, beside the values of `variables`.

    Blank nodes of the template are ``_:b`` terms.
    """

    form: QueryForm
    pattern: Pattern
    variables: tuple[Variable, ...] = ()
    template: tuple[TriplePattern, ...] = ()
    described: tuple[Term, ...] = ()
    dataset: DatasetClause = DatasetClause()


# ------------------------------------------------------------------------------- helpers


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns directly inside a pattern, but not in its expressions."""
    return tuple(each for each in parts_of(pattern) if isinstance(each, Pattern))


def is_ordered(pattern: Pattern) -> bool:
    """True if the query asks for an order of its solutions."""
    while isinstance(pattern, Slice | Distinct | Reduced | Project):
        pattern = pattern.input
    return isinstance(pattern, OrderBy)


def parts_of(value: Any) -> tuple[Any, ...]:
    """Return the direct parts of a pattern, an expression or a tuple of them."""
    if isinstance(value, tuple):
        return value
    if is_dataclass(value):
        return tuple([getattr(value, field.name) for field in fields(value)])
    return ()


def everything(value: Any, but: type | tuple[()] = ()) -> Iterator[Any]:
    """Yield a value and all its parts, outermost first, but none inside values of type `but`."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if not isinstance(each, but):
            waiting.extend(reversed(parts_of(each)))


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the pattern and all inside it, outermost first; not those in EXISTS."""
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(children(each)))


def variables_of_quad(pattern: QuadPattern) -> tuple[Variable, ...]:
    """Return the distinct variables, in the order of their first positions."""
    return tuple(dict.fromkeys(Variable(term) for term in pattern if is_variable(term)))


def variables_of_bgp(patterns: tuple[QuadPattern, ...]) -> tuple[Variable, ...]:
    """Return the distinct variables, in the order of their first positions."""
    return tuple(dict.fromkeys(name for quad in patterns for name in variables_of_quad(quad)))


def expressions_of(pattern: Pattern) -> tuple[Expression, ...]:
    """Return the expressions of a pattern itself (not of those inside it)."""
    match pattern:
        case Filter(_, condition):
            return (condition,)
        case LeftJoin(_, _, condition):
            return () if condition is None else (condition,)
        case Extend(_, _, expression):
            return (expression,)
        case Group(_, keys, aggregates):
            return tuple(expression for _, expression in (*keys, *aggregates))
        case OrderBy(_, conditions):
            return tuple(condition.expression for condition in conditions)
        case _:
            return ()
