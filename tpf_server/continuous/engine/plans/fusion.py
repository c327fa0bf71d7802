"""Which plans of an engine take batches of records as columns (see `FusedStream`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Solution
from tpf_client.dataflow.kernels import Kernel, kernel_asked, kernel_in_use, why_not_compiled
from tpf_client.dataflow.node import Node
from tpf_client.dataflow.operators.basic import Distinct, Extend, Filter, Project
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.hash_join import KeyedJoin
from tpf_client.dataflow.operators.matching import SemiJoin
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.dataflow.state.ranked_groups import (
    LEAST,
    MEDIAN,
    MOST,
    MOST_SIZE,
    NONE,
    PARTS,
    SUM,
    Branch,
    By,
    Ranking,
)
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_client.sparql.expressions.inlined import INTEGER, TAG, TAG_BITS
from tpf_client.sparql.ordering import SortKey
from tpf_server.continuous.engine.delivery import Phase
from tpf_server.continuous.engine.plans.batch_report import (
    EVERY,
    FAILED,
    OFF,
    OTHERS,
    OTHERWISE,
    REORDERED,
    UNFIT,
    batch_report,
)
from tpf_server.continuous.engine.plans.fused_plan import (
    FusedPlan,
    GateShape,
    GroupShape,
    PlanShape,
    RowOf,
    RowSource,
)
from tpf_server.continuous.engine.plans.fused_stream import FusedStream
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.windows.star_window import StarWindow

# Which plans can be one state (see `FusedPlan`), and what they come to.
#
# Those that show the first of the groups of a window's records (`ORDER BY … LIMIT`), where groups
# are counted, or have sums, averages, extremes or medians; also groups of several windows that are
# joined by their keys, and rows that count only where another window has one of the same key, or
# has none (EXISTS).

_MOST_BRANCHES: Final = 8
_MOST_NUMBERS: Final = 8
_MOST_KEYS: Final = 64
_MOST_CONDITIONS: Final = 1000
_MOST_WIDTH: Final = 1 << 62
_MOST_WANTED: Final = 10_000
"""Of more the place is found faster where they are a sorted list (see `TopK`)."""
_KINDS: Final = {"MEDIAN": MEDIAN, "SUM": SUM, "AVG": SUM, "MIN": LEAST, "MAX": MOST}
_TURNED: Final = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


class _NotFusibleError(Exception):
    """It is something else."""


class _Value(NamedTuple):
    """What a column of a node is: at a place of a ranking's rows, maybe divided by a size."""

    place: int
    over: int = NONE


class _Part(NamedTuple):
    """A node above groups: what its columns are (``None``: computed), and its rows."""

    values: tuple[_Value | None, ...]
    row: RowOf


