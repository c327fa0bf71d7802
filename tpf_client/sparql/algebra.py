"""The SPARQL algebra that everything here works on: values, hashable and comparable.

Terms are canonical N-Triples texts, variables ``?name`` (see `annotations.terms`). Variables that
no query text can contain begin with ``?.``: blank nodes of patterns (``?.b_label``), and what
the translation introduces (``?.1``).

Source: SPARQL 1.1 Query Language, section 18. GRAPH is not an operator: it sets the graph position
of the quad patterns inside it. There `DEFAULT_GRAPH` means the default graph alone; a *variable
means any named graph, never the default graph*. What has no quad pattern there is joined with the
names of graphs, and what GRAPH ?g says of ?g inside is another variable, which is compared with ?g
afterwards (see `tpf_client.sparql.pattern_parser`).
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

# ------------------------------------------------------------------------- property paths


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

# ------------------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class BGP:
    """A basic graph pattern; without patterns it has one empty solution."""

    patterns: tuple[QuadPattern, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """A property path between two ends."""

    subject: TermOrVariable
    path: PathExpression
    object: TermOrVariable
    graph: TermOrVariable = DEFAULT_GRAPH


@dataclass(frozen=True, slots=True)
class Join:
    """Compatible solutions of both sides."""

    left: "Pattern"
    right: "Pattern"


@dataclass(frozen=True, slots=True)
class LeftJoin:
    """OPTIONAL; the condition (``None``: true) sees the solutions of both sides."""

    left: "Pattern"
    right: "Pattern"
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Solutions for which the condition is true."""

    input: "Pattern"
    condition: Expression


@dataclass(frozen=True, slots=True)
class Union:
    """Solutions of either side."""

    left: "Pattern"
    right: "Pattern"


@dataclass(frozen=True, slots=True)
class Extend:
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
class Minus:
    """Solutions of the left without a compatible one on the right that shares a variable.

    Variables in `apart` (the graph of an enclosing GRAPH ?g) must agree, but do not count as
    shared.
    """

    left: "Pattern"
    right: "Pattern"
    apart: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """Inline data; ``None`` is UNDEF."""

    variables: tuple[Variable, ...]
    rows: tuple[tuple[Term | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Group:
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
class OrderBy:
    """A sequence in this order."""

    input: "Pattern"
    conditions: tuple[OrderCondition, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """Only these variables, in this order."""

    input: "Pattern"
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Every solution once."""

    input: "Pattern"


@dataclass(frozen=True, slots=True)
class Reduced:
    """Duplicates may go."""

    input: "Pattern"


@dataclass(frozen=True, slots=True)
class Slice:
    """OFFSET and LIMIT (``None``: to the end), for each combination of values of `by` by itself."""

    input: "Pattern"
    offset: int = 0
    limit: int | None = None
    by: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
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
class Dataset:
    """FROM and FROM NAMED; both empty: the dataset of the source as it is."""

    default: tuple[Term, ...] = ()
    named: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.default or self.named)


Form: TypeAlias = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]


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

    form: Form
    pattern: Pattern
    variables: tuple[Variable, ...] = ()
    template: tuple[TriplePattern, ...] = ()
    described: tuple[Term, ...] = ()
    dataset: Dataset = Dataset()


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


def in_scope(pattern: Pattern) -> tuple[Variable, ...]:
    """The variables that a solution of the pattern may bind, hidden ones included.

    Source: SPARQL 1.1 Query Language, section 18.2.1.
    """
    found: dict[Variable, None] = {}
    waiting: list[Pattern | Variable] = [pattern]
    while waiting:
        match waiting.pop():
            case str(name):
                found[name] = None
            case BGP(patterns):
                found.update(dict.fromkeys(variables_of_bgp(patterns)))
            case Path(subject, _, object_, graph):
                ends = (subject, object_, graph)
                found.update((Variable(end), None) for end in ends if is_variable(end))
            case Join(left, right) | LeftJoin(left, right) | Union(left, right):
                waiting += (right, left)
            case Extend(inner, variable, _):
                waiting += (variable, inner)
            case Minus(left, _):
                waiting.append(left)
            case Values(variables, _) | Project(_, variables):
                found.update(dict.fromkeys(variables))
            case Group(_, keys, aggregates):
                found.update((name, None) for name, _ in (*keys, *aggregates))
            case Service(endpoint, inner):
                waiting.append(inner)
                if is_variable(endpoint):
                    waiting.append(Variable(endpoint))
            case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
                waiting.append(inner)
    return tuple(found)


def always_bound(pattern: Pattern) -> frozenset[Variable]:
    """Variables that every solution of the pattern binds, whatever the data."""
    return _bound(pattern, computed=False)


def bound_but_for_errors(pattern: Pattern) -> frozenset[Variable]:
    """The same, with those that only the error of an expression leaves without a value."""
    return _bound(pattern, computed=True)


def _bound(pattern: Pattern, *, computed: bool) -> frozenset[Variable]:
    """Variables that are always bound; what is computed counts or not, unless it is no error."""
    match pattern:
        case BGP() | Path():
            return frozenset(in_scope(pattern))
        case Join(left, right):
            return _bound(left, computed=computed) | _bound(right, computed=computed)
        case Union(left, right):
            return _bound(left, computed=computed) & _bound(right, computed=computed)
        case Extend(inner, variable, expression):
            inside = _bound(inner, computed=computed)
            copied = isinstance(expression, VariableRef) and expression.variable in inside
            sure = computed or copied or isinstance(expression, Constant)
            return inside | {variable} if sure else inside
        case LeftJoin(inner) | Minus(inner):
            return _bound(inner, computed=computed)
        case Filter(inner) | OrderBy(inner) | Distinct(inner) | Reduced(inner) | Slice(inner):
            return _bound(inner, computed=computed)
        case Project(inner, variables):
            return _bound(inner, computed=computed) & frozenset(variables)
        case Values(variables, rows):
            return frozenset(
                name for place, name in enumerate(variables) if all(row[place] for row in rows)
            )
        case Group(inner, keys, aggregates):
            if computed:
                return frozenset(name for name, _ in (*keys, *aggregates))
            same = {name for name, key in keys if key == VariableRef(name)}
            return always_bound(inner) & same
        case Service():
            return frozenset()


def variables_in(expression: Expression) -> frozenset[Variable]:
    """The variables that an expression refers to, those free in its EXISTS patterns included."""
    found: set[Variable] = set()
    waiting = [expression]
    while waiting:
        match waiting.pop():
            case VariableRef(variable):
                found.add(variable)
            case Call(_, arguments):
                waiting.extend(arguments)
            case Aggregate(_, argument) if argument is not None:
                waiting.append(argument)
            case Exists(pattern):
                found |= mentioned(pattern)
            case _:
                pass
    return frozenset(found)


def mentioned(pattern: Pattern) -> frozenset[Variable]:
    """Every variable that occurs anywhere in a pattern, in its expressions too."""
    found = set(in_scope(pattern))
    for inner in walk(pattern):
        match inner:
            case Project() | Group():
                found.update(in_scope(inner.input))
            case Minus(_, right):
                found.update(in_scope(right))
            case _:
                pass
        for expression in expressions_of(inner):
            found |= variables_in(expression)
    return frozenset(found)


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
