"""The plan of a query, or of several that differ in constants: its dataflow and its sources."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from annotations.terms import Term, Variable
from tpf_client.dataflow.build.modifiers_builder import build_group
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.node import Dataflow, Key, Node, Work
from tpf_client.dataflow.operators.basic import Distinct, Extend, Filter, Project, Union
from tpf_client.dataflow.operators.closure import Closure
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin
from tpf_client.dataflow.operators.order import SortKeyOf
from tpf_client.dataflow.state.groups import Grouping, Groups
from tpf_client.errors import LimitError
from tpf_client.sparql import algebra
from tpf_client.sparql.expressions.compiler import CALLS, is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import conjuncts, everything, movable
from tpf_client.sparql.scopes import in_scope, variables_in
from tpf_server.continuous.runtime.clock import StreamClock
from tpf_server.continuous.runtime.delivery import Delivery
from tpf_server.continuous.runtime.errors import JoinLimitError
from tpf_server.continuous.runtime.plans.dispatch import Dispatch, NettingDispatch, comparison
from tpf_server.continuous.runtime.plans.leaves import (
    ContinuousLeaves,
    PlanContext,
    QueryPlan,
)
from tpf_server.continuous.runtime.plans.slices import Slices
from tpf_server.continuous.runtime.plans.stamps import StampedBuilder, hidden_stamp
from tpf_server.continuous.runtime.static.static_data import GraphChange
from tpf_server.continuous.runtime.static.static_rows import INSTANCE, SLICE, Instance, tell
from tpf_server.continuous.runtime.windows.window_input import WindowInput

# Groups that are news whenever they get solutions, and what of a query they are for.


class EmittingGroup(Node):
    """Groups whose row is there once for each solution of their last tick, as originally."""

    def __init__(self, upstream: Node, how: Grouping) -> None:
        super().__init__(how.schema, how.certain, monotone=False)
        self.groups = Groups(how, counts_fresh=True)
        self._shown: dict[Key, tuple[Solution, int]] = {}
        upstream.connect(self.groups.sink())

    def limit(self, work: Work) -> None:
        self.groups.limit(work)

    @property
    def pending(self) -> bool:
        return bool(self.groups.touched)

    def flush(self) -> None:
        groups, shown = self.groups, self._shown
        if not groups.touched:
            return
        for group in groups.touched:
            key = group.key
            assert key is not None
            count, group.fresh = group.fresh, 0
            now = (groups.row(group), count) if count and group.total > 0 else None
            # Also where the row is that of the last tick: what is new is that solutions came.
            before = shown.pop(key, None)
            if before is not None:
                self.emit(before[0], -before[1])
            if now is not None:
                shown[key] = now
                self.emit(*now)
        groups.drained()


def emitting_group(query: algebra.Query) -> algebra.Group | None:
    """Return the grouping whose rows are the rows of the query, if there is nothing more to it.

    Where an operator above reads all its rows (an order with a limit, a join), the rows must stay.
    """
    pattern = query.pattern
    while isinstance(pattern, (algebra.Project, algebra.OrderBy, algebra.Extend, algebra.Filter)):
        pattern = pattern.input
    return pattern if isinstance(pattern, algebra.Group) else None


# From algebra to the dataflow of a continuous query: what differs from a query over fragments.


class PlanBuilder(StampedBuilder):
    """Build the dataflow; conditions on a basic graph pattern become part of its join."""

    leaves: ContinuousLeaves
    remembers = True

    def __init__(
        self,
        leaves: ContinuousLeaves,
        flow: Dataflow,
        environment: Environment,
        emitting: algebra.Group | None,
        *,
        paths: bool,
    ) -> None:
        super().__init__(leaves, flow, environment, emitting)
        self._follows_paths = paths
        self.dispatches: list[Dispatch] = []
        self.slices: list[Slices] = []

    def seed(self, node: Node | None, names: Sequence[Variable]) -> Distinct | None:
        """Make a seed for paths only: windows and caches are local."""
        return super().seed(node, names) if self._follows_paths else None

    def build(self, pattern: algebra.Pattern, seed: Node | None) -> Node:
        conditions: list[algebra.Expression] = []
        inner = pattern
        while isinstance(inner, algebra.Filter):
            conditions += conjuncts(inner.condition)
            inner = inner.input
        lifted = self.leaves.lifted
        if compared := [c for c in conditions if variables_in(c) & lifted]:
            for condition in conditions:
                if condition not in compared:
                    inner = algebra.Filter(inner, condition)
            return self._dispatched(self.build(inner, seed), compared)
        if conditions and isinstance(inner, algebra.Group):
            return self._having(inner, conditions)
        if not conditions or not isinstance(inner, algebra.BGP) or not inner.patterns or self.outer:
            return super().build(pattern, seed)
        scope = set(in_scope(inner))
        inside = [c for c in conditions if movable(c) and variables_in(c) <= scope]
        node: Node = self.leaves.join(inner.patterns, inside)
        for condition in conditions:
            if condition not in inside:
                node = self.filtered(node, condition)
        return node

    def _dispatched(self, node: Node, conditions: Sequence[algebra.Expression]) -> Node:
        compared = [each for each in conditions if isinstance(each, algebra.Call)]
        result = [comparison(each, node.schema, self.environment) for each in compared]
        make = NettingDispatch if self.newest else Dispatch
        dispatch = make(node, result, self.leaves.dictionary)
        self.dispatches.append(dispatch)
        return self.flow.add(dispatch)

    def stamps(self, pattern: algebra.Pattern) -> bool:
        return self.leaves.dispatches and self.leaves.streams(pattern)

    def first_ones(self, node: Node, key: SortKeyOf, offset: int, limit: int | None) -> Node:
        if not any(map(hidden_stamp, node.schema)):
            return super().first_ones(node, key, offset, limit)
        return self._slices(node, key, (offset, limit))

    def some(self, node: Node, offset: int, limit: int | None) -> Node:
        """Keep those that came first, of what each query sees."""
        return self._slices(node, None, (offset, limit))

    def _slices(self, node: Node, key: SortKeyOf | None, fixed: tuple[int, int | None]) -> Node:
        stamped = any(map(hidden_stamp, node.schema))
        seers = self.seers() if stamped else ()
        slices = self.flow.add(Slices(node, key, node.schema, fixed=fixed, seers=seers))
        if stamped:
            self.slices.append(slices)
        return slices

    def _having(self, pattern: algebra.Group, conditions: Sequence[algebra.Expression]) -> Node:
        """Return a grouping under HAVING; conditions on keys are decided once for a group."""
        keys = {name for name, _ in pattern.keys}
        early = [c for c in conditions if keys and movable(c) and variables_in(c) <= keys]
        node = build_group(self, pattern, self.build(pattern.input, None), early)
        for condition in conditions:
            if condition not in early:
                node = self.filtered(node, condition)
        return node

    def groups_of(self, node: Node, how: Grouping, pattern: algebra.Group) -> Node:
        if pattern == self.emitting and not any(map(hidden_stamp, node.schema)):
            return self.flow.add(EmittingGroup(node, how))
        return super().groups_of(node, how, pattern)


_NUMBERS: Final = frozenset(("+", "-", "*", "/", "neg", "pos", "ROUND", "FLOOR", "CEIL"))


# These keep nothing of what went through them, so they need not hear of rows that go.
_STATELESS: tuple[type[Node], ...] = (MultiwayJoin, Filter, Project, Union, Extend, Dispatch)


class Plan:
    """A running dataflow.

    Attributes:
        follows: its state follows from the content of its windows alone.
        slides: of each window with a slide, also of unneeded ones, the time of its stream and the
            slide. Between elements a plan that does not net emits at their multiples only.
        nets: it emits differences, so expiries matter.
        batches: reports how it takes batches of records.
    """

    def __init__(self, planned: QueryPlan, context: PlanContext, delivery: Delivery) -> None:
        query, semantics, lifted = planned.query, planned.semantics, planned.lifted
        windows = context.windows
        self.query = query
        self.delivery = delivery
        self.number = planned.number
        self.opens = planned.opens
        self.lifted = lifted
        self.instances: dict[int, Instance] = {}
        self.flow = Dataflow(context.shared.dictionary)
        # What only reckons with a few numbers takes no time that counts.
        joins = (algebra.Join, algebra.LeftJoin, algebra.Path, algebra.Minus, algebra.Exists)
        parts = list(everything(query.query))
        calls = [each.name for each in parts if isinstance(each, algebra.Call)]
        guards = any(isinstance(each, joins) for each in parts) or len(calls) >= CALLS
        guards = guards or not _NUMBERS.issuperset(calls)
        self.work = Work(
            context.shared.limits.join_rows, partial(context.exceeded, self), guards=guards
        )
        environment = replace(context.environment, spend=self.work.read_text)
        context = replace(context, environment=environment)
        self.leaves = ContinuousLeaves(planned, context, self.flow.add, self.work)
        emitting = None if semantics.nets else emitting_group(query.query)
        paths = any(isinstance(each, algebra.Path) for each in everything(query.query))
        builder = PlanBuilder(self.leaves, self.flow, environment, emitting, paths=paths)
        pattern: algebra.Pattern = query.query.pattern
        if query.query.form == "ASK":
            pattern = algebra.Slice(algebra.Distinct(algebra.Project(pattern, ())), 0, 1)
        node, variables, self.order, _ = builder.modified(pattern, None)
        self._slices = builder.slices
        if SLICE in lifted:
            node = self.flow.add(
                Slices(
                    node,
                    self.order,
                    variables if semantics.nets else node.schema,
                    leaving=semantics.relation == "dstream",
                    wanted=delivery.takes,
                )
            )
            self._slices.append(node)
        self.schema = node.schema
        if INSTANCE in self.schema:
            delivery.column = self.schema.index(INSTANCE)
        if not {*self.schema} <= {*variables, INSTANCE}:
            delivery.visible = projection(self.schema, (*variables, INSTANCE))
        for each in self.flow.nodes:
            each.limit(self.work)
        self.dispatches = builder.dispatches
        node.connect(delivery.push)
        self._own_rows = [each for each, _ in self.leaves.static if each not in context.shared_rows]
        self._triples = max(1, len(query.query.template))
        self.nets = semantics.nets
        self.stateless = not (self.nets or _volatile(query.query)) and all(
            isinstance(each, _STATELESS) for each in self.flow.nodes
        )
        self.holding = [each for each in self.flow.nodes if each.holds]
        for _, entry in self.leaves.subscriptions:
            entry.takes_expired = not self.stateless

        self._windows = windows
        self.slides = windows.slides(query.windows)
        self.batches: Callable[[], dict[str, Any]] = dict

        self._position = windows.position
        self._began = self._positions()
        # Of queries that came late: where the windows were then.
        self._late: dict[int, list[int]] = {}
        follows = _follows(query.query, joins=len(self._began) > 1)
        self.follows = bool(self._began) and not query.varies and follows

        # The nodes stand in their order; only paths of any length feed back.
        self.cyclic = any(isinstance(each, Closure) for each in self.flow.nodes)
        self.flushes_early = bool(self.holding) and not self.nets

    def start(self) -> None:
        """Make the routes, let windows and static data in."""
        for join in self.leaves.joins:
            join.start()
        for window, entry in self.leaves.subscriptions:
            window.connect(entry, nets=self.nets)
        for rows, entry in self.leaves.static:
            rows.users[entry] = 0
        for rows in self._own_rows:
            if not rows.per_instance:
                notices = rows.evaluate()
                tell(notices if rows in self.leaves.alone else ())
        self.flush()
        self.adapt()

    def stream_came(self, name: Term) -> None:
        """Add a stream to a query over every stream."""
        for window, branch in self.leaves.stream_came(name):
            branch.takes_expired = not self.stateless
            window.connect(branch, nets=self.nets)
        self.slides = self._windows.slides(self.query.windows)

    def stream_gone(self, name: Term) -> None:
        """Remove a stream, and its rows in a query over every stream."""
        for window, branch in self.leaves.stream_gone(name):
            window.disconnect(branch, nets=self.nets)
            window.release(self)
        self.slides = self._windows.slides(self.query.windows)
        self.flush()

    def wait_for_rows(self) -> None:
        """Be flushed after rows came into or left its windows, and only then."""
        for window, _ in self.leaves.subscriptions:
            if self not in window.holders:
                window.hold(self)

    def slides_to(self, at: int, streams: Container[StreamClock] | None = None) -> bool:
        """True if a window with a slide has come to a multiple of it."""
        if streams is not None:
            return any(time in streams and not at % slide for time, slide in self.slides)
        return any(
            at - time.lag > time.latest and not (at - time.lag) % slide
            for time, slide in self.slides
        )

    def affords(self, solutions: Sequence[tuple[Solution, int]]) -> bool:
        """True if so many rows may be emitted; equal ones count once so far."""
        count = 0
        for _, times in solutions:
            count += times
        count *= self._triples
        work = self.work
        if count > (work.most if self.delivery.whole else work.left):
            work.end()
            return False
        if not self.delivery.whole:
            work.left -= count
        return True

    @property
    def idle(self) -> bool:
        """True if its windows hold nothing."""
        return not any(window.held for window, _ in self.leaves.subscriptions)

    @property
    def unused(self) -> bool:
        """True if nothing has come into its windows since it was made."""
        return not any(window.came_since(self.number) for window, _ in self.leaves.subscriptions)

    def add_instance(self, instance: Instance) -> None:
        """Add a query that differs in its constants only; it sees elements from now on."""
        self.instances[instance.number] = instance
        self.work.share(len(self.instances))
        if self.caught_up(self):
            # Nothing older is in the windows.
            del self.leaves.numbers[:-1]
        self.leaves.numbers.append(instance.number)
        self._began = self._positions()
        if self._slices:
            self._late[instance.number] = self._began
        # No row of a window came after it yet.
        try:
            self._change_instance(instance, 1, sends=not self.leaves.subscriptions)
        except (JoinLimitError, LimitError) as error:
            self._forget_instance(instance.number)
            raise JoinLimitError(str(error)) from None

    def _forget_instance(self, number: int) -> None:
        del self.instances[number]
        self.work.share(len(self.instances))
        for slices in self._slices:
            slices.remove(number)
        for rows in self._own_rows:
            rows.drop(number)
        for dispatch in self.dispatches:
            dispatch.remove(number)

    def adopt(self, instance: Instance) -> None:
        """Continue a query of another plan, where it saw the content of these windows."""
        self.instances[instance.number] = instance
        self.work.share(len(self.instances))
        self._select(instance, news=False)

    def _select(self, instance: Instance, *, news: bool) -> None:
        if news:
            self._dispatch(instance)
        for slices in self._slices:
            slices.add(instance.number, instance.slice, news=news)
        if not news:
            # It was told already what is there.
            self.flush()
            self._dispatch(instance)

    def _dispatch(self, instance: Instance) -> None:
        encode = self.flow.dictionary.encode
        for dispatch in self.dispatches:
            constants = [encode(instance.constants[name]) for name in dispatch.variables]
            dispatch.add(instance.number, constants)

    def settle(self) -> None:
        """Note which queries see all that the windows hold."""
        windows = [window for window, _ in self.leaves.subscriptions]
        settled = 0
        for number, began in self._late.items():
            if not all(map(WindowInput.begins_after, windows, began)):
                break
            settled = number
        if settled:
            self._late = {number: each for number, each in self._late.items() if number > settled}
            for slices in self._slices:
                slices.settle(settled)
            self.flush()

    def _positions(self) -> list[int]:
        return [self._position(window) for window, _ in self.leaves.subscriptions]

    def caught_up(self, other: "Plan") -> bool:
        """True if the windows of this plan hold nothing unseen by some query of either."""
        if len(self._began) != len(other._began):
            return False
        windows = [window for window, _ in self.leaves.subscriptions]
        began = map(max, self._began, other._began)
        return all(map(WindowInput.begins_after, windows, began))

    def drop_instance(self, number: int) -> None:
        instance = self.instances.pop(number)
        self._late.pop(number, None)
        self.work.share(len(self.instances))
        # Operators that keep nothing have nothing to forget.
        self._change_instance(instance, -1, sends=not self.stateless)

    def _change_instance(self, instance: Instance, count: int, *, sends: bool) -> None:
        number, encode = instance.number, self.flow.dictionary.encode
        if count > 0:
            self._select(instance, news=True)
        else:
            for slices in self._slices:
                slices.remove(number)
        for rows in self._own_rows:
            if rows.per_instance:
                notices = rows.drop(number) if count < 0 else rows.evaluate(instance)
                tell(notices if sends else ())
        for bag, schema, entry in self.leaves.instance_bags:
            row = tuple(
                number if name == INSTANCE else encode(instance.constants[name]) for name in schema
            )
            bag.change(row, count)
            if sends:
                entry.route(row, count)
        self.flush()
        for dispatch in self.dispatches if count < 0 else ():
            dispatch.remove(number)

    def changing(self, change: GraphChange) -> Callable[[], None]:
        """Prepare a change of static graphs outside shared rows; call the result afterwards."""
        finishing = [f for rows in self._own_rows if (f := rows.changing(change)) is not None]

        def finish() -> None:
            try:
                for each in finishing:
                    tell(each())
            except Exception as error:  # noqa: BLE001 - it ends its queries, and no others
                self.work.fail(error)
            self.flush()

        return finish

    def flush(self) -> None:
        try:
            for node in self.holding:
                node.flush()
            if self.cyclic:
                while any(node.pending for node in self.holding):
                    for node in self.holding:
                        node.flush()
        except Exception as error:  # noqa: BLE001 - it ends its queries, and no others
            self.work.fail(error)

    def stop(self) -> None:
        for window, entry in self.leaves.subscriptions:
            window.disconnect(entry, nets=self.nets)
            window.release(self)
        for rows, entry in self.leaves.static:
            rows.leave(entry)
        for join in self.leaves.joins:
            join.stop()

    def adapt(self) -> None:
        """Choose routes anew."""
        for join in self.leaves.joins:
            join.adapt()

    @property
    def reason(self) -> str | None:
        """Why a window over every stream has none to read."""
        return next(filter(None, map(self.leaves.reason, self.leaves.unions)), None)

    def explain(self) -> dict[str, Any]:
        """Describe the joins with their routes and cardinalities, the windows and the caches.

        Windows over every stream also with their streams.
        """
        unions = [
            {"input": each.entry.label, "reads": [name[1:-1] for name in each.branches]}
            for each in self.leaves.unions
        ]
        result: dict[str, Any] = {"streams": unions} if unions else {}
        # First: what windows hold may be known there.
        result["batches"] = self.batches()
        return result | {
            "operators": [type(node).__name__ for node in self.flow.nodes],
            "joins": [
                {"rerouted": join.rerouted, "inputs": join.explain()} for join in self.leaves.joins
            ],
            "caches": [
                {"patterns": entry.label, "rows": rows.size, "queries": len(rows.users)}
                for rows, entry in self.leaves.static
            ],
            "instances": len(self.instances) or 1,
        }

    def sort(self, solutions: list[tuple[Solution, int]]) -> None:
        """Sort solutions in the order of the query, if it has one."""
        key = self.order
        if key is not None and len(solutions) > 1:
            solutions.sort(key=lambda each: key(each[0]))


_PASSING: Final = (algebra.BGP, algebra.Filter, algebra.Extend, algebra.Project)
"""Patterns that keep the order in which rows come."""


def _volatile(query: algebra.Query) -> bool:
    return any(
        isinstance(each, algebra.Extend) and is_volatile(each.expression)
        for each in algebra.walk(query.pattern)
    )


def _follows(query: algebra.Query, *, joins: bool) -> bool:
    """True if the state of a plan follows from the content of its windows alone.

    What a join makes at once comes in any order, and groups come again when something goes.
    """
    if _volatile(query):
        return False
    for each in algebra.walk(query.pattern):
        if isinstance(each, algebra.Slice) and not _ordered(each.input):
            below = algebra.walk(each.input)
            if joins or not all(isinstance(inner, _PASSING) for inner in below):
                return False
        if isinstance(each, algebra.Group) and any(
            aggregate.name in ("SAMPLE", "GROUP_CONCAT") for _, aggregate in each.aggregates
        ):
            return False
    return True


def _ordered(pattern: algebra.Pattern) -> bool:
    while isinstance(pattern, (algebra.Distinct, algebra.Reduced, algebra.Project)):
        pattern = pattern.input
    return isinstance(pattern, algebra.OrderBy)
