"""The plans of an engine: shared by queries, with the rows that each of these owns."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable, is_blank_node, is_literal
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.errors import LimitError
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.runtime.clock import NEVER, StreamClock
from tpf_server.continuous.runtime.delivery import Delivery, Phase
from tpf_server.continuous.runtime.errors import EngineLimitError, JoinLimitError, ended_by
from tpf_server.continuous.runtime.plans.fusion import Fusion
from tpf_server.continuous.runtime.plans.leaves import PlanContext, QueryPlan
from tpf_server.continuous.runtime.plans.plan import Plan
from tpf_server.continuous.runtime.plans.registered_query import (
    EncodedTriples,
    RegisteredQuery,
    RowMaker,
)
from tpf_server.continuous.runtime.plans.templates import (
    EQUAL,
    Template,
    common_query,
    differing,
    template_of,
)
from tpf_server.continuous.runtime.semantics import Semantics
from tpf_server.continuous.runtime.shared import Shared
from tpf_server.continuous.runtime.static.static_data import Dataset, GraphChange
from tpf_server.continuous.runtime.static.static_rows import INSTANCE, SLICE, SharedRows, tell
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.runtime.windows.matchers import Watermark
from tpf_server.continuous.runtime.windows.window_input import WindowInput
from tpf_server.continuous.runtime.windows.window_registry import WindowRegistry

# The triples that DESCRIBE makes of solutions: looked up when they are emitted.
#
# A description is what static data say then of a resource, as in `tpf_client.dataflow.build.
# describe_builder`: the triples of which it is the subject, and, where their objects are blank
# nodes, those of these, and so on. Kept as a part of the dataflow it would be a copy of all static
# data.

_PREDICATE, _OBJECT = Variable("?predicate"), Variable("?object")


class Describer:
    """Make triples from solutions."""

    def __init__(
        self,
        query: Query,
        schema: Schema,
        dictionary: TermDictionary,
        dataset: Dataset,
        *,
        feeds: bool = False,
    ) -> None:
        self._given = query.described
        self._places = [schema.index(name) for name in query.variables if name in schema]
        self._dictionary = dictionary
        self._dataset = dataset
        self._feeds = feeds

    def made(
        self, solutions: Sequence[tuple[Solution, int]]
    ) -> tuple[tuple[Row, ...], EncodedTriples]:
        """Return the distinct triples that describe solutions; see `RowMaker.made`."""
        texts = self._dictionary.texts
        named = dict.fromkeys(self._given if solutions else ())
        for solution, _ in solutions:
            named.update({texts[each]: None for at in self._places if (each := solution[at])})
        rows = tuple(dict.fromkeys(self._described(named)))
        if not self._feeds:
            return rows, None
        encode = self._dictionary.encode
        return rows, [(encode(s), encode(p), encode(o)) for s, p, o in rows]

    def _described(self, named: Iterable[Term]) -> Iterable[tuple[Term, Term, Term]]:
        waiting = [each for each in named if not is_literal(each)]
        seen = set(waiting)
        while waiting:
            pattern = QuadPattern(waiting.pop(), _PREDICATE, _OBJECT, DEFAULT_GRAPH)
            for quad in self._dataset.match(pattern):
                yield quad.subject, quad.predicate, quad.object
                if is_blank_node(quad.object) and quad.object not in seen:
                    seen.add(quad.object)
                    waiting.append(quad.object)


# Which plans are to be asked for what they hold back.

_FEW: Final = 8


class HoldingPlans:
    """Plans that hold something back until the end of a tick.

    Few are asked each time; of many, those whose windows changed.

    Attributes:
        holding: flushes plans at the end of a tick.
        early: flushes plans before rows come in, too.
    """

    def __init__(self, touched: list[WindowInput]) -> None:
        self.holding: list[Callable[[], None]] = []
        self.early: list[Callable[[], None]] = []
        self._touched = touched
        self._plans: dict[Plan, None] = {}
        self._many = False

    def add(self, plan: Plan) -> None:
        if not plan.holding:
            return
        self._plans[plan] = None
        if len(self._plans) <= _FEW and not self._many:
            self._arrange()
            return
        for each in [plan] if self._many else self._plans:
            each.wait_for_rows()
        self._many = True
        self.holding[:] = [self.flush]
        if self.early or plan.flushes_early:
            self.early[:] = [self._flush_early]

    def grown(self, plan: Plan) -> None:
        if self._many and plan in self._plans:
            plan.wait_for_rows()

    def remove(self, plan: Plan) -> None:
        if self._plans.pop(plan, self) is not self and not (self._many and self._plans):
            self._many = False
            self._arrange()

    def _arrange(self) -> None:
        self.holding[:] = [each.flush for each in self._plans]
        self.early[:] = [each.flush for each in self._plans if each.flushes_early]

    def touched(self) -> Sequence[Plan]:
        touched = self._touched
        if len(touched) == 1:
            return touched[0].holders
        plans = {plan.number: plan for window in touched for plan in window.holders}
        return [plans[number] for number in sorted(plans)]

    def flush(self) -> None:
        for plan in self.touched():
            plan.flush()
        for window in self._touched:
            window.calm = True
        self._touched.clear()

    def _flush_early(self) -> None:
        for plan in self.touched():
            if plan.flushes_early:
                plan.flush()

    def flush_due(self, due: Callable[[Plan], bool]) -> None:
        for plan in self.touched() if self._many else self._plans:
            if due(plan):
                plan.flush()
        if self._many:
            waiting = []
            for window in self._touched:
                if all(map(due, window.holders)):
                    window.calm = True
                else:
                    waiting.append(window)
            self._touched[:] = waiting


# Plans of queries that differ in constants: whom one takes, and whose solutions it has.


class MemberPlan(NamedTuple):
    """A plan of queries that differ in constants only.

    Args:
        numbers: of the constants in which its instances may differ; ``None``: it has no instances.
    """

    template: Template
    numbers: tuple[int, ...] | None
    plan: Plan

    def takes(self, other: "MemberPlan") -> bool:
        """True if it can take over the queries of another one of equal content."""
        different = {*differing(other.template, self.template), *(other.numbers or ())} - {EQUAL}
        if self.numbers is None:
            return other.numbers is None and not different
        # What joins tell apart, and orders of their own, hold what nobody else has.
        lifted = self.plan.lifted
        apart = INSTANCE in lifted or (SLICE in lifted and len(lifted) > 1)
        return not apart and different <= set(self.numbers)


def shares_of(
    solutions: Sequence[tuple[Solution, int]], column: int
) -> Iterator[tuple[Sequence[int], Sequence[tuple[Solution, int]]]]:
    """Group solutions by the instances that all have them."""
    if len(solutions) == 1:
        numbers: Any = solutions[0][0][column]
        yield numbers if isinstance(numbers, tuple) else (numbers,), solutions
        return
    positions: dict[int, list[int]] = {}
    for position, (solution, _) in enumerate(solutions):
        numbers = solution[column]
        for number in numbers if isinstance(numbers, tuple) else (numbers,):
            positions.setdefault(number, []).append(position)
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, own in positions.items():
        alike.setdefault(tuple(own), []).append(number)
    for shared, result in alike.items():
        yield result, [solutions[position] for position in shared]


# Which plans are looked at between elements, and when.
#
# Plans of queries that have a window with a slide are looked at at its multiples. Plans that emit
# differences are looked at whenever something leaves one of their windows, too, so that they emit
# the same whether elements follow each other closely or not. What a query says decides that, and
# nothing else: so it emits the same beside others as alone.
#
# Windows say themselves when they change (see `WindowRegistry`). Here are the instants at which
# nothing need change: who emits everything does so at each multiple of its slides.


class TickingPlans:
    """Plans that are checked between elements.

    Args:
        skip_idle: leave out multiples at which the windows of a plan are empty.

    Attributes:
        netting: those that emit differences.
        repeating: those that emit everything at the multiples of their slides.
    """

    def __init__(self, *, skip_idle: bool = False) -> None:
        self.plans: list[Plan] = []
        self.netting: list[Plan] = []
        self.repeating: list[Plan] = []
        self._skip_idle = skip_idle

    def add(self, plan: Plan) -> None:
        if plan.slides or plan.nets:
            self.plans.append(plan)
        if plan.nets:
            self.netting.append(plan)
        if plan.slides and plan.delivery.repeats:
            self.repeating.append(plan)

    def remove(self, plan: Plan) -> None:
        for plans in (self.plans, self.netting, self.repeating):
            if plan in plans:
                plans.remove(plan)

    def boundary(
        self, front: int, before: int, streams: Container[StreamClock] | None = None
    ) -> int:
        """Return the first instant of the engine, or of `streams`, at which a plan emits all.

        If it is not before another, that.
        """
        result = [
            (time.at(front) // slide + 1) * slide + (time.lag if streams is None else 0)
            for plan in (() if front == NEVER else self.repeating)
            if not (self._skip_idle and plan.idle)
            for time, slide in plan.slides
            if streams is None or time in streams
        ]
        return min([before, *result])


class PlanRegistry:
    """All plans.

    Attributes:
        early: those to flush before rows come in, too.
        ticking: plans that are checked between elements.
        repeating: deliveries that emit at every tick.
        exceeded: plans whose joins made too many rows, and whose queries are to be stopped.
    """

    def __init__(
        self,
        windows: WindowRegistry,
        shared: Shared,
        watermark: Watermark,
    ) -> None:
        settings = shared.settings
        self.exceeded: list[Plan] = []
        self.plans: dict[Plan, None] = {}
        self._holders = HoldingPlans(windows.touched)
        self.holding, self.early = self._holders.holding, self._holders.early
        self.awake: list[Delivery] = []
        self.ticking = TickingPlans(skip_idle=settings.skip_idle)
        self.repeating: list[Delivery] = []
        self.phase = Phase()
        self.fusion = Fusion(
            self.plans, self.phase, settings.kernel, reorders=bool(settings.lateness)
        )
        self._windows = windows
        self._static = shared.static
        self._shared_rows = SharedRows()
        self._dictionary = shared.dictionary
        self._share = settings.share
        self._context = PlanContext(
            shared, windows, self._shared_rows, shared.environment, self.exceeded.append
        )
        # Numbers tell instances apart, too; they never meet a term.
        self._watermark = watermark
        self._owners: dict[Plan, dict[int, RegisteredQuery]] = {}
        self._plan_of: dict[Delivery, Plan] = {}
        self._templates: dict[object, list[MemberPlan]] = {}
        self._known_as: dict[Plan, object] = {}

    def add(self, registered: RegisteredQuery, policy: Semantics) -> None:
        """Give a query a plan, shared with equal ones (but for constants) if it feeds no stream.

        Raises:
            UnsupportedContinuousQueryError: it cannot be run.
        """
        # Who emits everything emits also that there is nothing: of one plan it could not be told
        # whose result has changed.
        query = registered.query
        alone = registered.stream is not None or policy.relation in ("rstream", "answer")
        if alone or not self._share:
            self._new_plan(registered, query, policy, frozenset())
            return
        template = registered.template = template_of(query, policy)
        key = (template.key, policy)
        if not self._join_members(registered, policy, template, key):
            plan = self._new_plan(registered, query, policy, frozenset())
            self._known_as[plan] = key
            self._templates.setdefault(key, []).append(MemberPlan(template, None, plan))

    def _join_members(
        self, registered: RegisteredQuery, policy: Semantics, template: Template, key: object
    ) -> bool:
        """Make a query an instance of a plan of similar ones, if there are any.

        Unused plans are shared as they are; later one plan is made for all new queries.
        """
        members = self._templates.get(key)
        if not members:
            return False
        for first, numbers, plan in members:
            takes = plan.unused and not (numbers is None and plan.delivery.taken)
            if (plan.opens or takes) and set(differing(first, template)) <= set(numbers or ()):
                self._add_instance(registered, plan, template, numbers or ())
                return True
        # As long as nothing has come, the one that is there already stays the only other one.
        fresh = all(each.numbers is None or each.plan.unused for each in members)
        partner: tuple[int, ...] = next(
            (
                result
                for first, numbers, plan in members
                if numbers is None and plan.unused and (result := differing(first, template))
            ),
            (),
        )
        different = set(partner)
        opens = not (fresh and partner)
        if opens:
            for first, numbers, _ in members:
                different.update(differing(first, template), numbers or ())
            different = different - {EQUAL} or {*template.later}
        if not different:
            return False
        # What has come remains in groups and orders: later ones begin anew, until these go.
        opens = opens and template.opens(different)
        lifted = tuple(sorted(different))
        query, variables = common_query(registered.query, lifted)
        shared = self._new_plan(None, query, policy, variables, opens=opens)
        members.append(MemberPlan(template, lifted, shared))
        self._known_as[shared] = key
        self._add_instance(registered, shared, template, lifted)
        return True

    def _new_plan(
        self,
        owner: RegisteredQuery | None,
        query: ContinuousQuery,
        policy: Semantics,
        lifted: frozenset[Any],
        *,
        opens: bool = False,
    ) -> Plan:
        delivery = Delivery(policy, self.awake.append, self.phase)
        number = self._watermark.next()
        dataset = self._dataset(query)
        planned = QueryPlan(query, dataset, policy, number, lifted, opens)
        plan = Plan(planned, self._context, delivery)
        try:
            plan.start()
            plan.work.check()
        except (EngineLimitError, LimitError) as error:
            plan.stop()
            self.exceeded[:] = [each for each in self.exceeded if each is not plan]
            if plan.work.failure is not None:
                raise ended_by(plan.work) from plan.work.failure
            raise JoinLimitError(str(error)) from None
        self._owners[plan] = {}
        if owner is not None:
            self._own(owner, plan, number)
        self.plans[plan] = None
        self._plan_of[delivery] = plan
        self._holders.add(plan)
        self.ticking.add(plan)
        self.fusion.added(plan)
        if delivery.repeats:
            self.repeating.append(delivery)
        return plan

    def _dataset(self, query: ContinuousQuery) -> Dataset:
        clause = query.query.dataset
        return Dataset(self._static, clause.default, clause.named)

    def _own(self, owner: RegisteredQuery, plan: Plan, number: int) -> None:
        owner.plan = plan
        owner.number = number
        owners = self._owners[plan]
        if owners:
            # They select or construct the same from their solutions.
            owner.made = next(iter(owners.values())).made
        else:
            query, schema, dictionary = owner.query.query, plan.schema, self._dictionary
            feeds = owner.stream is not None
            if query.form == "DESCRIBE":
                dataset = self._dataset(owner.query)
                owner.made = Describer(query, schema, dictionary, dataset, feeds=feeds).made
            else:
                again = plan.delivery.whole
                owner.made = RowMaker(query, schema, dictionary, feeds=feeds, again=again).made
        owners[number] = owner

    def _add_instance(
        self, owner: RegisteredQuery, plan: Plan, template: Template, numbers: tuple[int, ...]
    ) -> None:
        number = self._watermark.next()
        if plan.lifted:
            plan.add_instance(template.instance(number, numbers))
        self._own(owner, plan, number)

    def remove(self, registered: RegisteredQuery) -> None:
        """Remove a query from its plan; a plan without queries ends."""
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
        self._end(plan)

    def _end(self, plan: Plan) -> None:
        plan.stop()
        del self.plans[plan], self._owners[plan], self._plan_of[plan.delivery]
        self._holders.remove(plan)
        self.ticking.remove(plan)
        self.fusion.removed(plan)
        for deliveries in (self.awake, self.repeating):
            if plan.delivery in deliveries:
                deliveries.remove(plan.delivery)
        key = self._known_as.pop(plan, None)
        members = self._templates.get(key, [])
        members[:] = [each for each in members if each.plan is not plan]
        if not members:
            self._templates.pop(key, None)
        for window, _ in plan.leaves.subscriptions:
            if not window.consumers:
                self._windows.drop(window)
        for rows, _ in plan.leaves.static:
            self._shared_rows.drop(rows)

    def merge(self) -> None:
        """Merge plans of the same kind whose windows hold the same by now."""
        for plan in self.plans:
            plan.settle()
        for members in tuple(self._templates.values()):
            if len(members) < 2:
                continue
            one = members[-1]
            for other in reversed(members[:-1]):
                one = self._merged(other, one) or other

    def _merged(self, older: MemberPlan, newer: MemberPlan) -> MemberPlan | None:
        """Merge two plans, where it makes no difference to their queries."""
        few, many = older, newer
        if len(self._owners[few.plan]) > len(self._owners[many.plan]):
            few, many = many, few
        if not many.takes(few):
            few, many = many, few
        if not newer.plan.follows or not many.takes(few) or not older.plan.caught_up(newer.plan):
            return None
        for number, owner in self._owners[few.plan].items():
            if many.plan.lifted:
                assert owner.template is not None
                many.plan.adopt(owner.template.instance(number, many.numbers or ()))
            self._own(owner, many.plan, number)
        self._owners[few.plan] = {}
        self._end(few.plan)
        return many

    def stream_came(self, name: Term) -> None:
        """Add a stream to the plans that read every stream."""
        for plan in [each for each in self.plans if each.leaves.unions]:
            self.ticking.remove(plan)
            plan.stream_came(name)
            self.ticking.add(plan)
            self._holders.grown(plan)

    def stream_gone(self, name: Term) -> None:
        for plan in self.plans:
            if plan.leaves.unions:
                self.ticking.remove(plan)
                plan.stream_gone(name)
                self.ticking.add(plan)
        self._windows.drop_idle()

    def drop_idle(self) -> None:
        self._windows.drop_idle()
        self._shared_rows.drop_idle()

    def flush(self, due: Callable[[Plan], bool] | None) -> None:
        """Let plans send held changes: those that are `due`, or (``None``) all."""
        if due is not None:
            self._holders.flush_due(due)
            return
        for flush in self.holding:
            flush()

    def changing(self, change: GraphChange) -> Callable[[], None]:
        """Prepare a change of static graphs; call the result afterwards."""
        finishing = self._shared_rows.changing(change)
        plans = [plan.changing(change) for plan in self.plans]

        def finish() -> None:
            for each in finishing:
                tell(each())
            for finish_plan in plans:
                finish_plan()

        return finish

    def pending(self) -> bool:
        """True if a plan that emits differences has some that were not emitted."""
        return any(self._plan_of[each].nets for each in self.awake)

    def owners(self, plan: Plan) -> tuple[RegisteredQuery, ...]:
        return tuple(self._owners[plan].values())

    def emissions(
        self, due: Callable[[Plan], bool] | None
    ) -> list[tuple[Sequence[RegisteredQuery], Sequence[tuple[Solution, int]], bool]]:
        """Take the due emissions: queries, solutions, and whether these left the result."""
        waiting = []
        result: list[tuple[Sequence[RegisteredQuery], Sequence[tuple[Solution, int]], bool]] = []
        for delivery in self.awake:
            plan = self._plan_of[delivery]
            if due is not None and not due(plan):
                waiting.append(delivery)
                continue
            solutions, removed = delivery.take()
            if not solutions and delivery.silent:
                continue
            if not plan.affords(solutions):
                continue
            try:
                plan.sort(solutions)
            except Exception as error:  # noqa: BLE001 - it ends its queries, and no others
                plan.work.fail(error)
                continue
            owners = self._owners[plan]
            if not plan.lifted:
                result.append((tuple(owners.values()), solutions, removed))
                continue
            column = plan.schema.index(INSTANCE)
            for numbers, own in shares_of(solutions, column):
                queries = [owners[number] for number in numbers if number in owners]
                if queries:
                    result.append((queries, own, removed))
        self.awake[:] = waiting
        return result
