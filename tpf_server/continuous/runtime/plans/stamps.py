"""Stamps: which queries see a solution, where queries share operators but not all elements.

Queries are numbered as they begin (see `Watermark`). A hidden column of each streaming leaf has the
number of the last that began before an element; a solution is seen up to its least stamp. Where it
depends on what is absent (OPTIONAL, MINUS, NOT EXISTS), a column `AFTER` has the last query that
does not see it.
"""

import sys
from abc import abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from annotations.terms import Variable
from tpf_client.dataflow.build.builder import Builder
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Dataflow, Key, Leaves, Node, Work
from tpf_client.dataflow.operators.basic import Union
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.matching import LeftJoin
from tpf_client.dataflow.state.groups import Grouping, Groups, GroupState
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import Expression, Pattern, expressions_of, walk
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import conjuncts, everything
from tpf_client.sparql.scopes import always_bound, in_scope, mentioned

AFTER: Final = Variable("?.after")
"""Also the beginning of such names."""
STAMP: Final = "?.stamp"
UNTIL: Final = Variable(f"{STAMP}.until")


def hidden_stamp(name: Variable) -> bool:
    """True for columns that say which queries see a solution."""
    return name.startswith((STAMP, AFTER))


def seen_by(
    schema: Sequence[Variable], numbers: Sequence[int] = ()
) -> Callable[[Solution], tuple[int, int]]:
    """Return a function to the last query that does not see a solution yet, and the last that does.

    The last of these `numbers`, if any, so that stamps of other queries make no difference. All see
    static data.
    """
    afters = [at for at, name in enumerate(schema) if name.startswith(AFTER)]
    stamps = [at for at, name in enumerate(schema) if name.startswith(STAMP)]

    def seers(solution: Solution) -> tuple[int, int]:
        after, until = 0, sys.maxsize
        for at in afters:
            if solution[at] > after:
                after = solution[at]
        for at in stamps:
            if 0 < solution[at] < until:
                until = solution[at]
        if numbers and until < sys.maxsize:
            place = bisect_right(numbers, until)
            until = numbers[place - 1] if place else until
        return after, until

    return seers


class Newest(Node):
    """The keys of rows with stamps, each with its latest stamp: who came until then sees the key.

    Args:
        stamp: the column of the latest.
    """

    def __init__(
        self,
        upstream: Node,
        keys: Sequence[Variable],
        stamp: Variable,
        numbers: Sequence[int],
    ) -> None:
        super().__init__((*keys, stamp), upstream.certain & {*keys} | {stamp}, monotone=False)
        self._key = projection(upstream.schema, keys)
        self._seen_by = seen_by(upstream.schema, numbers)
        self._counts: dict[Solution, dict[int, int]] = {}
        upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        key = self._key(solution)
        counts = self._counts.setdefault(key, {})
        before = max([stamp for stamp, total in counts.items() if total > 0], default=0)
        _, stamp = self._seen_by(solution)
        counts[stamp] = counts.get(stamp, 0) + count
        if not counts[stamp]:
            del counts[stamp]
            if not counts:
                del self._counts[key]
        now = max([stamp for stamp, total in counts.items() if total > 0], default=0)
        if now != before:
            if before:
                self.emit((*key, before), -1)
            if now:
                self.emit((*key, now), 1)


