"""Templates: the common part of queries that differ in constants only.

Differing subjects and objects of triple patterns become variables, joined with a table of
instances, so an arrival costs as many instances as match it: in a basic graph pattern under
filters, BIND, grouping by keys, projection and DISTINCT. Constants in comparisons of the last
FILTER or HAVING are lifted too (see `Dispatch`), whatever is below. Queries that differ in OFFSET
and LIMIT alone share one order; with other differences, each has its own (see `Slices`). Equal
ones that came at different times are told apart by what they have seen (see `Watermark`).

Where solutions come of one triple of a stream, and only additions are emitted, queries that differ
in RANGE share a plan: the content of their windows meets nothing that comes later.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from annotations.terms import QuadPattern, Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql.algebra import (
    BGP,
    Distinct,
    Expression,
    Extend,
    Filter,
    Group,
    OrderBy,
    Pattern,
    Project,
    Slice,
    VariableRef,
    expressions_of,
    walk,
)
from tpf_client.sparql.rewrite.visitor import conjunction, conjuncts
from tpf_client.sparql.scopes import in_scope
from tpf_server.continuous.runtime.plans.dispatch import lifted_comparison, lifted_variable
from tpf_server.continuous.runtime.plans.stamps import (
    needs_more_rows,
    shows_stamps,
    slices_rows,
)
from tpf_server.continuous.runtime.semantics import Semantics
from tpf_server.continuous.runtime.static.static_rows import INSTANCE, SLICE, Instance
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery, WindowClause
from tpf_server.continuous.runtime.windows.specification import Now, Range


@dataclass(frozen=True, slots=True)
class Template:
    """A query with its constants taken out.

    Args:
        key: equal for queries that have the same text but for constants.
        constants: of triple patterns, in the order of the text, then of comparisons.
        matched: how many are in triple patterns.
        groups: there are groups below the comparisons, or other operators with a state.
        stamped: what queries see of these by stamps can be told (see `StampedGroups`, `Newest`,
            `Slices`).
        slices: stamps tell who sees which rows of an order that all have (see `Slices`).
        slice: OFFSET and LIMIT, if any.
        width: of the window, in milliseconds, where that was taken out.
        later: what could tell it from an equal one that came earlier.
    """

    key: object
    constants: tuple[Term, ...]
    matched: int
    groups: bool
    slice: tuple[int, int | None] | None = None
    width: int | None = None
    stamped: bool = False
    slices: bool = False
    later: tuple[int, ...] = ()

    def opens(self, numbers: Collection[int]) -> bool:
        """True if instances with these constants may be added later.

        Operators with a state hold earlier elements, unless these are told by their stamps.
        """
        constants = [number for number in numbers if number >= 0]
        if self.slice is not None and not constants:
            return self.slices
        return self.stamped or not self.groups or any(number < self.matched for number in constants)

    def instance(self, number: int, lifted: Collection[int]) -> Instance:
        constants = {lifted_variable(n): self.constants[n] for n in lifted if n >= 0}
        return Instance(number, constants, self.slice or (0, None))


_WIDTH: Final = -1
"""The number of the width of a window, among those of constants."""
_SLICE: Final = -2
"""That of OFFSET and LIMIT together."""
EQUAL: Final = -3
"""That of nothing: queries are equal, but came at different times."""


def template_of(query: ContinuousQuery, policy: Semantics) -> Template:
    """Return the template of a query; without constants, if it shares with equals only."""
    pattern = query.query.pattern
    asks = query.query.form == "ASK"
    sliced: Slice | None = None
    part: tuple[int, int | None] | None = None
    # Who is told what has been there before could not be told that some of it has gone since.
    if isinstance(pattern, Slice) and not pattern.by and query.waits_for_elements(pattern):
        part = pattern.offset, pattern.limit
        sliced = replace(pattern, offset=0, limit=None)
        pattern = pattern.input
    constants: list[Term] = []
    bgp = None if asks or query.varies else _only_bgp(pattern)
    if bgp is not None:
        pattern = _with_bgp(pattern, _lifted(bgp, constants, None))
    matched = len(constants)
    groups = bgp is None or any(isinstance(each, Group) for each in walk(pattern))
    # What there is without any element could not be given to who comes later.
    lifts = not asks and query.waits_for_elements(pattern)
    if lifts:
        pattern = _comparing(pattern, constants, None)
    stamped = shows_stamps(pattern)
    apart = policy.nets or not _groups_elements(query, pattern)
    if bgp is None and (asks or query.varies or not apart):
        # Windows of every stream do without stamps.
        stamped = False
    slices = stamped and slices_rows(pattern)
    if sliced is not None:
        pattern = replace(sliced, input=pattern)
    width = None
    if bgp is not None and sliced is None and not policy.nets:
        width = _passing_width(query, bgp)
    windows = query.windows if width is None else _at_once(query.windows)
    key = replace(query.query, pattern=pattern), windows
    later: tuple[int, ...] = ()
    if slices if sliced else stamped and lifts:
        later = (_SLICE if sliced else EQUAL,)
    return Template(key, tuple(constants), matched, groups, part, width, stamped, slices, later)


def _groups_elements(query: ContinuousQuery, pattern: Pattern) -> bool:
    """True for groups of rows of several elements: these are cut where others saw their row."""
    return any(
        sum(
            query.window_of(quad.graph) is not None
            for bgp in walk(group)
            if isinstance(bgp, BGP)
            for quad in bgp.patterns
        )
        > 1
        for group in walk(pattern)
        if isinstance(group, Group)
    )


def _passing_width(query: ContinuousQuery, bgp: BGP) -> int | None:
    """Return the width of a window over single triples that meet nothing later."""
    streamed = [each for each in bgp.patterns if query.window_of(each.graph) is not None]
    if len(streamed) != 1 or len(query.windows) != 1:
        return None
    if any(isinstance(each, (Group, Distinct)) for each in walk(query.query.pattern)):
        return None
    window = query.windows[0].window
    return window.width if isinstance(window, Range) and window.slide is None else None


def _at_once(windows: Sequence[WindowClause]) -> tuple[WindowClause, ...]:
    return tuple([replace(each, window=Now()) for each in windows])


def _comparing(pattern: Pattern, constants: list[Term], numbers: Collection[int] | None) -> Pattern:
    match pattern:
        case Project(inner) | Extend(inner) | OrderBy(inner):
            # Operators with a state would meet the numbers of other queries later.
            if not any(map(needs_more_rows, expressions_of(pattern))):
                return replace(pattern, input=_comparing(inner, constants, numbers))
        case Filter(inner, condition):
            whole = conjunction(
                _compared(each, constants, numbers) for each in conjuncts(condition)
            )
            assert whole is not None
            return Filter(_comparing(inner, constants, numbers), whole)
    if numbers is not None and EQUAL in numbers:
        apart = Filter(pattern, VariableRef(lifted_variable(EQUAL)))
        return Project(apart, in_scope(pattern)) if isinstance(pattern, Distinct) else apart
    return pattern


def _compared(
    condition: Expression, constants: list[Term], numbers: Collection[int] | None
) -> Expression:
    number = len(constants)
    result = lifted_comparison(condition, number)
    if result is None or needs_more_rows(result[0]):
        return condition
    constants.append(result[1])
    return result[0] if numbers is None or number in numbers else condition


def differing(one: Template, other: Template) -> tuple[int, ...]:
    """Return the numbers of the constants in which two queries of the same template differ."""
    pairs = zip(one.constants, other.constants, strict=True)
    numbers = [number for number, (left, right) in enumerate(pairs) if left != right]
    if one.slice != other.slice or (numbers and one.slice is not None):
        # Where other constants differ, each has its own order anyway.
        numbers.append(_SLICE)
    return tuple(numbers if one.width == other.width else [_WIDTH, *numbers])


def common_query(
    query: ContinuousQuery, numbers: tuple[int, ...]
) -> tuple[ContinuousQuery, frozenset[Variable]]:
    """Return the query with these constants as variables, instances kept apart; and the variables.

    `INSTANCE` is among them where triple patterns have variables for constants, or there are no
    comparisons to keep the instances apart. `SLICE` stands for OFFSET and LIMIT.
    """
    pattern = query.query.pattern
    if _SLICE in numbers:
        assert isinstance(pattern, Slice)
        inner = replace(query, query=replace(query.query, pattern=pattern.input))
        numbers = tuple([number for number in numbers if number != _SLICE])
        variables: frozenset[Variable] = frozenset()
        if numbers:
            inner, variables = common_query(inner, numbers)
        whole = replace(pattern, offset=0, limit=None, input=inner.query.pattern)
        common = replace(query.query, pattern=whole)
        return replace(query, query=common), variables | {SLICE}
    if _WIDTH in numbers:
        query = replace(query, windows=_at_once(query.windows))
        numbers = tuple([number for number in numbers if number != _WIDTH])
        if not numbers:
            return query, frozenset()
    constants: list[Term] = []
    bgp = _only_bgp(pattern)
    if bgp is not None:
        pattern = _with_bgp(pattern, _lifted(bgp, constants, numbers))
    matched = [number for number in numbers if 0 <= number < len(constants)]
    pattern = _comparing(pattern, constants, numbers)
    compares = len(matched) < len(numbers)
    pattern = _apart(pattern, below=bool(matched) or not compares)
    common = replace(query.query, pattern=pattern)
    variables = frozenset(map(lifted_variable, numbers))
    if matched or not compares:
        variables |= {INSTANCE}
    return replace(query, query=common), variables


def _only_bgp(pattern: Pattern) -> BGP | None:
    match pattern:
        case BGP():
            return pattern
        case Filter(inner, condition):
            return None if needs_more_rows(condition) else _only_bgp(inner)
        case Extend(inner, _, expression):
            return None if needs_more_rows(expression) else _only_bgp(inner)
        case Project(inner) | Distinct(inner):
            return _only_bgp(inner)
        case OrderBy(inner, conditions):
            unsafe = any(needs_more_rows(each.expression) for each in conditions)
            return None if unsafe else _only_bgp(inner)
        case Group(inner, keys, aggregates):
            expressions = [each for _, each in keys] + [
                each.argument for _, each in aggregates if each.argument is not None
            ]
            if (
                not keys
                or any(map(needs_more_rows, expressions))
                or any(each.argument is None and each.distinct for _, each in aggregates)
            ):
                return None
            return _only_bgp(inner)
        case _:
            return None


def _lifted(bgp: BGP, constants: list[Term], numbers: Collection[int] | None) -> BGP:
    """Append subjects and objects to the constants; those of these numbers become variables."""
    patterns = []
    for each in bgp.patterns:
        positions: list[TermOrVariable] = list(each)
        for position in (0, 2):
            if not is_variable(each[position]):
                number = len(constants)
                constants.append(Term(each[position]))
                if numbers is None or number in numbers:
                    positions[position] = lifted_variable(number)
        patterns.append(QuadPattern(*positions))
    return BGP(tuple(patterns))


def _with_bgp(pattern: Pattern, bgp: BGP) -> Pattern:
    if isinstance(pattern, BGP):
        return bgp
    assert isinstance(pattern, (Filter, Extend, Project, OrderBy, Distinct, Group))
    return replace(pattern, input=_with_bgp(pattern.input, bgp))


def _apart(pattern: Pattern, *, below: bool) -> Pattern:
    """Pass the column of instances through to the top of a pattern."""
    match pattern:
        case Project(inner, variables):
            return Project(_apart(inner, below=below), (*variables, INSTANCE))
        case Group(inner, keys, aggregates):
            own = (INSTANCE, VariableRef(INSTANCE))
            return Group(_apart(inner, below=below), (*keys, own), aggregates)
        case Filter() if not below:
            return pattern
        case Filter(inner) | Extend(inner) | OrderBy(inner) | Distinct(inner):
            return replace(pattern, input=_apart(inner, below=below))
        case _:
            return pattern
