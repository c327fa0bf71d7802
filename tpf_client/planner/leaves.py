"""The leaves of a query's dataflow: basic graph patterns over fragments.

Patterns are joined in the order of their counts, beginning with the seed or the smallest fragment,
and never, where it can be helped, with a pattern that shares no variable with what is there. Each
further pattern is looked up by the keys that there are; `FragmentLookup` finds out by itself
whether that takes fewer requests than reading the fragment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from annotations.clock import Clock
from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.node import EarlyFilter, Input, Meter, Node
from tpf_client.dataflow.operators.hash_join import HashJoin
from tpf_client.dataflow.operators.lookup_join import LookupJoin
from tpf_client.planner.demand import Demand, Need, demand_of
from tpf_client.planner.driver import Task
from tpf_client.planner.evaluation import Evaluation, Leaf, Lookups
from tpf_client.planner.extraction import extractor
from tpf_client.planner.key_answers import LookupReport
from tpf_client.planner.live_fragment import LiveFragment, QuadChanges, canonical_pattern
from tpf_client.planner.lookup import FragmentLookup
from tpf_client.planner.source import Estimate, Source
from tpf_client.planner.star import Star
from tpf_client.sparql.algebra import Pattern, variables_of_quad
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.rewrite.join_order import greedy_order

UNKNOWN = float("inf")

SPREAD = 1.5
"""How many subjects are taken to have an object in common."""


@dataclass(slots=True)
class Step:
    """One step of a plan, for explanations.

    Args:
        pattern: what is matched.
        how: ``scan`` (the whole fragment) or ``lookup`` (by keys).
        estimate: what its first page told.
        lookup: what the lookup did, where it is one.
        output: counts what came out.
        fragment: what a scan reads, as soon as it does.
        part: which basic graph pattern it belongs to, by number; a step takes what the step before
            it in the same part gives.
        fed: whether the first step of its part takes what other parts give.
    """

    pattern: QuadPattern
    how: str
    estimate: Estimate
    lookup: LookupReport | None
    output: "TimedMeter | None"
    fragment: LiveFragment | None = None
    part: int = 1
    fed: bool = False


class TimedMeter(Meter):
    """A meter that knows when it counted last.

    Args:
        node: what is counted.
        clock: tells the time.
    """

    def __init__(self, node: Node, clock: Clock) -> None:
        self._clock = clock
        self.last: datetime | None = None
        super().__init__(node)

    def _count(self, solution: Solution, count: int) -> None:
        super()._count(solution, count)
        self.last = self._clock.now()


class FragmentLeaves:
    """Provides the matches of basic graph patterns (see `tpf_client.dataflow.node.Leaves`).

    Args:
        evaluation: the query.
        source: who answers; by default the source of the query.
        explain: whether to count what comes out of each step.
    """

    def __init__(
        self, evaluation: Evaluation, source: Source | None = None, *, explain: bool = False
    ) -> None:
        self._source = source or evaluation.source
        self.plan: list[Step] = []
        self._evaluation = evaluation
        self._explain = explain
        self._estimates: dict[QuadPattern, Estimate] = {}
        self._stars: dict[tuple[str, str], Star] = {}
        self._part = 0
        self.pattern: Pattern | None = None
        """What is evaluated, as it was rewritten, as soon as it is planned."""
        self._fed = False

    def prepare(self, patterns: Iterable[QuadPattern]) -> None:
        """Learn how much there is of all these patterns, in one round of requests.

        To be called with all patterns of a query before the first `bgp`.

        Raises:
            SourceError: a fragment could not be had.
        """
        patterns = tuple(patterns)
        names = [
            name
            for name in dict.fromkeys(canonical_pattern(pattern) for pattern in patterns)
            if name not in self._estimates
        ]
        if not names:
            return
        driver = self._evaluation.driver
        driver.run(self._source.begin())
        errors: list[BaseException] = []

        def learn(name: QuadPattern) -> Task[None]:
            told = yield from self._source.estimate(name)
            self._estimates[name] = self._evaluation.lengths.corrected(self._source, name, told)

        for name in names:
            driver.spawn(learn(name), lambda _: None, errors.append)
        while not errors and any(name not in self._estimates for name in names):
            driver.step()
        if errors:
            raise errors[0]
        self._gather_stars(patterns)

    def estimate(self, pattern: QuadPattern) -> Estimate:
        """How much there is of a pattern.

        Raises:
            SourceError: its fragment could not be had.
        """
        self.prepare([pattern])
        return self._estimates[canonical_pattern(pattern)]

    def expected(self, patterns: Sequence[QuadPattern]) -> float:
        """About how many solutions these patterns have: as many as the smallest has matches."""
        counts = [self.estimate(pattern).count for pattern in patterns]
        return min((UNKNOWN if each is None else each for each in counts), default=1)

    def mark(self) -> int:
        """A moment, for `limit`, `not_hurried` and `at_rest`."""
        return len(self._evaluation.leaves)

    def limit(self, since: int, missing: Callable[[], int | None]) -> None:
        """What was built since then is needed only until no solution is missing."""
        for each in self._evaluation.leaves[since:]:
            each.need.limit(missing)

    def not_hurried(self, since: int) -> None:
        """Nothing comes out before all of what was built since then has come in."""
        for each in self._evaluation.leaves[since:]:
            each.need.hurried = False

    def spare(self, since: int, pattern: Pattern, node: Node, environment: Environment) -> None:
        """What was built since then is for a SELECT, which may not need all of it."""
        demand = None if self._evaluation.live else demand_of(pattern, environment)
        if demand is not None:
            demand.attach(node)
            for each in self._evaluation.leaves[since:]:
                if each.choose is not None:
                    each.choose(demand)

    def known(self, since: int) -> tuple[Schema, Callable[[Solution], bool]] | None:
        """Tells of a single seed whether everything has come that was built for it since then."""
        leaves = self._evaluation.leaves[since:]
        for each in leaves:
            each.need.decides = True
        steps = [each.found for each in leaves if each.found is not None]
        seeds = [each.seed for each in leaves if each.seed is not None]
        if self._evaluation.live or len(seeds) != 1 or len(steps) != len(leaves):
            return None

        def all_came(solution: Solution, step: int = 0) -> bool:
            if step == len(steps):
                return True
            found = steps[step](solution)
            return found is not None and all(all_came(each, step + 1) for each in found)

        return (seeds[0], all_came) if leaves[0].seed is not None else None

    def at_rest(self, since: int) -> Callable[[], bool]:
        """Tells whether what was built since then, until now, has answered all it was asked."""
        rests = [each.at_rest for each in self._evaluation.leaves[since:]]
        live = self._evaluation.live
        return lambda: not live and all(rest() for rest in rests)

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        """The solutions of these patterns, joined; those that can meet the seed, if any."""
        return self.filtered_bgp(patterns, seed, ())

    def filtered_bgp(
        self, patterns: Sequence[QuadPattern], seed: Node | None, conditions: Sequence[EarlyFilter]
    ) -> Node:
        """The same, filtered before each step by the conditions that can be tested then."""
        self.prepare(patterns)
        # Those of a SERVICE are in the same plan.
        self._part = self.plan[-1].part + 1 if self.plan else 1
        self._fed = seed is not None
        waiting = list(conditions)
        remaining = dict.fromkeys(patterns)
        current = None if seed is None else _tested(seed, waiting)
        # What is looked up for a seed depends on all that may have brought the seed.
        after = [] if seed is None else list(self._evaluation.lookups)
        before = len(self._evaluation.lookups)
        # How many values a variable can have at most; of what the seed brings nobody knows.
        bounds: dict[Variable, int] = {}
        joined: list[QuadPattern] = []
        rows, spread = UNKNOWN if seed is None else seed.expected, 1.0
        known = () if current is None else current.schema
        cost = partial(self._cost, rows)
        for pattern in greedy_order(remaining, variables_of_quad, cost, known):
            shared = () if current is None else _shared(pattern, current)
            if current is None:
                current = self._scan(pattern)
            elif not shared:
                current = self._add(HashJoin(current, self._scan(pattern)))
            else:
                after += self._evaluation.lookups[before:]
                before = len(self._evaluation.lookups)
                current = self._lookup(
                    pattern, current, after, waiting, bounds, (rows, spread), first=not joined
                )
            if seed is None and not joined:
                count = self.estimate(pattern).count
                rows = UNKNOWN if count is None else count
            elif len(shared) == len(variables_of_quad(pattern)):
                # What adds no variable is a filter.
                rows = UNKNOWN
            elif pattern.subject not in shared:
                # A subject has a property once, an object more often.
                spread *= SPREAD
            joined.append(pattern)
            self._bound(pattern, bounds)
            before_tests, current = current, _tested(current, waiting)
            if current is not before_tests:
                rows = UNKNOWN
        assert current is not None
        return current

    def _cost(
        self, seeds: float, pattern: QuadPattern, known: set[Variable]
    ) -> tuple[float, bool, int]:
        """Of what is connected, the pattern with the fewest matches is joined first.

        Of as many, what changes again and again comes last: a change goes through what follows.

        Args:
            seeds: how many solutions the first pattern is looked up for; infinite: nobody knows.
            pattern: what is joined.
            known: the variables that are bound before.
        """
        estimate = self.estimate(pattern)
        free = sum(is_variable(term) and term not in known for term in pattern)
        changing = self._evaluation.live and bool(estimate.dynamic)
        count = UNKNOWN if estimate.count is None else estimate.count
        if pattern.subject in known and not is_variable(pattern.predicate):
            # A subject has a property once.
            count = min(count, seeds)
        return count, changing, free

    def _scan(self, pattern: QuadPattern) -> Node:
        evaluation = self._evaluation
        estimate = self.estimate(pattern)
        star = self._stars.get((pattern.subject, pattern.graph))
        if star is not None:
            star.members.pop(pattern, None)
        node = Input(variables_of_quad(pattern), monotone=not evaluation.live)
        extract = extractor(pattern, evaluation.dictionary)

        def receive(changes: QuadChanges) -> None:
            emit = node.emit
            for quad, count in changes:
                row = extract(quad)
                if row is not None:
                    emit(row, count)

        step = Step(pattern, "scan", estimate, None, None)
        need, turn = Need(), len(evaluation.leaves)
        evaluation.leaves.append(
            Leaf(need, lambda: step.fragment is not None and step.fragment.loaded)
        )

        def begin() -> None:
            step.fragment = evaluation.subscribe(
                pattern,
                receive,
                dynamic=bool(estimate.dynamic),
                source=self._source,
                enough=need.enough,
                limited=need.limited,
                pages=None if estimate.pages is None else estimate.pages + 1,
                turn=turn,
                unlabelled=evaluation.unlabelled(self._source, pattern, estimate),
            )

        evaluation.when_running(begin)
        return self._add(node, step)

    def _lookup(
        self,
        pattern: QuadPattern,
        left: Node,
        after: Iterable[Lookups],
        waiting: Sequence[EarlyFilter],
        known: Mapping[Variable, int],
        rows: tuple[float, float],
        *,
        first: bool,
    ) -> Node:
        evaluation, estimate = self._evaluation, self.estimate(pattern)
        keys = _shared(pattern, left)
        group = (pattern.subject, pattern.graph)
        # A continuous query asks for what changes again and again: alone, that is less.
        star = self._stars.get(group) if not evaluation.live else None
        if star is not None and (keys != (pattern.subject,) or pattern not in star.members):
            star.members.pop(pattern, None)
            star = None
        bounds = [known.get(name) for name in keys]
        need = Need()
        source = FragmentLookup(
            evaluation,
            pattern,
            keys,
            estimate,
            star=star,
            source=self._source,
            bound=bounds[0] if len(bounds) == 1 else None,
            expected=rows[0],
            spread=rows[1],
            after=after,
            need=need,
            filtered=any(
                each.variables <= {*left.certain, *variables_of_quad(pattern)} for each in waiting
            ),
            doubtful=bool(waiting),
        )
        join = LookupJoin(left, source, keys, source.schema, monotone=not evaluation.live)
        seed = left.schema if first else None
        found = partial(join.found, answered=source.answered)

        def choose(demand: Demand) -> None:
            source.choice = demand.choice(left.schema, join.left_of)

        evaluation.leaves.append(Leaf(need, source.at_rest, found, seed, choose))
        return self._add(join, Step(pattern, "lookup", estimate, source.report, None))

    def _bound(self, pattern: QuadPattern, bounds: dict[Variable, int]) -> None:
        """There are at most as many values of a variable as matches of a pattern with it."""
        count = self.estimate(pattern).count
        if count is not None:
            for name in variables_of_quad(pattern):
                bounds[name] = min(count, bounds.get(name, count))

    def _gather_stars(self, patterns: Iterable[QuadPattern]) -> None:
        """Learn which patterns ask for properties of the same subject."""
        for pattern in patterns:
            if not is_variable(pattern.subject) or is_variable(pattern.predicate):
                continue
            if is_variable(pattern.graph) or pattern.object == pattern.subject:
                continue
            star = self._stars.setdefault(
                (pattern.subject, pattern.graph),
                Star(pattern._replace(predicate=Variable("?.p"), object=Variable("?.o")), {}),
            )
            star.members[pattern] = self.estimate(pattern).pages

    def _add(self, node: Node, step: Step | None = None) -> Node:
        self._evaluation.dataflow.add(node)
        if step is not None:
            step.part, step.fed = self._part, self._fed
            if self._explain:
                step.output = TimedMeter(node, self._evaluation.driver.fetcher.clock)
            self.plan.append(step)
        return node


def _tested(node: Node, waiting: list[EarlyFilter]) -> Node:
    """The node after those conditions that can be tested on it; they are taken out."""
    for each in [each for each in waiting if each.variables <= node.certain]:
        waiting.remove(each)
        node = each.attach(node)
    return node


def _shared(pattern: QuadPattern, current: Node) -> tuple[Variable, ...]:
    return tuple(name for name in variables_of_quad(pattern) if name in current.schema)