class StampedGroups(Node):
    """Groups of rows with stamps: what each query sees of a group that came late (see `Watermark`).

    The rows of a group are cut at their stamps. A part has the rows since its cut, for the queries
    between the cut before (the first of `seers`) and its own. Cuts go with their rows.
    """

    def __init__(
        self,
        upstream: Node,
        how: Grouping,
        seers: tuple[Variable, ...],
        numbers: Sequence[int],
        *,
        emitting: bool,
    ) -> None:
        super().__init__((*how.schema, *seers), how.certain | {*seers}, monotone=False)
        self._how = how
        self._groups = Groups(how)
        self._emitting = emitting
        self._seen_by = seen_by(upstream.schema, numbers)
        self._parts: dict[Key, dict[int, GroupState]] = {}
        # Of each cut its own rows: the arguments of their aggregates, with their counts.
        self._rows: dict[Key, dict[int, Counter[Any]]] = {}
        self._shown: dict[Key, Counter[Solution]] = {}
        self._touched: dict[Key, None] = {}
        upstream.connect(self._push)

    def limit(self, work: Work) -> None:
        self._groups.limit(work)

    @property
    def pending(self) -> bool:
        return bool(self._touched)

    def _push(self, solution: Solution, count: int) -> None:
        values = self._how.values_of(solution)
        width = len(self._how.keys)
        key, arguments = values[:width], values[width:]
        if not self._how.passes(key):
            return
        _, stamp = self._seen_by(solution)
        parts, rows = self._parts.setdefault(key, {}), self._rows.setdefault(key, {})
        if stamp not in rows:
            rows[stamp] = Counter()
            part = parts[stamp] = self._groups.state(key)
            for other, later in rows.items():
                for each, times in later.items() if other > stamp else ():
                    part.add(each, times)
        own = rows[stamp]
        own[arguments] += count
        if not own[arguments]:
            del own[arguments]
        for cut, part in parts.items():
            if cut <= stamp:
                part.add(arguments, count)
                part.fresh += max(count, 0)
        self._touched[key] = None

    def flush(self) -> None:
        touched, self._touched = self._touched, {}
        for key in touched:
            parts, rows = self._parts[key], self._rows[key]
            for cut in [cut for cut, own in rows.items() if not own]:
                # What is left there is what the next one has.
                del rows[cut], parts[cut]
            if not rows:
                del self._rows[key], self._parts[key]
            now: Counter[Solution] = Counter()
            after = 0
            for cut in sorted(parts):
                part = parts[cut]
                count, part.fresh = part.fresh if self._emitting else 1, 0
                if count:
                    now[*self._groups.row(part), after, cut] = count
                after = cut
            before = self._shown.pop(key, Counter())
            if now:
                self._shown[key] = now
            if not self._emitting:
                before, now = before - now, now - before
            for row, count in before.items():
                self.emit(row, -count)
            for row, count in now.items():
                self.emit(row, count)


class StampedLeaves(Leaves):
    """Leaves whose rows have stamps.

    Attributes:
        numbers: of the queries that share them, as they began.
    """

    numbers: list[int]


class StampedBuilder(Builder):
    """Build operators that keep stamps: a row of a right side says by its latest who sees it.

    Args:
        emitting: the grouping each of whose changes is news (see `EmittingGroup`).

    Attributes:
        newest: nodes that change the stamps of their rows.
    """

    leaves: StampedLeaves

    def __init__(
        self,
        leaves: StampedLeaves,
        flow: Dataflow,
        environment: Environment,
        emitting: algebra.Group | None = None,
    ) -> None:
        super().__init__(leaves, flow, environment)
        self.emitting = emitting
        self.newest: list[Newest] = []

    @abstractmethod
    def stamps(self, pattern: Pattern) -> bool:
        """True where solutions of a pattern have stamps."""

    def filtered(self, node: Node, condition: Expression) -> Node:
        """See `Builder`; EXISTS keeps apart what queries see."""
        for each in conjuncts(condition):
            if isinstance(each, algebra.Exists) and self.stamps(each.pattern):
                node = self._beside(node, self.build(each.pattern, None), absent=each.negated)
            else:
                node = super().filtered(node, each)
        return node

    def _minus(self, left: Node, right: Pattern, apart: tuple[Variable, ...]) -> Node:
        if not self.stamps(right):
            return super()._minus(left, right, apart)
        if not set(left.schema) & set(in_scope(right)):
            return left
        return self._beside(left, self.build(right, None), absent=True)

    def _optional(self, left: Node, pattern: algebra.LeftJoin) -> Node:
        if not self.stamps(pattern.right):
            return super()._optional(left, pattern)
        right = self.build(pattern.right, None)
        alone = self._beside(left, right, absent=True)
        return self.flow.add(Union(self.flow.add(HashJoin(left, right)), alone))

    def _beside(self, left: Node, right: Node, *, absent: bool) -> Node:
        shared = [name for name in left.schema if name in right.schema]
        after, until = self.seers()
        newest = self._latest(right, shared, after if absent else until)
        return self.flow.add((LeftJoin if absent else HashJoin)(left, newest))

    def _latest(self, node: Node, names: Sequence[Variable], stamp: Variable) -> Newest:
        self.newest.append(self.flow.add(Newest(node, names, stamp, self.leaves.numbers)))
        return self.newest[-1]

    def distinct(self, node: Node) -> Node:
        """See `Construction`; the latest of equal solutions says who sees one."""
        names = [name for name in node.schema if not hidden_stamp(name)]
        if len(names) == len(node.schema):
            return super().distinct(node)
        return self._latest(node, names, self.seers()[1])

    def seers(self) -> tuple[Variable, Variable]:
        """Return new columns for the last query that does not see a row, and the last that does."""
        number = len(self.flow.nodes)
        return Variable(f"{AFTER}{number}"), Variable(f"{UNTIL}{number}")

    def reduced(self, node: Node, names: Sequence[Variable]) -> Node:
        stamps = filter(hidden_stamp, node.schema)
        return super().reduced(node, (*names, *(each for each in stamps if each not in names)))

    def groups_of(self, node: Node, how: Grouping, pattern: algebra.Group) -> Node:
        if not any(map(hidden_stamp, node.schema)):
            return super().groups_of(node, how, pattern)
        numbers, emitting = self.leaves.numbers, pattern == self.emitting
        groups = StampedGroups(node, how, self.seers(), numbers, emitting=emitting)
        return self.flow.add(groups)


