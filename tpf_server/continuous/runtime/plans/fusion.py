"""Choose the plans of an engine that take batches of records as columns (see `FusedStream`)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.basic import Distinct, Extend, Filter, Project
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.hash_join import KeyedJoin
from tpf_client.dataflow.operators.matching import SemiJoin
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.dataflow.state.ranked_groups import (
    MIDDLES,
    MOST_SIZE,
    NONE,
    Branch,
    By,
    Ranking,
    library,
)
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_client.sparql.expressions.inlined import INTEGER, TAG, TAG_BITS
from tpf_client.sparql.ordering import SortKey
from tpf_server.continuous.runtime.delivery import Phase
from tpf_server.continuous.runtime.plans.batch_report import (
    EVERY,
    OFF,
    OTHERS,
    OTHERWISE,
    REORDERED,
    UNFIT,
    WITHOUT,
    batch_report,
    kernel_asked,
)
from tpf_server.continuous.runtime.plans.fused_plan import (
    FusedPlan,
    GateShape,
    GroupShape,
    PlanShape,
    RowOf,
    RowSource,
)
from tpf_server.continuous.runtime.plans.fused_stream import FusedStream
from tpf_server.continuous.runtime.plans.plan import Plan
from tpf_server.continuous.runtime.semantics import Kernel
from tpf_server.continuous.runtime.windows.star_window import StarWindow

# A plan can be one state (see `FusedPlan`) if it shows the first groups of a window's records
# (`ORDER BY … LIMIT`), which are counted or have medians; also groups of several windows that are
# joined by their keys, and rows that count only where another window has, or lacks, one of the same
# key (EXISTS).

_MOST_WIDTH: Final = 1 << 62
_MOST_WANTED: Final = 10_000
"""With more, a sorted list finds a row's position faster (see `TopK`)."""
_TURNED: Final = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


class _NotFusibleError(Exception):
    """The plan is for the operators."""


class _Value(NamedTuple):
    """A column of a node: a column of a ranking's rows, maybe divided by a size."""

    place: int
    over: int = NONE


class _Part(NamedTuple):
    """A node above groups: its columns (``None``: computed), and its rows."""

    values: tuple[_Value | None, ...]
    row: RowOf


