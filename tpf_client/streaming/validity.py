"""The spans in which a continuous query's solutions hold, as far as labels tell.

A solution holds while its facts do: of a join both sides, of an optional part that did not match
(and for absence) the left side without a start, of DISTINCT the last solution that shows the same,
else until the earliest end of anything read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, TypeAlias

from annotations.instants import FIRST, LAST
from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Schema, Solution, projection
from tpf_client.dataflow.operators.basic import Core
from tpf_client.planner.evaluation import Evaluation
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Exists, Pattern, variables_of_quad
from tpf_client.sparql.rewrite.visitor import conjuncts, first_exists, grows
from tpf_client.sparql.scopes import in_scope


class Span(NamedTuple):
    """The time in which a solution holds, by the server's clock; the end is excluded."""

    start: datetime | None
    end: datetime | None


_Bounds: TypeAlias = tuple[datetime, datetime]
_Derive: TypeAlias = Callable[[Solution, datetime], list[_Bounds]]
"""From a solution and the present instant: the bounds of each way in which it comes about."""


class _UnknownError(Exception):
    """The facts of a solution of such a pattern cannot be derived."""


class Validity:
    """The spans of the solutions of one planned query."""

    def __init__(self, evaluation: Evaluation, core: Core | None, *, labelled: bool) -> None:
        self._grace = bool(evaluation.freshness.grace)
        self._evaluation = evaluation
        self._labelled = labelled
        self._core: _Core | None = None
        if labelled and core is not None:
            with suppress(_UnknownError):
                self._core = _Core(core, evaluation)

    def spans(self, rows: Sequence[tuple[Solution, int]], at: datetime) -> list[list[Span]]:
        """Return for each of these rows of the answer the spans of `count` copies."""
        horizon = self._horizon(at)
        fallback = Span(at, None if horizon == LAST else horizon)
        result = []
        for row, count in rows:
            bounds = None if self._core is None else self._core.bounds(row, count, at)
            if bounds is None:
                result.append([fallback] * count)
            else:
                result.append([self._span(each, at, horizon) for each in bounds])
        return result

    @property
    def any_late(self) -> bool:
        """True if a fact is present by grace alone."""
        return self._grace and any(each.late for each in self._evaluation.fragments())

    def late(self, rows: Iterable[tuple[Solution, int]], at: datetime) -> Iterator[Solution]:
        """Yield the copies of these rows known to be there by grace alone: a label has ended."""
        if self._core is None:
            return
        for row, count in rows:
            for _, end in self._core.bounds(row, count, at) or ():
                if end <= at:
                    yield row

    def _span(self, bounds: _Bounds, at: datetime, horizon: datetime) -> Span:
        start, end = bounds
        if end <= at and not self._grace:
            # Its label lies in the past and its server shows it nevertheless.
            end = horizon
        return Span(None if start == FIRST else start, None if end == LAST else end)

    def _horizon(self, at: datetime) -> datetime:
        ends: list[datetime | None] = []
        for fragment in self._evaluation.fragments():
            ends += [fragment.expires, fragment.grace_ends]
            if not self._labelled:
                ends.append(fragment.fresh_until)
        return min((end for end in ends if end is not None and end > at), default=LAST)


class _Core:
    def __init__(self, core: Core, evaluation: Evaluation) -> None:
        if core.offset:
            raise _UnknownError
        schema = core.node.schema
        self._derive = _Compiler(evaluation, schema).derive(core.pattern)
        self._distinct = core.distinct
        self._exact = _exact(core.pattern)
        self._whole: Callable[[Solution], Solution] | None = None
        self._shown_of: dict[Solution, dict[Solution, int]] = {}
        if set(schema) <= set(core.variables):
            self._whole = projection(core.variables, schema)
        else:
            self._keep(core)

    def _keep(self, core: Core) -> None:
        shown_of, show = self._shown_of, projection(core.node.schema, core.variables)

        def push(solution: Solution, count: int) -> None:
            shown = show(solution)
            solutions = shown_of.setdefault(shown, {})
            total = solutions.get(solution, 0) + count
            if total:
                solutions[solution] = total
                return
            del solutions[solution]
            if not solutions:
                del shown_of[shown]

        core.node.connect(push)

    def bounds(self, row: Solution, count: int, at: datetime) -> list[_Bounds] | None:
        """Return the bounds of `count` copies, those that end first; ``None``: unknown."""
        solutions = {self._whole(row): 1} if self._whole else self._shown_of.get(row, {})
        if count == 1 == len(solutions) and not self._distinct:
            ((solution, copies),) = solutions.items()
            ways = self._derive(solution, at)
            if len(ways) == 1 == copies:
                return ways
        result: list[_Bounds] = []
        for solution, copies in solutions.items():
            ways = self._derive(solution, at)
            if self._distinct and ways:
                starts, ends = zip(*ways, strict=True)
                result.append((min(starts), max(ends)) if self._exact else (max(starts), min(ends)))
            elif self._whole:
                result = ways
            elif len(ways) >= copies:
                result += sorted(ways, key=_end)[:copies]
            else:
                return None
        if self._distinct and result:
            return [(min(start for start, _ in result), max(end for _, end in result))]
        return sorted(result, key=_end)[:count] if len(result) >= count else None


