"""The SPARQL algebra that everything here works on: values, hashable and comparable.

Terms are canonical N-Triples texts, variables ``?name`` (see `annotations.terms`). Variables that
no query text can contain begin with ``?.``: blank nodes of patterns (``?.b_label``), and what
the translation introduces (``?.1``).

Source: SPARQL 1.1 Query Language, section 18. GRAPH is not an operator: it sets the graph position
of the quad patterns inside it. There `DEFAULT_GRAPH` means the default graph alone; a *variable
means any named graph, never the default graph*. What has no quad pattern there is joined with the
names of graphs, and what GRAPH ?g says of ?g inside is another variable, which is compared with ?g
afterwards (see `tpf_client.sparql.parser`).
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
    """The value of a variable; an error where it has none."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a builtin or a function by IRI.

    `name` is the operator's sign (``=``, ``&&``, ``!``, ``+``, ``neg`` for the unary minus, ``IN``,
    ``NOT IN``), the builtin's name in upper case (``STRLEN``), or an IRI in angle brackets.
    ``IRI`` has the base IRI as its second argument, where there is one.
    """

    name: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """``[NOT] EXISTS { pattern }``."""

    pattern: "Pattern"
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A set function over a group; occurs only in `Group.aggregates`.

    `name` is COUNT, SUM, AVG, MIN, MAX, SAMPLE, GROUP_CONCAT or MEDIAN; `argument` is ``None`` for
    ``COUNT(*)``.
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
    """A pattern; it never changes, so what was found out about all of it is kept with it."""

    __slots__ = ("_always_bound", "_bound_but_for_errors")


@dataclass(frozen=True, slots=True)
class BGP(_Remembering):
    """A basic graph pattern; without patterns it has one empty solution."""

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
    """OPTIONAL; the condition (``None``: true) sees the solutions of both sides."""

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
    """BIND: adds a variable; it stays unbound where the expression is an error."""

    input: "Pattern"
    variable: Variable
    expression: Expression


@dataclass(frozen=True, slots=True)
class Aggregated(Extend):
    """The AGGREGATE clause of C-SPARQL: adds the aggregate of the solutions with the same keys.

    Every solution gets the value of its group; none is collapsed. It is an `Extend` to everything
    that asks for scopes; its expression is an `Aggregate`. The value stays unbound where the
    aggregate is an error. Source: paper 003, sections 2.2 and 3.1.
    """

    keys: tuple[Variable, ...] = ()

    @property
    def aggregate(self) -> Aggregate:
        """What is computed for each group."""
        assert isinstance(self.expression, Aggregate)
        return self.expression


@dataclass(frozen=True, slots=True)
class Minus(_Remembering):
    """Solutions of the left without a compatible one on the right that shares a variable.

    Variables in `apart` (the graph of an enclosing GRAPH ?g) must agree, but do not count as
    shared.
    """

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
    """Grouping by expressions, each named by a variable, with the aggregates of each group.

    Without keys there is exactly one group, even of nothing.
    """

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
    """OFFSET and LIMIT (``None``: to the end), for each combination of values of `by` by itself."""

    input: "Pattern"
    offset: int = 0
    limit: int | None = None
    by: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Service(_Remembering):
    """A pattern that another source answers.

    `failed` are endpoints that are known to fail; where the service is silent, they have one
    solution without values.
    """

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
    """FROM and FROM NAMED; both empty: the dataset of the source as it is."""

    default: tuple[Term, ...] = ()
    named: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.default or self.named)


QueryForm: TypeAlias = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query: what to match, and what to make of the solutions.

    Args:
        form: SELECT, ASK, CONSTRUCT or DESCRIBE.
        pattern: the algebra, solution modifiers included.
        variables: variables of the solutions, in their order (SELECT), or to describe.
        template: triples to construct (blank nodes as ``_:b`` terms).
        described: IRIs to describe, beside the values of `variables`.
        dataset: FROM and FROM NAMED.
    """

    form: QueryForm
    pattern: Pattern
    variables: tuple[Variable, ...] = ()
    template: tuple[TriplePattern, ...] = ()
    described: tuple[Term, ...] = ()
    dataset: DatasetClause = DatasetClause()


# ------------------------------------------------------------------------------- helpers


def children(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns directly inside a pattern (not those inside its expressions)."""
    return tuple(
        value
        for value in (getattr(pattern, field.name) for field in fields(pattern))
        if isinstance(value, Pattern)
    )


def is_ordered(pattern: Pattern) -> bool:
    """Whether the solutions of a query's pattern come in an order that it asks for."""
    while isinstance(pattern, Slice | Distinct | Reduced | Project):
        pattern = pattern.input
    return isinstance(pattern, OrderBy)


def parts_of(value: Any) -> tuple[Any, ...]:
    """What a pattern, an expression or a tuple of them directly consists of."""
    if isinstance(value, tuple):
        return value
    if is_dataclass(value):
        return tuple([getattr(value, field.name) for field in fields(value)])
    return ()


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and all patterns inside it, outermost first; not those in EXISTS."""
    waiting = [pattern]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(children(each)))


def variables_of_quad(pattern: QuadPattern) -> tuple[Variable, ...]:
    """The distinct variables of a quad pattern, in the order of their first places."""
    return tuple(dict.fromkeys(Variable(term) for term in pattern if is_variable(term)))


def variables_of_bgp(patterns: tuple[QuadPattern, ...]) -> tuple[Variable, ...]:
    """The distinct variables of quad patterns, in the order of their first places."""
    return tuple(dict.fromkeys(name for quad in patterns for name in variables_of_quad(quad)))


def expressions_of(pattern: Pattern) -> tuple[Expression, ...]:
    """The expressions that a pattern itself evaluates (not those of the patterns inside it)."""
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