# Which patterns keep stamps.


_SINGLE: Final = algebra.BGP, algebra.Join, algebra.Filter, algebra.Extend
"""Patterns that make a row of one row of each of their parts."""


def slices_rows(pattern: Pattern) -> bool:
    """True where rows have an order, or come for all queries at once."""
    inner = pattern.input if isinstance(pattern, algebra.Project) else pattern
    return isinstance(inner, algebra.OrderBy) or keeps_stamps(pattern, absence=False)


def _groups_rows(pattern: algebra.Group) -> bool:
    """True for groups of rows in which each row counts by itself, in any order."""
    return (
        bool(pattern.keys)
        and all(isinstance(each, _SINGLE) for each in walk(pattern.input))
        and not any(
            isinstance(each, algebra.Exists)
            or (isinstance(each, algebra.Call) and is_volatile(each))
            for each in everything(pattern)
        )
        and not any(each.name in ("SAMPLE", "GROUP_CONCAT") for _, each in pattern.aggregates)
    )


def shows_stamps(pattern: Pattern) -> bool:
    """True where what stamps go through tells them apart."""
    while isinstance(pattern, (algebra.Project, algebra.Extend, algebra.OrderBy)):
        if any(map(needs_more_rows, expressions_of(pattern))):
            return False
        pattern = pattern.input
    return keeps_stamps(pattern, absence=True)


def keeps_stamps(pattern: Pattern, *, absence: bool) -> bool:
    """True where each solution says who sees it: without `absence`, by its least stamp alone."""
    match pattern:
        case algebra.BGP() | algebra.Values():
            return True
        case algebra.Join(left, right) | algebra.Union(left, right):
            return keeps_stamps(left, absence=absence) and keeps_stamps(right, absence=absence)
        case algebra.Filter(inner, condition):
            return keeps_stamps(inner, absence=absence) and all(
                (absence or not each.negated) and _beside(inner, each.pattern)
                if isinstance(each, algebra.Exists)
                else not needs_more_rows(each) and not is_volatile(each)
                for each in conjuncts(condition)
            )
        case algebra.Extend(inner, _, expression):
            plain = not needs_more_rows(expression) and not is_volatile(expression)
            return plain and keeps_stamps(inner, absence=absence)
        case algebra.Group():
            return absence and _groups_rows(pattern)
        case algebra.Slice(inner, _, _, ()):
            return absence and slices_rows(inner) and shows_stamps(inner)
        case algebra.Project(inner):
            return keeps_stamps(inner, absence=absence)
        case algebra.Distinct(inner):
            return absence and keeps_stamps(inner, absence=False)
        case algebra.Minus(left, right, ()) | algebra.LeftJoin(left, right, None):
            return absence and keeps_stamps(left, absence=True) and _beside(left, right)
    return False


def _beside(left: Pattern, right: Pattern) -> bool:
    """True where what two patterns share is bound in both, and the right stands alone."""
    shared = set(in_scope(left)) & set(in_scope(right))
    return (
        shared <= always_bound(left) & always_bound(right)
        and mentioned(right) <= set(in_scope(right))
        and keeps_stamps(right, absence=False)
    )


def needs_more_rows(expression: Expression) -> bool:
    """True for what cannot be computed of one row: EXISTS and aggregates."""
    parts = everything(expression)
    return any(isinstance(each, (algebra.Exists, algebra.Aggregate)) for each in parts)