class _Reader:
    def __init__(self, plan: Plan) -> None:
        self.windows = plan.leaves.subscriptions
        self.groups: list[GroupShape] = []
        self.branches: list[Branch] = []
        self.keys = 0
        # The branch of each size, by its place.
        self.sizes: dict[int, int] = {}
        self.seen: set[Node] = set()
        self.used: set[object] = set()
        self._encode = plan.flow.dictionary.encode

    def part(self, node: Node) -> _Part:
        self.seen.add(node)
        if type(node) is Group:
            return self._group(node)
        if type(node) is KeyedJoin:
            return self._join(node)
        below = node.below
        if below is None:
            raise _NotFusibleError
        if type(node) is Project:
            source, positions = node.taken
            while below is not source:
                self.seen.add(below)
                if below.below is None:
                    raise _NotFusibleError
                below = below.below
            values, row = self.part(source)
            taken = tuple([values[position] if position >= 0 else None for position in positions])
            return _Part(taken, _projected(row, positions))
        values, row = self.part(below)
        if type(node) is Filter:
            self._limit(node, values)
            return _Part(values, row)
        if type(node) is Extend:
            compute = node.compute

            def extended(parts: Sequence[Solution]) -> Solution:
                result = row(parts)
                return (*result, compute(result))

            value = self._quotient(node.expression, dict(zip(below.schema, values, strict=True)))
            return _Part((*values, value), extended)
        raise _NotFusibleError

    def _group(self, node: Group) -> _Part:
        how = node.groups.how
        keys, number = len(how.keys), len(self.groups)
        if not keys or (self.groups and keys != self.keys):
            raise _NotFusibleError
        self.keys = keys
        medians, shown = _medians(how)
        gate, upstream = None, node.upstream
        if type(upstream) is SemiJoin and not medians:
            gate = self._gate(upstream)
            self.seen.add(upstream)
            upstream = upstream.left
        source = self._source(upstream)
        first = keys + sum(each.shown for each in self.branches)
        self.sizes[first] = number
        self.groups.append(GroupShape(source, node, tuple(range(keys)), shown, gate))
        self.branches.append(
            Branch(
                width=source.window.width,
                medians=medians,
                other_width=NONE if gate is None else gate.other.window.width,
                negated=gate is not None and gate.node.negated,
            )
        )
        values = [_Value(position) for position in range(keys)]
        values += [_Value(first + position) for position in shown]
        return _Part(tuple(values), lambda parts: parts[number])

    def _join(self, node: KeyedJoin) -> _Part:
        left = self.part(node.left)
        first = len(self.groups)
        right = self.part(node.right)
        own, other = node.left.key, node.right.key
        assert own is not None
        assert other is not None
        # The keys of the whole are those of the left.
        order = [other.index(name) for name in own]
        for position in range(first, len(self.groups)):
            keys = self.groups[position].keys
            self.groups[position] = self.groups[position]._replace(
                keys=tuple([keys[each] for each in order])
            )
        moved = [
            _Value(order.index(each.place)) if each is not None and each.place < self.keys else each
            for each in right.values
        ]
        rest = node.rest
        kept = [name for name in node.right.schema if name not in node.left.schema]
        values = [moved[node.right.schema.index(name)] for name in kept]
        if node.schema != (*node.left.schema, *kept):
            raise _NotFusibleError
        one, two = left.row, right.row
        return _Part((*left.values, *values), lambda parts: one(parts) + rest(two(parts)))

    def _limit(self, node: Filter, values: Sequence[_Value | None]) -> None:
        match node.expression:
            case Call(name, (VariableRef(variable), Constant(term))) if name in _TURNED:
                pass
            case Call(turned, (Constant(term), VariableRef(variable))) if turned in _TURNED:
                name = _TURNED[turned]
            case _:
                raise _NotFusibleError
        value = values[node.schema.index(variable)] if variable in node.schema else None
        cell = self._encode(term)
        if value is None or not self.is_size(value) or cell & TAG != INTEGER:
            raise _NotFusibleError
        number = cell >> TAG_BITS
        position = self.sizes[value.place]
        branch = self.branches[position]
        least = {">": number + 1, ">=": number}.get(name, 1)
        most = {"<": number - 1, "<=": number}.get(name, MOST_SIZE)
        self.branches[position] = branch._replace(
            least=max(branch.least, least), most=min(branch.most, most)
        )

    def _quotient(
        self, expression: Expression | None, values: Mapping[Variable, _Value | None]
    ) -> _Value | None:
        match expression:
            case Call("/", (VariableRef(one), VariableRef(other))):
                dividend, divisor = values.get(one), values.get(other)
            case _:
                return None
        if dividend is None or divisor is None or dividend.over != NONE:
            return None
        return _Value(dividend.place, divisor.place) if self.is_size(divisor) else None

    def is_size(self, value: _Value) -> bool:
        return value.place in self.sizes and value.over == NONE

    def _gate(self, node: SemiJoin) -> GateShape:
        right = node.right
        names = [name for name in right.schema if name in node.left.schema]
        if len(names) != 1 or not node.filters or node.expressions is None:
            raise _NotFusibleError
        if type(right) is Distinct:
            self.seen.add(right)
            right = right.upstream
        other = self._source(right)
        if not node.expressions:
            return GateShape(other, names[0], None, None, ">", node)
        match node.expressions:
            case [Call(name, (VariableRef(one), VariableRef(two)))] if name in _TURNED:
                if one in node.left.schema:
                    one, two, name = two, one, _TURNED[name]
                if one in node.left.schema or two not in node.left.schema:
                    raise _NotFusibleError
                if one not in other.columns:
                    raise _NotFusibleError
                return GateShape(other, names[0], two, one, name, node)
        raise _NotFusibleError

    def _source(self, node: Node) -> RowSource:
        names = {name: name for name in node.schema}
        if type(node) is Project:
            self.seen.add(node)
            inner, positions = node.taken
            if NONE in positions:
                raise _NotFusibleError
            names = {
                name: inner.schema[position]
                for name, position in zip(node.schema, positions, strict=True)
            }
            node = inner
        self.seen.add(node)
        for window, entry in self.windows:
            columns = node.columns_of(entry) if type(node) is MultiwayJoin else None
            if columns is None:
                continue
            if type(window) is not StarWindow or not window.moves or window.slides:
                break
            if window.watermark is not None or window.width >= _MOST_WIDTH:
                break
            self.used.add(entry)
            result = dict(zip(node.schema, columns, strict=True))
            return RowSource(window, {name: result[own] for name, own in names.items()})
        raise _NotFusibleError


def _medians(how: Grouping) -> tuple[int, tuple[int, ...]]:
    if any(each is None or is_volatile(each) for each in how.expressions):
        raise _NotFusibleError
    count, shown = 0, []
    for (_, factory), written in zip(how.aggregates, how.written, strict=True):
        if factory is None:
            shown.append(0)
            continue
        if written.name != "MEDIAN" or written.distinct:
            raise _NotFusibleError
        shown.append(1 + MIDDLES * count)
        count += 1
    return count, tuple(shown)


