"""The plan of a query, or of several that differ in constants: its dataflow and its sources."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Solution, projection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Node, Work
from tpf_client.dataflow.operators.closure import Closure
from tpf_client.dataflow.operators.extend import Extend
from tpf_client.dataflow.operators.filter import Filter
from tpf_client.dataflow.operators.multiway_join import MultiwayJoin, Routing
from tpf_client.dataflow.operators.project import Project
from tpf_client.dataflow.operators.union import Union
from tpf_client.errors import LimitError
from tpf_client.sparql import algebra
from tpf_client.sparql.expressions.compiler import is_volatile
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.visitor import everything
from tpf_server.continuous.engine.delivery import Delivery
from tpf_server.continuous.engine.errors import JoinLimitError
from tpf_server.continuous.engine.plans.dispatch import Dispatch
from tpf_server.continuous.engine.plans.emitting_group import emitting_group
from tpf_server.continuous.engine.plans.leaves import ContinuousLeaves, Windows
from tpf_server.continuous.engine.plans.own_slices import OwnSlices
from tpf_server.continuous.engine.plans.plan_builder import PlanBuilder
from tpf_server.continuous.engine.plans.slices import Slices
from tpf_server.continuous.engine.plans.solution_order import SolutionOrder
from tpf_server.continuous.engine.semantics import Semantics
from tpf_server.continuous.engine.static.dataset import Dataset
from tpf_server.continuous.engine.static.static_cache import INSTANCE, SLICE, Instance
from tpf_server.continuous.engine.static.static_caches import StaticCaches
from tpf_server.continuous.engine.static.static_data import GraphChange
from tpf_server.continuous.engine.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.engine.windows.stream_time import StreamTime
from tpf_server.continuous.engine.windows.window_input import WindowInput

# These keep nothing of what went through them, so they need not hear of rows that go.
_STATELESS: tuple[type[Node], ...] = (MultiwayJoin, Filter, Project, Union, Extend, Dispatch)


class Plan:
    """A running dataflow.

    Args:
        query: what it computes.
        windows: where its windows come from.
        dataset: its static data.
        static_caches: what of them it shares with others.
        dictionary: the integers of terms.
        environment: for expressions.
        semantics: what is emitted.
        delivery: takes the changes of the result.
        number: of its registration (see `Watermark`).
        lifted: variables that stand for constants of instances, `SLICE` for their OFFSET and LIMIT,
            and `INSTANCE` where their joins give it; empty where there are no instances. Of the
            result `INSTANCE` is a column then.
        opens: whether instances may be added while elements flow.
        routing: of joins.
        join_rows: how many rows joins may make at once.
        exceeded: is called where that is not enough.

    Attributes:
        work: what is left of these rows.
        follows: whether what it holds follows from what is in its windows alone.
        slides: of each window with a slide, whether the plan needs it or not, the time of its
            stream and the slide. Between elements a plan that does not net emits at their
            multiples only.
        waits: whether it may hold something back that it was not asked for.
        nets: whether it emits differences, so that it matters what is gone from windows.
        batches: tells how it takes batches of records.
    """

    def __init__(
        self,
        query: ContinuousQuery,
        windows: Windows,
        dataset: Dataset,
        static_caches: StaticCaches,
        dictionary: TermDictionary,
        environment: Environment,
        semantics: Semantics,
        delivery: Delivery,
        number: int,
        lifted: frozenset[Variable] = frozenset(),
        *,
        opens: bool = False,
        routing: Routing = "reviewed",
        join_rows: int,
        exceeded: Callable[["Plan"], None],
    ) -> None:
        self.query = query
        self.delivery = delivery
        self.number = number
        self.opens = opens
        self.lifted = lifted
        self.instances: dict[int, Instance] = {}
        self.flow = Dataflow(dictionary)
        joins = (algebra.Join, algebra.LeftJoin, algebra.Path, algebra.Minus)
        guards = any(isinstance(each, joins) for each in everything(query.query))
        self.work = Work(join_rows, partial(exceeded, self), guards=guards)
        self.leaves = ContinuousLeaves(
            query,
            windows,
            dataset,
            static_caches,
            environment,
            dictionary,
            semantics,
            lifted - {SLICE},
            number,
            opens,
            self._added,
            routing,
            self.work,
        )
        emitting = emitting_group(query.query) if semantics.aggregates == "rows" else None
        paths = any(isinstance(each, algebra.Path) for each in everything(query.query))
        builder = PlanBuilder(self.leaves, self.flow, environment, emitting, paths=paths)
        pattern: algebra.Pattern = query.query.pattern
        if query.query.form == "ASK":
            pattern = algebra.Slice(algebra.Distinct(algebra.Project(pattern, ())), 0, 1)
        node, variables, self.order = builder.modified(pattern, None)
        self._sorted_by = SolutionOrder(self.order, again=delivery.whole)
        self._slices: Slices | OwnSlices | None = None
        if SLICE in lifted and len(lifted) > 1:
            node = self._slices = builder.sliced_apart(node, self.order)
        elif SLICE in lifted:
            node = self._slices = builder.sliced(
                node,
                variables if semantics.output == "difference" else node.schema,
                self.order,
                leaving=semantics.relation == "dstream",
                wanted=delivery.takes,
            )
        self.schema = node.schema
        if not {*self.schema} <= {*variables, INSTANCE}:
            delivery.visible = projection(self.schema, (*variables, INSTANCE))
        for each in self.flow.nodes:
            each.limit(self.work)
        self.dispatches = builder.dispatches
        node.connect(delivery.push)
        self._own_caches = [each for each, _ in self.leaves.caches if each not in static_caches]
        self.stateless = semantics.relation == "istream" and all(
            isinstance(each, _STATELESS) for each in self.flow.nodes
        )
        if semantics.output == "difference" or _volatile(query.query):
            self.stateless = False
        self.holding = [each for each in self.flow.nodes if each.holds]
        for _, entry in self.leaves.subscriptions:
            entry.takes_expired = not self.stateless

        self._windows = windows
        self.slides = windows.slides(query.windows)
        self.nets = self.leaves.nets
        self.waits = False
        self.batches: Callable[[], dict[str, Any]] = dict

        self._position = windows.position
        self._began = self._positions()
        self.follows = bool(self._began) and not query.varies and _follows(query.query)

        # The nodes stand in their order; only paths of any length feed back.
        self.cyclic = any(isinstance(each, Closure) for each in self.flow.nodes)
        self.flushes_early = bool(self.holding) and semantics.output == "derivations"

    def _added(self, join: MultiwayJoin) -> None:
        self.flow.add(join)

    def start(self) -> None:
        """Make the routes, let windows and static data in."""
        for join in self.leaves.joins:
            join.start()
        for window, entry in self.leaves.subscriptions:
            window.connect(entry, nets=self.nets)
        for cache, entry in self.leaves.caches:
            cache.consumers.append(entry)
        for cache in self._own_caches:
            if not cache.per_instance:
                cache.refresh(None, sends=cache in self.leaves.alone)
        self.flush()
        for join in self.leaves.joins:
            join.adapt()

    def stream_came(self, name: Term) -> None:
        """There is one more stream, which a query over every stream reads."""
        for window, branch in self.leaves.stream_came(name):
            branch.takes_expired = not self.stateless
            window.connect(branch, nets=self.nets)
        self.slides = self._windows.slides(self.query.windows)

    def stream_gone(self, name: Term) -> None:
        """A stream is gone, and what a query over every stream saw of it."""
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

    def slides_to(self, at: int, streams: Container[StreamTime] | None = None) -> bool:
        """Whether a window with a slide has come to a multiple of it.

        Args:
            at: the instant that was reached, of the engine or of `streams`.
            streams: those that were moved there; ``None``: all that the engine moves.
        """
        if streams is not None:
            return any(time in streams and not at % slide for time, slide in self.slides)
        return any(
            at - time.lag > time.latest and not (at - time.lag) % slide
            for time, slide in self.slides
        )

    def affords(self, solutions: Sequence[tuple[Solution, int]]) -> bool:
        """Whether so many rows may be emitted; equal ones were one row so far."""
        count = 0
        for _, times in solutions:
            count += times
        work = self.work
        if count > (work.most if self.delivery.whole else work.left):
            work.end()
            return False
        if not self.delivery.whole:
            work.left -= count
        return True

    @property
    def idle(self) -> bool:
        """Whether its windows hold nothing."""
        return not any(window.held for window, _ in self.leaves.subscriptions)

    @property
    def unused(self) -> bool:
        """Whether nothing has come into its windows since it was made."""
        return not any(window.came_since(self.number) for window, _ in self.leaves.subscriptions)

    def add_instance(self, instance: Instance) -> None:
        """One more query that differs in its constants only; it sees what comes from now on."""
        self.instances[instance.number] = instance
        self.work.share(len(self.instances))
        self._began = self._positions()
        # No row of a window came after it yet.
        try:
            self._change_instance(instance, 1, sends=not self.leaves.subscriptions)
        except JoinLimitError:
            self._forget_instance(instance.number)
            raise

    def _forget_instance(self, number: int) -> None:
        """It could not be added: its static patterns have too many rows."""
        del self.instances[number]
        self.work.share(len(self.instances))
        if self._slices is not None:
            self._slices.remove(number)
        for cache in self._own_caches:
            cache.drop(number, sends=False)
        for dispatch in self.dispatches:
            dispatch.remove(number)

    def adopt(self, instance: Instance) -> None:
        """A query goes on here that has run elsewhere, where it saw what is in these windows."""
        self.instances[instance.number] = instance
        self.work.share(len(self.instances))
        self._select(instance, news=False)

    def _select(self, instance: Instance, *, news: bool) -> None:
        """Give an instance its share of what operators above joins tell apart.

        Args:
            instance: the query.
            news: whether what is there already is news to it.
        """
        encode = self.flow.dictionary.encode
        for dispatch in self.dispatches:
            constants = [encode(instance.constants[name]) for name in dispatch.variables]
            dispatch.add(instance.number, constants)
        if self._slices is not None:
            self._slices.add(instance.number, *instance.slice, news=news)

    def _positions(self) -> list[int]:
        """What has come into its windows when the last query came."""
        return [self._position(window) for window, _ in self.leaves.subscriptions]

    def caught_up(self, other: "Plan") -> bool:
        """Whether the windows of this plan hold nothing that some query of either has not seen."""
        if len(self._began) != len(other._began):
            return False
        windows = [window for window, _ in self.leaves.subscriptions]
        began = map(max, self._began, other._began)
        return all(map(WindowInput.begins_after, windows, began))

    def drop_instance(self, number: int) -> None:
        """That query is gone."""
        instance = self.instances.pop(number)
        self.work.share(len(self.instances))
        # Operators that keep nothing have nothing to forget.
        self._change_instance(instance, -1, sends=not self.stateless)

    def _change_instance(self, instance: Instance, count: int, *, sends: bool) -> None:
        number, encode = instance.number, self.flow.dictionary.encode
        if count > 0:
            self._select(instance, news=True)
        elif self._slices is not None:
            self._slices.remove(number)
        for cache in self._own_caches:
            if count < 0:
                cache.drop(number, sends=sends)
            elif cache.per_instance:
                cache.refresh(instance, sends=sends)
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
        """Static graphs are about to change; the shared caches are told by somebody else.

        Returns:
            what is to be called when these have changed.
        """
        finishing = [
            cache.changing(instance, change)
            for cache in self._own_caches
            if cache.reads(change)
            for instance in (self.instances.values() if cache.per_instance else (None,))
        ]

        def finish() -> None:
            for each in finishing:
                each()
            self.flush()

        return finish

    def flush(self) -> None:
        """Let the operators send what they held back."""
        self.waits = False
        try:
            for node in self.holding:
                node.flush()
            if self.cyclic:
                while any(node.pending for node in self.holding):
                    for node in self.holding:
                        node.flush()
        except LimitError:
            self.work.end()

    def stop(self) -> None:
        """Let go of the windows and indexes."""
        for window, entry in self.leaves.subscriptions:
            window.disconnect(entry, nets=self.nets)
            window.release(self)
        for cache, entry in self.leaves.caches:
            cache.consumers.remove(entry)
        for join in self.leaves.joins:
            join.stop()

    def adapt(self) -> bool:
        """Choose routes anew; whether any changed."""
        # Every join, not only those up to the first that changes.
        return sum(join.adapt() for join in self.leaves.joins) > 0

    def explain(self) -> dict[str, Any]:
        """The joins with their routes and cardinalities, the windows and the caches.

        Of windows over every stream also which streams they read, and why there is nothing.
        """
        unions = [
            {"input": each.entry.label, "reads": [name[1:-1] for name in each.branches]}
            for each in self.leaves.unions
        ]
        reasons = filter(None, map(self.leaves.reason, self.leaves.unions))
        found: dict[str, Any] = {}
        if unions:
            found = {"streams": unions}
        for reason in reasons:
            found |= {"state": "waiting", "reason": reason}
            break
        # First: what windows hold may be known there.
        found["batches"] = self.batches()
        return found | {
            "operators": [type(node).__name__ for node in self.flow.nodes],
            "joins": [
                {"rerouted": join.rerouted, "inputs": join.explain()} for join in self.leaves.joins
            ],
            "caches": [
                {"patterns": entry.label, "rows": cache.size, "queries": len(cache.consumers)}
                for cache, entry in self.leaves.caches
            ],
            "instances": len(self.instances) or 1,
        }

    def ordered(self, solutions: list[tuple[Solution, int]]) -> list[tuple[Solution, int]]:
        """Solutions in the order of the query, if it has one."""
        self._sorted_by.sort(solutions)
        return solutions


def _volatile(query: algebra.Query) -> bool:
    """Whether some BIND gives another value each time, which its node must remember."""
    return any(
        isinstance(each, algebra.Extend) and is_volatile(each.expression)
        for each in algebra.walk(query.pattern)
    )


def _follows(query: algebra.Query) -> bool:
    """Whether what a plan holds follows from what is in its windows, not from what has been."""
    if _volatile(query):
        return False
    for each in algebra.walk(query.pattern):
        if isinstance(each, algebra.Slice) and not _ordered(each.input):
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
