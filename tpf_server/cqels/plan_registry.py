"""The plans of an engine: which queries share one, and who owns which rows of it."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.expressions.compiler import Environment
from tpf_server.cqels.delivery import Delivery, Phase
from tpf_server.cqels.dictionary import InliningDictionary
from tpf_server.cqels.parser import ContinuousQuery
from tpf_server.cqels.plan import Plan
from tpf_server.cqels.registered_query import RegisteredQuery
from tpf_server.cqels.row_maker import RowMaker
from tpf_server.cqels.semantics import Semantics
from tpf_server.cqels.static_cache import INSTANCE, Instance
from tpf_server.cqels.static_caches import StaticCaches
from tpf_server.cqels.static_data import Dataset, StaticData
from tpf_server.cqels.templates import (
    Template,
    common_query,
    differing,
    lifted_variable,
    template_of,
)
from tpf_server.cqels.window_registry import WindowRegistry


class PlanRegistry:
    """All plans.

    Args:
        windows: where plans take their windows.
        static: the static graphs.
        dictionary: the integers of terms.
        environment: for expressions.
        share: whether queries that differ in constants only share a plan.

    Attributes:
        plans: all of them.
        holding: those that hold something back until the end of a tick.
        early: those that must be asked before rows come in, too.
        awake: deliveries that have something to emit.
        repeating: deliveries that emit at every tick.
        phase: what the engine is doing.
    """

    def __init__(
        self,
        windows: WindowRegistry,
        static: StaticData,
        dictionary: InliningDictionary,
        environment: Environment,
        *,
        share: bool,
    ) -> None:
        self.plans: list[Plan] = []
        self.holding: list[Plan] = []
        self.early: list[Plan] = []
        self.awake: list[Delivery] = []
        self.repeating: list[Delivery] = []
        self.phase = Phase()
        self._windows = windows
        self._static = static
        self._caches = StaticCaches()
        self._dictionary = dictionary
        self._environment = environment
        self._share = share
        # Any integer tells instances apart; it never meets a term.
        self._instances = itertools.count(1)
        self._owners: dict[Plan, dict[int, RegisteredQuery]] = {}
        self._plan_of: dict[Delivery, Plan] = {}
        self._templates: dict[object, list[tuple[Template, tuple[int, ...], Plan]]] = {}
        self._alike: dict[object, Plan] = {}

    def add(self, registered: RegisteredQuery, policy: Semantics, *, alone: bool) -> None:
        """Give a query a plan: where `alone` is not set, that of others like it if there is one.

        Others are like it if they say the same, or the same but for constants.

        Raises:
            UnsupportedContinuousQueryError: it cannot be run.
        """
        # Who emits everything emits at every arrival, also that there is nothing: of one plan it
        # could not be told whose result has changed.
        alone = alone or policy.relation == "rstream" or not self._share
        if alone:
            self._new_plan(registered, registered.query, policy, frozenset())
            return
        same = (registered.query.query, registered.query.windows, policy)
        alike = self._alike.get(same)
        if alike is not None and alike.unused and not any(q.emitted for q in self.owners(alike)):
            self._own(registered, alike, next(self._instances))
            return
        template = template_of(registered.query)
        if template is None:
            self._alike[same] = self._new_plan(registered, registered.query, policy, frozenset())
            return
        known = self._templates.setdefault((template.key, policy), [])
        for first, numbers, plan in known:
            different = differing(first, template)
            if numbers and set(different) <= set(numbers) and plan.unused:
                self._add_instance(registered, plan, template, numbers)
                return
        for first, numbers, plan in known:
            different = differing(first, template)
            if not numbers and different and plan.unused:
                query, lifted = common_query(registered.query, different)
                shared = self._new_plan(None, query, policy, lifted)
                known.append((template, different, shared))
                self._add_instance(registered, shared, template, different)
                return
        plan = self._new_plan(registered, registered.query, policy, frozenset())
        known.append((template, (), plan))
        self._alike[same] = plan

    def _new_plan(
        self,
        owner: RegisteredQuery | None,
        query: ContinuousQuery,
        policy: Semantics,
        lifted: frozenset[Any],
    ) -> Plan:
        delivery = Delivery(policy, self.awake.append, self.phase)
        dataset = query.query.dataset
        plan = Plan(
            query,
            self._windows,
            Dataset(self._static, dataset.default, dataset.named),
            self._caches,
            self._dictionary,
            self._environment,
            policy,
            delivery,
            lifted,
        )
        self._owners[plan] = {}
        if owner is not None:
            self._own(owner, plan, 0)
        plan.start()
        self.plans.append(plan)
        self._plan_of[delivery] = plan
        if plan.holding:
            self.holding.append(plan)
        if plan.flushes_early:
            self.early.append(plan)
        if not delivery.silent:
            self.repeating.append(delivery)
        return plan

    def _own(self, owner: RegisteredQuery, plan: Plan, number: int) -> None:
        owner.plan = plan
        owner.number = number
        owners = self._owners[plan]
        if owners and not plan.lifted:
            # They say the same, so what one gets all get.
            owner.maker = next(iter(owners.values())).maker
        else:
            owner.maker = RowMaker(owner.query.query, plan.schema, self._dictionary)
        owners[number] = owner

    def _add_instance(
        self, owner: RegisteredQuery, plan: Plan, template: Template, numbers: tuple[int, ...]
    ) -> None:
        number = next(self._instances)
        constants = {lifted_variable(n): template.constants[n] for n in numbers}
        plan.add_instance(Instance(number, constants))
        self._own(owner, plan, number)

    def remove(self, registered: RegisteredQuery) -> None:
        """Take a query out of its plan; a plan without queries ends."""
        plan = registered.plan
        if plan is None:
            return
        owners = self._owners[plan]
        owners.pop(registered.number, None)
        registered.plan = None
        if owners:
            if plan.lifted:
                plan.drop_instance(registered.number)
            return
        plan.stop()
        for plans in (self.plans, self.holding, self.early):
            if plan in plans:
                plans.remove(plan)
        del self._owners[plan], self._plan_of[plan.delivery]
        for deliveries in (self.awake, self.repeating):
            if plan.delivery in deliveries:
                deliveries.remove(plan.delivery)
        for known in self._templates.values():
            known[:] = [entry for entry in known if entry[2] is not plan]
        self._alike = {key: each for key, each in self._alike.items() if each is not plan}
        for window, _ in plan.leaves.subscriptions:
            if not window.consumers:
                self._windows.drop(window)
        self._caches.drop_idle()

    def drop_idle(self) -> None:
        """Drop windows and static caches that nobody listens to."""
        self._windows.drop_idle()
        self._caches.drop_idle()

    def refresh(self, graph: Term) -> None:
        """A static graph has changed."""
        self._caches.refresh(graph)
        for plan in self.plans:
            plan.refresh(graph)

    def owners(self, plan: Plan) -> tuple[RegisteredQuery, ...]:
        """The queries of a plan."""
        return tuple(self._owners[plan].values())

    def emissions(
        self,
    ) -> Iterator[tuple[Sequence[RegisteredQuery], Sequence[tuple[Solution, int]], bool]]:
        """What queries have to emit now: who, its solutions, and whether they left the result.

        No query may come or go before all is taken.
        """
        for delivery in self.awake:
            plan = self._plan_of[delivery]
            solutions, removed = delivery.take()
            if not solutions and delivery.silent:
                continue
            solutions = plan.ordered(solutions)
            owners = self._owners[plan]
            if not plan.lifted:
                yield tuple(owners.values()), solutions, removed
                continue
            column = plan.schema.index(INSTANCE)
            split: dict[int, list[tuple[Solution, int]]] = {}
            for solution in solutions:
                split.setdefault(solution[0][column], []).append(solution)
            for number, own in split.items():
                if number in owners:
                    yield (owners[number],), own, removed
        self.awake.clear()