def plan_shape(plan: Plan) -> PlanShape | None:
    """Read a plan; ``None``: it is for the operators."""
    leaves, order = plan.leaves, plan.flow.nodes[-1] if plan.flow.nodes else None
    if plan.lifted or leaves.static or leaves.unions or leaves.instance_bags:
        return None
    if type(order) is not TopK or order.limits is None:
        return None
    by = order.sorts_by.columns if isinstance(order.sorts_by, SortKey) else None
    offset, wanted = order.limits
    if by is None or not offset < wanted <= _MOST_WANTED:
        return None
    reader = _Reader(plan)
    try:
        part = reader.part(order.upstream)
        ranking = _ranking(reader, part, by)
    except _NotFusibleError:
        return None
    others = {*plan.flow.nodes} - reader.seen - {order}
    entries = {entry for _, entry in leaves.subscriptions}
    if others or reader.used != entries:
        return None
    return PlanShape(
        tuple(reader.groups),
        ranking._replace(offset=offset, limit=wanted, apart=plan.flushes_early, ticks=plan.nets),
        order,
        part.row,
    )


def _ranking(reader: _Reader, part: _Part, by: Sequence[tuple[int, bool]]) -> Ranking:
    order = []
    for position, descending in by:
        value = part.values[position]
        if value is None:
            raise _NotFusibleError
        order.append(By(value.place, value.over, descending))
    ordered = {each[:2] for each in order}
    missing, ties = {*range(reader.keys)}, []
    for value in part.values:
        if not missing:
            break
        # Equal quotients have equal cells.
        if value is not None and value.over != NONE and value in ordered:
            continue
        if value is None or value.over != NONE:
            raise _NotFusibleError
        if value.place >= reader.keys and not reader.is_size(value):
            raise _NotFusibleError
        ties.append(value.place)
        missing.discard(value.place)
    if missing:
        raise _NotFusibleError
    return Ranking(
        reader.keys,
        tuple(reader.branches),
        tuple(order),
        tuple(ties),
        0,
        1,
        apart=False,
        ticks=False,
    )


def _projected(row: RowOf, positions: Sequence[int]) -> RowOf:
    def projected(parts: Sequence[Solution]) -> Solution:
        result = row(parts)
        return tuple([result[position] if position >= 0 else UNBOUND for position in positions])

    return projected


class Fusion:
    """Choose, when a plan is registered, whether it takes batches of records as columns.

    Args:
        reorders: elements wait for late ones, so they are put in order one by one.

    Attributes:
        active: the plans that hold their rows in place of their operators.
    """

    def __init__(
        self, plans: Mapping[Plan, None], phase: Phase, kernel: Kernel | None, *, reorders: bool
    ) -> None:
        self._plans = plans
        self._phase = phase
        self._refusal = REORDERED if reorders else None
        if kernel_asked(kernel) == "off":
            self._refusal = OFF
        elif library() is None:
            self._refusal = WITHOUT
        self._fused: dict[Plan, FusedPlan] = {}
        self._together: FusedStream | None = None

    @property
    def active(self) -> FusedStream | None:
        return self._together if self._together is not None and self._together.active else None

    def added(self, plan: Plan) -> None:
        self._change()
        # A query that emits at every arrival is asked at every one.
        refusal = self._refusal or (EVERY if plan.delivery.repeats else None)
        shape = None if refusal else plan_shape(plan)
        if shape is not None:
            self._fused[plan] = FusedPlan(plan, shape)
        plan.batches = partial(self._report, plan, refusal or OTHERWISE)

    def _report(self, plan: Plan, refusal: str) -> dict[str, Any]:
        if self.active is not None:
            self.active.trim()
        fused = self._fused.get(plan)
        if fused is None:
            return batch_report("off", reason=refusal)
        if len(self._plans) != len(self._fused):
            return batch_report("off", reason=OTHERS)
        if any(each.unfit for each in self._fused.values()):
            # The operators took them in the place of all plans.
            return batch_report("off", reason=UNFIT if fused.unfit else OTHERS)
        return batch_report("compiled", fused.operators)

    def removed(self, plan: Plan) -> None:
        self._change()
        self._fused.pop(plan, None)

    def _change(self) -> None:
        self.settle()
        self._together = None

    @property
    def together(self) -> FusedStream | None:
        """Return all plans, if all of them take batches."""
        if len(self._plans) != len(self._fused) or not self._fused:
            return None
        if self._together is None:
            self._together = FusedStream(list(self._fused.values()), self._phase)
        return self._together

    def holders(self) -> Iterable[object]:
        active = self.active
        if active is not None and active.makes_terms:
            # Nothing but the state holds them, and that cannot be looked through.
            active.settle()
        return [] if active is None or not active.active else active.holders()

    def settle(self) -> None:
        """Give the operators the rows of their windows."""
        if self._together is not None:
            self._together.settle()