class _Reader:
    """Reads a plan."""

    def __init__(self, plan: Plan) -> None:
        self.windows = plan.leaves.subscriptions
        self.groups: list[GroupShape] = []
        self.branches: list[Branch] = []
        self.distinct: list[Distinct] = []
        self.keys = 0
        # The branch of each size, by its place.
        self.sizes: dict[int, int] = {}
        # The places of the least and the most, which may be instants.
        self.extremes: set[int] = set()
        self.seen: set[Node] = set()
        self.used: set[object] = set()
        self._encode = plan.flow.dictionary.encode

    def part(self, node: Node) -> _Part:
        """What a node is that is asked for its rows."""
        self.seen.add(node)
        if type(node) is Group:
            return self._group(node)
        if type(node) is KeyedJoin:
            return self._join(node)
        below = node.below
        if below is None:
            raise _NotFusibleError
        if type(node) is Project:
            source, places = node.taken
            while below is not source:
                self.seen.add(below)
                if below.below is None:
                    raise _NotFusibleError
                below = below.below
            values, row = self.part(source)
            taken = tuple([values[place] if place >= 0 else None for place in places])
            return _Part(taken, _projected(row, places))
        values, row = self.part(below)
        if type(node) is Filter:
            self._limit(node, values)
            return _Part(values, row)
        if type(node) is Extend:
            compute = node.compute

            def extended(parts: Sequence[Solution]) -> Solution:
                found = row(parts)
                return (*found, compute(found))

            value = self._quotient(node.expression, dict(zip(below.schema, values, strict=True)))
            return _Part((*values, value), extended)
        raise _NotFusibleError

    def _group(self, node: Group) -> _Part:
        how = node.groups.how
        keys, number = len(how.keys), len(self.groups)
        if not 0 < keys <= _MOST_KEYS or number >= _MOST_BRANCHES:
            raise _NotFusibleError
        if self.groups and keys != self.keys:
            raise _NotFusibleError
        self.keys = keys
        kinds, numbers, shown = _numbers(how)
        gate, upstream = None, node.upstream
        # Through a gate rows come to groups again, at any time.
        if type(upstream) is SemiJoin and {*kinds} <= {SUM}:
            gate = self._gate(upstream)
            self.seen.add(upstream)
            upstream = upstream.left
        source = self._source(upstream)
        first = keys + sum(each.shown for each in self.branches)
        self.sizes[first] = number
        self.groups.append(GroupShape(source, node, tuple(range(keys)), numbers, shown, gate))
        self.branches.append(
            Branch(
                width=source.window.width,
                numbers=kinds,
                other_width=NONE if gate is None else gate.other.window.width,
                negated=gate is not None and gate.node.negated,
            )
        )
        values = [_Value(place) for place in range(keys)]
        for place, written in zip(shown, how.written, strict=True):
            averages = place and written.name == "AVG"
            if place and _KINDS[written.name] in (LEAST, MOST):
                self.extremes.add(first + place)
            values.append(_Value(first + place, first if averages else NONE))
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
        for place in range(first, len(self.groups)):
            keys = self.groups[place].keys
            self.groups[place] = self.groups[place]._replace(
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
        """A condition on how many rows a group has."""
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
        place = self.sizes[value.place]
        branch = self.branches[place]
        least = {">": number + 1, ">=": number}.get(name, 1)
        most = {"<": number - 1, "<=": number}.get(name, MOST_SIZE)
        self.branches[place] = branch._replace(
            least=max(branch.least, least), most=min(branch.most, most)
        )

    def _quotient(
        self, expression: Expression | None, values: Mapping[Variable, _Value | None]
    ) -> _Value | None:
        """What a computed column is: nothing that is known, or a value divided by a size."""
        match expression:
            case Call("/", (VariableRef(one), VariableRef(other))):
                dividend, divisor = values.get(one), values.get(other)
            case _:
                return None
        if dividend is None or divisor is None or dividend.over != NONE:
            return None
        # An instant is divided by nothing.
        if dividend.place in self.extremes:
            return None
        return _Value(dividend.place, divisor.place) if self.is_size(divisor) else None

    def is_size(self, value: _Value) -> bool:
        """Whether a value is how many rows count."""
        return value.place in self.sizes and value.over == NONE

    def _gate(self, node: SemiJoin) -> GateShape:
        right = node.right
        names = [name for name in right.schema if name in node.left.schema]
        if len(names) != 1 or not node.filters or node.expressions is None:
            raise _NotFusibleError
        if type(right) is Distinct:
            self.seen.add(right)
            self.distinct.append(right)
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
            inner, places = node.taken
            if NONE in places:
                raise _NotFusibleError
            names = {
                name: inner.schema[place] for name, place in zip(node.schema, places, strict=True)
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
            found = dict(zip(node.schema, columns, strict=True))
            return RowSource(window, {name: found[own] for name, own in names.items()})
        raise _NotFusibleError


def _numbers(how: Grouping) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """What is kept of which arguments of aggregates, and where each aggregate is shown."""
    arguments = how.expressions[len(how.keys) :]
    if any(each is None or is_volatile(each) for each in how.expressions):
        raise _NotFusibleError
    kept: dict[tuple[int, Expression | None], int] = {}
    shown, place = [], 0
    for (_, factory), written in zip(how.aggregates, how.written, strict=True):
        if factory is None:
            shown.append(0)
            continue
        if written.name not in _KINDS or written.distinct:
            raise _NotFusibleError
        # A sum and an average of the same are kept once.
        number = kept.setdefault((_KINDS[written.name], arguments[place]), place)
        shown.append(1 + PARTS * [*kept.values()].index(number))
        place += 1
    if place != len(arguments) or len(kept) > _MOST_NUMBERS:
        raise _NotFusibleError
    return tuple([kind for kind, _ in kept]), tuple(kept.values()), tuple(shown)


def plan_shape(plan: Plan) -> PlanShape | None:
    """What a plan comes to; ``None``: it does something else."""
    leaves, order = plan.leaves, plan.flow.nodes[-1] if plan.flow.nodes else None
    if plan.lifted or leaves.caches or leaves.unions or leaves.instance_bags:
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
        ranking._replace(offset=offset, wanted=wanted, apart=plan.flushes_early, ticks=plan.nets),
        order,
        part.row,
        tuple(reader.distinct),
    )


def _ranking(reader: _Reader, part: _Part, by: Sequence[tuple[int, bool]]) -> Ranking:
    order = []
    for place, descending in by:
        value = part.values[place]
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
    if missing or max(len(order), len(ties)) > _MOST_CONDITIONS:
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


def _projected(row: RowOf, places: Sequence[int]) -> RowOf:
    def projected(parts: Sequence[Solution]) -> Solution:
        found = row(parts)
        return tuple([found[place] if place >= 0 else UNBOUND for place in places])

    return projected


class Fusion:
    """Knows the plans that can, and those that do.

    Args:
        plans: of the engine.
        phase: of the engine.
        kernel: what keeps the state of a plan; ``None``: what the environment says.
        reorders: whether elements wait for late ones: they are put in order one by one.

    Attributes:
        active: the plans whose state is with them, and not with their operators.
    """

    def __init__(
        self, plans: Mapping[Plan, None], phase: Phase, kernel: Kernel | None, *, reorders: bool
    ) -> None:
        self.active: FusedStream | None = None
        self._plans = plans
        self._phase = phase
        self._kernel = kernel_in_use(kernel)
        self._refusal = REORDERED if reorders else None
        if self._kernel == "off":
            missing = None if kernel_asked(kernel) == "off" else why_not_compiled()
            self._refusal = missing or OFF
        self._fused: dict[Plan, FusedPlan] = {}
        self._together: FusedStream | None = None

    def added(self, plan: Plan) -> None:
        """There is one more plan."""
        self._together = None
        # Who emits at every arrival wants to be asked at every one.
        refusal = self._refusal or (None if plan.delivery.silent else EVERY)
        shape = None if refusal else plan_shape(plan)
        if shape is not None:
            self._fused[plan] = FusedPlan(plan, shape)
        plan.batches = partial(self._report, plan, refusal or OTHERWISE)

    def _report(self, plan: Plan, refusal: str) -> dict[str, Any]:
        """How a plan takes batches of records now; after it windows say what they hold."""
        if self.active is not None:
            self.active.trim()
        found = self._fused.get(plan)
        if found is None:
            return batch_report("off", reason=refusal)
        if len(self._plans) != len(self._fused):
            return batch_report("off", reason=OTHERS)
        failure = self._together.failure if self._together is not None else None
        if failure is not None:
            error = f"{type(failure).__name__}: {failure}"
            return batch_report("off", reason=f"{FAILED}: {error}")
        if any(each.unfit for each in self._fused.values()):
            # The operators took them in the place of all plans.
            return batch_report("off", reason=UNFIT if found.unfit else OTHERS)
        return batch_report(self._kernel, found.operators)

    def removed(self, plan: Plan) -> None:
        """A plan is gone."""
        self._together = None
        self._fused.pop(plan, None)

    @property
    def together(self) -> FusedStream | None:
        """All plans, if all of them can."""
        if len(self._plans) != len(self._fused) or not self._fused:
            return None
        if self._together is None:
            self._together = FusedStream(list(self._fused.values()), self._phase)
        return self._together

    def holders(self) -> list[object]:
        """What holds terms and is not with the operators; where nothing can tell, it is again."""
        found = [] if self.active is None else self.active.holders()
        if found is None:
            self.settle(briefly=True)
        return found or []

    def settle(self, *, briefly: bool = False) -> None:
        """The operators get back what is theirs.

        Args:
            briefly: only to be looked at: what comes next may be taken again.
        """
        if self.active is not None:
            active, self.active = self.active, None
            active.settle(briefly=briefly)
