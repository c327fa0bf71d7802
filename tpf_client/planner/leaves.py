"""The leaves of a query's dataflow: basic graph patterns over fragments.

Patterns are joined by count, from the seed or the smallest fragment; the others are looked up by
key, or read whole.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from annotations.clock import Clock
from annotations.terms import QuadPattern, Variable, is_variable
from tpf_client.dataflow.build.join_order import SELECTIVITY
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.node import Dataflow, EarlyFilter, Input, Leaves, Meter, Node
from tpf_client.dataflow.operators.hash_join import HashJoin, LookupJoin
from tpf_client.planner.demand import Choice, Demand, Need, demand_of
from tpf_client.planner.driver import URGENT, Task
from tpf_client.planner.evaluation import Evaluation, Leaf, Lookups, MissingEstimates
from tpf_client.planner.key_answers import KeyAnswers, LookupReport, extractor
from tpf_client.planner.live_fragment import (
    FragmentReading,
    LiveFragment,
    QuadChanges,
    canonical_pattern,
)
from tpf_client.planner.source import Estimate, Source, Star
from tpf_client.sparql.algebra import Pattern, variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order

# Lookups of keys in fragments: key by key, in blocks of keys, or the whole fragment.
#
# Which takes the fewest requests is known only when the keys are. So keys are held back until what
# brings them has arrived, unless it is clear before: where those that wait are already more than
# the whole fragment is worth, or where there cannot be so many. A few go before, so that the first
# solutions need not wait (see `FragmentLookup.scout`). A query that wants only a few solutions
# asks for few keys at once, the more the more it has asked for, and gives up on keys after as many
# requests as the whole fragment takes (at most twice the requests of the better choice, as in ski
# rental), or after a small part of them where a filter follows that lets nothing through. So does
# one for which some of the keys may turn out not to matter (see `demand`).

_WINDOW = 32
"""Requests under way at a time, at most, where only a few solutions are wanted."""

CAUTION = 16
"""The part of the requests for whole fragments that is risked, so that the first solutions come
soon: beside one where all are wanted, and all together where a limit may never be met."""

EARLY = 2
"""How many times more keys than pages must be expected for the whole fragment to be read before
they have come."""

PATIENCE = 2
"""How many times the requests for a whole fragment are risked for keys that come by and by."""


@dataclass(frozen=True, slots=True)
class ExpectedKeys:
    """The keys that a lookup will have to answer.

    Args:
        star: may replace the pattern, where the key is its subject.
        bound: the most keys by counts, if known; about `expected`, up to `spread` times as many.
        after: the lookups that bring keys.
        filtered: a filter follows immediately.
        doubtful: a filter may drop results.
    """

    star: Star | None = None
    bound: int | None = None
    expected: float = math.inf
    spread: float = 1.0
    after: Iterable[Lookups] = ()
    filtered: bool = False
    doubtful: bool = False


class FragmentLookup(KeyAnswers):
    """Answer keys from the fragments of a pattern; a `LookupSource`.

    Attributes:
        choice: the keys that matter; ``None``: all.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        pattern: QuadPattern,
        keys: Schema,
        estimate: Estimate,
        coming: ExpectedKeys,
        *,
        source: Source | None = None,
        need: Need | None = None,
    ) -> None:
        super().__init__(evaluation, pattern, keys, estimate, coming.star, source, need)
        self.after = frozenset(coming.after)
        self.choice: Choice | None = None
        self._coming = coming
        self._tried = 0
        self._scouts = 0
        self._scouting: list[LiveFragment] = []
        self._missing: int | None = None
        self._bet: int | None = None
        """How many pages are read in place of keys, which are asked for then; 0: they are."""
        evaluation.lookups.append(self)

    def choose(self, choice: Choice | None) -> None:
        """Ask only for the keys that matter; ``None``: for all."""
        self.choice = choice

    @property
    def patient(self) -> bool:
        """True if other results may save it requests."""
        return self.choice is not None

    def pump(self, *, complete: bool) -> bool:
        """Request waiting keys, or the whole fragment where that takes fewer requests."""
        if self._index is not None and self._given_up():
            estimate = self._estimate
            self._back_to_keys()
            if self._bet:
                self._estimate, self._bet = estimate, 0
        waiting = len(self._waiting)
        if waiting and self._star is not None and self._star.asked:
            self._look_up_known(self._star)
        self._ask_well(complete)
        return len(self._waiting) < waiting

    def _ask_well(self, complete: bool) -> None:
        if not self._waiting or self._need.met:
            return
        if self._estimate.pages == 0 or self._evaluation.has(self._pattern, self._source):
            self._read_whole()
            return
        if self.choice is not None:
            if not complete or self._ask_chosen(self.choice):
                return
            # It would not spare much: ask for everything.
            self.choice = None
        pages, bound = self._whole_cost(), self._coming.bound
        eager = self._need.limited and self._promising(pages)
        # What a continuous query asked for long ago costs nothing; what it holds is asked again.
        asked = len(self._batches) if self._evaluation.live else self.report.requests
        if pages is not None:
            next_ones = self._requests(len(self._waiting))
            if eager:
                next_ones = min(next_ones, self._free())
                if not next_ones:
                    # What is under way may be enough.
                    return
            # Keys that come one after the other, as on a path, may soon come to an end.
            spent = asked if eager or self._evaluation.live else asked - (PATIENCE - 1) * pages
            if max(spent, 0) + next_ones >= max(pages, 1):
                self._read_whole()
                return
        if eager and self._by_pages(pages):
            self._read_whole()
        elif eager:
            self._ask_some()
        elif complete:
            self._repack()
            self._ask(list(self._waiting))
        elif pages is not None and self._surely_whole(pages):
            self._read_whole()
        elif pages is None or (bound is not None and self._requests(bound) <= pages):
            full = len(self._waiting) // self._estimate.block * self._estimate.block
            self._ask(list(self._waiting)[:full])

    def _promising(self, pages: int | None) -> bool:
        """Behind a filter, risk only a part of the cost of all fragments, growing with success."""
        missing, limit, asked = self._need.missing, self._missing, self.report.requests
        doubtful = self._coming.doubtful or self._need.doubtful
        if not doubtful or pages is None or missing is None or limit is None:
            return True
        if missing == limit:
            limited = [each for each in self._evaluation.leaves if each.need.limited]
            whole = sum(each.whole for each in limited)
            return sum(each.requests() for each in limited) * CAUTION <= whole
        return asked * missing <= pages * (limit - missing + 1)

    def _by_pages(self, pages: int | None) -> bool:
        """True where pages probably meet a limit with fewer requests than keys.

        Partners may lie anywhere: a part of each fragment has the product of these parts of all
        solutions.
        """
        missing, wanted, count = self._need.missing, self._missing, self._estimate.count
        if self._bet is not None or not pages or not missing or not count or self._need.decides:
            return False
        if self._evaluation.reads(self._pattern, self._source) and all(
            each.rows for each in self._waiting.values()
        ):
            # It is read anyway, and has matches of all that came from it.
            return True
        parts = len(self._evaluation.learned.estimates)
        if self._evaluation.live or self._estimate.block > 1 or parts < 2:
            return False
        keys = missing
        if wanted is not None and missing < wanted:
            keys = math.ceil(missing * self._tried / (wanted - missing))
        elif self._coming.doubtful or self._need.doubtful:
            return False
        keys = min(keys, len(self._waiting))
        expected = self._coming.expected
        left = max(min(expected, count), 1)
        most = max(count, expected if expected < math.inf else 0)
        read = most ** (1 - 1 / parts) * missing ** (1 / parts)
        if read > left:
            # All of it is there before: the others must make up for that.
            read = most * (missing / left) ** (1 / (parts - 1))
        if min(read * parts / (count / (pages + 1)), pages) >= keys:
            return False
        self._bet = keys
        return True

    def _enough(self) -> bool:
        """See `KeyAnswers`; so it is where pages bring less than keys would."""
        whole = self.report.whole
        lost = whole is not None and 0 < (self._bet or 0) < whole.pages
        return lost or super()._enough()

    def _surely_whole(self, pages: int) -> bool:
        least = EARLY * pages * self._estimate.block
        return least <= self._coming.expected < math.inf and not self._evaluation.live

    def scout(self) -> bool:
        """Request the first keys at once, for early solutions; return success.

        Not where the whole fragment will probably be read, unless absence must be shown. One by
        one, doubled after failures.
        """
        need, waiting = self._need, self._waiting
        if not waiting or not need.hurried or need.limited or not self._evaluation.hurried:
            return False
        if self._estimate.block > 1 or self.choice is not None or self.scouts():
            return False
        pages = self._estimate.pages or 0
        unlikely = pages < self._coming.expected * self._coming.spread < math.inf
        risk = min(1 + pages // CAUTION - self._scouts, self._scouts + 1)
        if risk <= 0 or (unlikely and not need.decides):
            return False
        keys = list(waiting)[:risk]
        self._scouts += len(keys)
        self._ask(keys, URGENT)
        asked = (self._entries[key].batch for key in keys)
        self._scouting += [each.fragment for each in asked if each and each.fragment is not None]
        return True

    def scouts(self) -> list[LiveFragment]:
        """Return the fragments being read for the first keys."""
        self._scouting = [each for each in self._scouting if each.loading]
        return self._scouting

    def _ask_chosen(self, choice: Choice) -> bool:
        keys = choice.needed(self._waiting)
        if not keys:
            return True
        block = self._estimate.block
        requests = self._requests(choice.enough(keys))
        pages = self._whole_cost()
        whole = math.inf if pages is None else max(pages, 1) - self.report.requests
        if 2 * requests > min(whole, self._requests(len(keys))):
            return False
        self._ask(keys[: requests * block])
        return True

    def _whole_cost(self) -> int | None:
        star = self._star
        if star is None or not star.worthwhile or not is_variable(self._pattern.object):
            # A pattern with a constant object leaves fewer subjects for the rest of its star.
            return self._estimate.pages
        whole, own = star.whole_cost(), self._estimate.pages
        if not self._coming.filtered or whole is None or own is None:
            return whole
        # So does one whose values a filter tests: how many is not known.
        left = self._requests(math.ceil(len(self._waiting) * SELECTIVITY))
        return own + min(whole - own, left)

    def _ask_some(self) -> None:
        """Requests under way when a limit is met are in vain."""
        room = self._free()
        # Those that had a match on the first page have led to something already.
        keys = sorted(self._waiting, key=lambda key: bool(self._waiting[key].rows))
        keys = keys[: room * self._estimate.block]
        self._tried += len(keys)
        self._ask(keys)

    def _free(self) -> int:
        loading = sum(b.fragment is not None and b.fragment.loading for b in self._batches)
        return max(self._room(loading) - loading, 0)

    def _room(self, loading: int) -> int:
        missing = self._need.missing
        self._missing = self._missing or missing
        if missing is not None and self._missing is not None and missing < self._missing:
            # As many as it takes, if they bring as much as those before.
            answered = max(self._tried - loading * self._estimate.block, 1)
            keys = math.ceil(answered * missing / (self._missing - missing))
            return min(self._requests(keys), 2 * self._requests(answered), _WINDOW)
        return min(max(math.isqrt(self._requests(self._tried)), 1), _WINDOW)


UNKNOWN = float("inf")

SPREAD = 1.5
"""How many subjects are taken to have an object in common."""


@dataclass(slots=True)
class Step:
    """One step of a plan, for explanations.

    Args:
        how: ``scan`` (the whole fragment) or ``lookup`` (by keys).
        part: number of its basic graph pattern; each step feeds the next one in it.
        fed: the part's first step takes input from other parts.
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
    """A meter with the time of its last count."""

    def __init__(self, node: Node, clock: Clock) -> None:
        self._clock = clock
        self.last: datetime | None = None
        super().__init__(node)

    def _count(self, solution: Solution, count: int) -> None:
        super()._count(solution, count)
        self.last = self._clock.now()


class FragmentLeaves(Leaves):
    """Match basic graph patterns (see `tpf_client.dataflow.node.Leaves`).

    `explain` counts each step's output; `plan` receives the steps.
    """

    counts = True

    def __init__(
        self,
        evaluation: Evaluation,
        source: Source | None = None,
        *,
        explain: bool = False,
        plan: list[Step] | None = None,
    ) -> None:
        self._source = source or evaluation.source
        self.plan: list[Step] = [] if plan is None else plan
        evaluation.built.append(self.plan)
        self._evaluation = evaluation
        self._explain = explain
        self._estimated: set[QuadPattern] = set()
        self._stars: dict[tuple[str, str], Star] = {}
        self._part = 0
        self._fed = False

    def prepare(self, patterns: Iterable[QuadPattern]) -> None:
        """Require estimates of all these patterns, in one round of requests."""
        patterns = tuple(patterns)
        names = {canonical_pattern(pattern) for pattern in patterns} - self._estimated
        if not names:
            return
        estimates = self._evaluation.learned.estimates
        missing = [
            name
            for name in dict.fromkeys(map(canonical_pattern, patterns))
            if name in names and (self._source, name) not in estimates
        ]
        if missing:
            raise MissingEstimates(partial(self._learn, missing))
        self._estimated |= names
        self._gather_stars(patterns)

    def _learn(
        self,
        names: Sequence[QuadPattern],
        done: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        driver, missing = self._evaluation.driver, set(names)
        estimates, lengths = self._evaluation.learned.estimates, self._evaluation.lengths

        def learn(name: QuadPattern) -> Task[QuadPattern]:
            estimate = yield from self._source.estimate(name)
            estimates[self._source, name] = lengths.corrected(self._source, name, estimate)
            return name

        def learned(name: QuadPattern) -> None:
            missing.remove(name)
            if not missing:
                done()

        def begun(_: object) -> None:
            for name in names:
                driver.spawn(learn(name), learned, failed)

        driver.spawn(self._source.begin(), begun, failed)

    def estimate(self, pattern: QuadPattern) -> Estimate:
        self.prepare([pattern])
        return self._evaluation.learned.estimates[self._source, canonical_pattern(pattern)]

    def expected(self, patterns: Sequence[QuadPattern]) -> float:
        counts = [self.estimate(pattern).count for pattern in patterns]
        return min((UNKNOWN if each is None else each for each in counts), default=1)

    def mark(self) -> int:
        return len(self._evaluation.leaves)

    def limit(
        self,
        since: int,
        missing: Callable[[], int | None],
        *,
        grows: bool = True,
        grows_but_for_absence: bool = True,
    ) -> None:
        """Need the nodes built since then only until no solution is missing."""
        leaves = self._evaluation.leaves[since:]
        if not grows and self._evaluation.live:
            if not grows_but_for_absence:
                return
            leaves = [each for each in leaves if not each.need.decides]
        elif not grows:
            missing = _while_sure(missing, self._evaluation.dataflow)
        for each in leaves:
            each.need.limit(missing, doubtful=not grows)

    def not_hurried(self, since: int) -> None:
        """Hold back what was built since then until all its input has come."""
        for each in self._evaluation.leaves[since:]:
            each.need.hold_back()

    def spare(self, since: int, pattern: Pattern, node: Node) -> None:
        """Let what was built since then serve a SELECT that may need less."""
        demand = None if self._evaluation.live else demand_of(pattern)
        if demand is not None:
            demand.attach(node)
            for each in self._evaluation.leaves[since:]:
                if each.choose is not None:
                    each.choose(demand)

    def seed_test(self, since: int) -> tuple[Schema, Callable[[Solution], bool]] | None:
        """Return a test of single seeds: has everything built since then come for it?"""
        leaves = self._evaluation.leaves[since:]
        for each in leaves:
            each.need.decide()
        steps = [each.results for each in leaves if each.results is not None]
        seeds = [each.seed for each in leaves if each.seed is not None]
        if self._evaluation.live or len(seeds) != 1 or len(steps) != len(leaves):
            return None

        def all_came(solution: Solution, step: int = 0) -> bool:
            if step == len(steps):
                return True
            solutions = steps[step](solution)
            return solutions is not None and all(all_came(each, step + 1) for each in solutions)

        return (seeds[0], all_came) if leaves[0].seed is not None else None

    def at_rest(self, since: int) -> Callable[[], bool]:
        """Return a test: has what was built since then answered all its requests?"""
        rests = [each.at_rest for each in self._evaluation.leaves[since:]]
        live = self._evaluation.live
        return lambda: not live and all(rest() for rest in rests)

    def bgp(self, patterns: Sequence[QuadPattern], seed: Node | None) -> Node:
        """Build the joined solutions of patterns, restricted by the seed, if any."""
        return self.filtered_bgp(patterns, seed, ())

    def filtered_bgp(
        self, patterns: Sequence[QuadPattern], seed: Node | None, conditions: Sequence[EarlyFilter]
    ) -> Node:
        """Build the same, with conditions tested as early as possible."""
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
        bound = () if current is None else current.schema
        cost = partial(self._cost, rows, waiting)
        for pattern in greedy_order(remaining, variables_of_quad, cost, bound):
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
        self,
        seeds: float,
        waiting: Sequence[EarlyFilter],
        pattern: QuadPattern,
        bound: set[Variable],
    ) -> tuple[float, bool, int]:
        """Matches, discounted by filters testable then; of equals, changing ones come last."""
        estimate = self.estimate(pattern)
        free = sum(is_variable(term) and term not in bound for term in pattern)
        changing = self._evaluation.live and bool(estimate.dynamic)
        count = UNKNOWN if estimate.count is None else estimate.count
        if pattern.subject in bound and not is_variable(pattern.predicate):
            # A subject has a property once.
            count = min(count, seeds)
        names = variables_of_quad(pattern)
        if any(each.variables <= {*bound, *names} for each in waiting):
            count *= SELECTIVITY
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
            Leaf(
                need,
                lambda: step.fragment is not None and step.fragment.loaded,
                whole=estimate.pages or 0,
            )
        )

        def begin() -> None:
            reading = FragmentReading(
                dynamic=bool(estimate.dynamic),
                enough=need.enough,
                limited=need.limited,
                pages=None if estimate.pages is None else estimate.pages + 1,
                turn=turn,
                unlabelled=evaluation.unlabelled(self._source, pattern, estimate),
            )
            step.fragment = evaluation.subscribe(pattern, receive, self._source, reading)

        evaluation.when_running(begin)
        return self._add(node, step)

    def _lookup(
        self,
        pattern: QuadPattern,
        left: Node,
        after: Iterable[Lookups],
        waiting: Sequence[EarlyFilter],
        most_values: Mapping[Variable, int],
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
        bounds = [most_values.get(name) for name in keys]
        need = Need()
        coming = ExpectedKeys(
            star=star,
            bound=bounds[0] if len(bounds) == 1 else None,
            expected=rows[0],
            spread=rows[1],
            after=after,
            filtered=any(
                each.variables <= {*left.certain, *variables_of_quad(pattern)} for each in waiting
            ),
            doubtful=bool(waiting),
        )
        source = FragmentLookup(
            evaluation, pattern, keys, estimate, coming, source=self._source, need=need
        )
        join = LookupJoin(left, source, keys, source.schema, monotone=not evaluation.live)
        seed = left.schema if first else None
        results_of = partial(join.results_of, answered=source.answered)

        def choose(demand: Demand) -> None:
            source.choose(demand.choice(left.schema, join.left_of))

        evaluation.leaves.append(
            Leaf(
                need,
                source.at_rest,
                results_of,
                seed,
                choose,
                min(estimate.pages or 0, rows[0] * rows[1]),
                lambda: source.report.requests,
            )
        )
        return self._add(join, Step(pattern, "lookup", estimate, source.report, None))

    def _bound(self, pattern: QuadPattern, bounds: dict[Variable, int]) -> None:
        count = self.estimate(pattern).count
        if count is not None:
            for name in variables_of_quad(pattern):
                bounds[name] = min(count, bounds.get(name, count))

    def _gather_stars(self, patterns: Iterable[QuadPattern]) -> None:
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


def _while_sure(missing: Callable[[], int | None], flow: Dataflow) -> Callable[[], int | None]:
    sure: int | None = None

    def still_missing() -> int | None:
        nonlocal sure
        if not flow.flushed:
            sure = missing()
        return sure

    return still_missing


def _tested(node: Node, waiting: list[EarlyFilter]) -> Node:
    for each in [each for each in waiting if each.variables <= node.certain]:
        waiting.remove(each)
        node = each.attach(node)
    return node


def _shared(pattern: QuadPattern, current: Node) -> tuple[Variable, ...]:
    return tuple(name for name in variables_of_quad(pattern) if name in current.schema)