def _end(bounds: _Bounds) -> datetime:
    return bounds[1]


class _Compiler:
    def __init__(self, evaluation: Evaluation, schema: Schema) -> None:
        self._held = evaluation.held
        self._decode = evaluation.dictionary.decode
        self._schema = schema

    def derive(self, pattern: Pattern, *, sure: bool = True) -> _Derive:
        """Compile a pattern; `sure`: each solution that comes is one of it."""
        match pattern:
            case algebra.BGP(patterns):
                return self._bgp(tuple(dict.fromkeys(patterns)), sure=sure)
            case algebra.Values():
                return _always
            case algebra.Join(left, right):
                return _both(self.derive(left, sure=sure), self.derive(right, sure=sure))
            case algebra.Union(left, right):
                return _either(self.derive(left, sure=False), self.derive(right, sure=False))
            case algebra.Extend(inner, _, expression):
                if first_exists(expression) is not None:
                    raise _UnknownError
                return self.derive(inner, sure=sure)
            case algebra.Filter(inner, condition):
                derive = self.derive(inner, sure=sure)
                for each in conjuncts(condition):
                    if isinstance(each, Exists) and each.negated and grows(each.pattern):
                        derive = _since_now(derive)
                    elif first_exists(each) is not None:
                        raise _UnknownError
                return derive
            case algebra.Minus(left, right) if grows(right):
                return _since_now(self.derive(left, sure=sure))
            case algebra.LeftJoin(left, right, condition) if grows(right):
                if condition is not None and first_exists(condition) is not None:
                    raise _UnknownError
                return _left_join(self.derive(left, sure=sure), self.derive(right, sure=False))
            case _:
                raise _UnknownError

    def _bgp(self, patterns: Sequence[QuadPattern], *, sure: bool) -> _Derive:
        held, decode = self._held, self._decode
        find, labelled = held.find, held.labelled
        columns = [self._schema.index(v) for each in patterns for v in variables_of_quad(each)]
        # A variable stands for its column.
        looks = [
            [self._schema.index(Variable(t)) if is_variable(t) else t for t in pattern]
            for pattern in patterns
        ]

        def derive(row: Solution, at: datetime) -> list[_Bounds]:
            start, end = FIRST, LAST
            if not all(row[each] for each in columns):
                return []
            for look in looks:
                if sure and isinstance(look[1], str) and look[1] not in labelled:
                    continue
                terms = [decode(row[t]) if isinstance(t, int) else Term(t) for t in look]
                quad = Quad(*terms)
                label = find(quad)
                if label is None and quad not in held:
                    return []
                if label is not None:
                    # An expiration does not tell since when a fact holds.
                    start = max(start, at if label.start is None else label.start)
                    end = min(end, label.end)
            return [(start, end)]

        return derive


def _always(_solution: Solution, _at: datetime) -> list[_Bounds]:
    return [(FIRST, LAST)]


def _both(left: _Derive, right: _Derive) -> _Derive:
    def derive(solution: Solution, at: datetime) -> list[_Bounds]:
        others = right(solution, at)
        return [
            (max(start, other_start), min(end, other_end))
            for start, end in left(solution, at)
            for other_start, other_end in others
        ]

    return derive


def _either(left: _Derive, right: _Derive) -> _Derive:
    return lambda solution, at: left(solution, at) + right(solution, at)


def _left_join(left: _Derive, right: _Derive) -> _Derive:
    both, alone = _both(left, right), _since_now(left)
    return lambda solution, at: both(solution, at) or alone(solution, at)


def _since_now(derive: _Derive) -> _Derive:
    return lambda solution, at: [(at, end) for _, end in derive(solution, at)]


def _exact(pattern: Pattern) -> bool:
    """True if each derivation is one by which a solution really arises."""
    match pattern:
        case algebra.Union(left, right):
            same = set(in_scope(left)) == set(in_scope(right))
            return same and _plain(left) and _plain(right)
        case algebra.Join(left, right) | algebra.LeftJoin(left, right):
            return _exact(left) and _exact(right)
        case algebra.Filter(inner, _) | algebra.Extend(inner, _, _) | algebra.Minus(inner, _, _):
            return _exact(inner)
        case _:
            return True


def _plain(pattern: Pattern) -> bool:
    match pattern:
        case algebra.BGP():
            return True
        case algebra.Join(left, right):
            return _plain(left) and _plain(right)
        case algebra.Union():
            return _exact(pattern)
        case _:
            return False
