"""Quad patterns matched together at a source, step by step, in as few requests as the counts allow.

For the small joins inside a rewritten pattern. The joins of queries are a dataflow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from annotations.methods.base import Derived
from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.errors import SourceLimitError
from tpf_client.fragments.blank_nodes import askable
from tpf_client.fragments.form import PATTERN_VARIABLES, Block
from tpf_client.planner.blocks import packed
from tpf_client.planner.driver import Task
from tpf_client.planner.live_fragment import canonical_pattern
from tpf_client.planner.reading import Content, together
from tpf_client.planner.source import Source, impossible, substitute
from tpf_client.sparql.algebra import variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order

Binding: TypeAlias = dict[Variable, Term]

MOST_BINDINGS = 1_000_000
"""Of one pattern: so many facts, each with its labels."""


@dataclass(slots=True)
class Match:
    """What a match gave.

    Args:
        bindings: the solutions.
        contents: what was read for them.
    """

    bindings: list[Binding] = field(default_factory=lambda: [{}])
    contents: list[Content] = field(default_factory=list)


class Matcher:
    """Matches quad patterns together.

    A variable as graph stands for any graph, the default graph included; two patterns that share
    one match in the same graph.

    Args:
        source: who answers each pattern.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._costs: dict[QuadPattern, tuple[int | None, int]] = {}

    def match(
        self,
        patterns: Sequence[QuadPattern],
        at: datetime | None,
        derived: Derived | None = None,
        seeds: Sequence[Binding] = ({},),
    ) -> Task[Match]:
        """All solutions of these patterns.

        Args:
            patterns: what to match.
            at: the instant at which it must hold; ``None``: now.
            derived: a variable whose value follows from the match of the first pattern.
            seeds: only solutions that extend one of these are wanted; all bind the same variables.
        """
        result = Match([dict(seed) for seed in seeds])
        rest = list(patterns)
        if derived is not None:
            yield from self._extend(result, rest.pop(0), at, derived)
        if result.bindings:
            yield from together([self._cost(pattern) for pattern in rest])

        def requests(pattern: QuadPattern, _known: set[Variable]) -> float:
            # Without bindings nothing more is read.
            if not result.bindings:
                return 0
            return _plan(
                pattern, result.bindings, *self._costs[canonical_pattern(pattern)]
            ).requests

        known = result.bindings[0] if result.bindings else ()
        for pattern in greedy_order(rest, variables_of_quad, requests, known):
            if not result.bindings:
                break
            yield from self._extend(result, pattern, at, None)
        return result

    def _extend(
        self, result: Match, pattern: QuadPattern, at: datetime | None, derived: Derived | None
    ) -> Task[None]:
        """Join the matches of one more pattern."""
        cost = yield from self._cost(pattern)
        plan = _plan(pattern, result.bindings, *cost)
        reads = [self._source.read(name, at, None, block) for name, block in plan.reads]
        contents = yield from together(reads)
        result.contents += contents
        quads = [fact.quad for content in contents for fact in content.facts]
        result.bindings = _join(result.bindings, pattern, dict.fromkeys(quads), derived)
        if len(result.bindings) > MOST_BINDINGS:
            reason = f"labels of more than {MOST_BINDINGS} combinations of facts"
            raise SourceLimitError(self._source.url, reason)

    def _cost(self, pattern: QuadPattern) -> Task[tuple[int | None, int]]:
        """Requests to read a pattern whole (``None``: unknown), and how large blocks may be."""
        name = canonical_pattern(pattern)
        if name not in self._costs:
            estimate = yield from self._source.estimate(name)
            pages = None if estimate.pages is None else estimate.pages + 1
            self._costs[name] = (pages, estimate.block)
        return self._costs[name]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to read what a pattern adds to some bindings.

    Args:
        reads: the fragments, each with the bindings that restrict it.
        requests: how many requests that takes, about.
    """

    reads: Sequence[tuple[QuadPattern, Block | None]]
    requests: float


def _plan(pattern: QuadPattern, bindings: Sequence[Binding], whole: int | None, size: int) -> _Plan:
    """Whole, or by the values of the bindings: whatever takes fewer requests."""
    name, cost = canonical_pattern(pattern), math.inf if whole is None else whole
    known = bindings[0].keys()
    places = [place for place, term in enumerate(pattern) if term in known]
    if not places:
        return _Plan([(name, None)], cost)
    rows = {tuple(each[Variable(pattern[place])] for place in places) for each in bindings}
    names = tuple(PATTERN_VARIABLES[place] for place in places)
    fit: list[tuple[tuple[Term, ...], None]] = []
    reads: list[tuple[QuadPattern, Block | None]] = []
    for row in sorted(rows):
        bound = substitute(name, dict(zip(names, row, strict=True)))
        if impossible(bound):
            continue
        if size < 2 or not all(askable(term) and term and term[:2] != "<<" for term in row):
            reads.append((bound, None))
        else:
            fit.append((row, None))
    for block in packed(fit, size):
        values = tuple([row for row, _ in block])
        if len(values) == 1:
            reads.append((substitute(name, dict(zip(names, values[0], strict=True))), None))
        else:
            reads.append((name, Block(names, values)))
    if cost <= len(reads):
        return _Plan([(name, None)], cost)
    return _Plan(reads, len(reads))


def _join(
    bindings: Sequence[Binding],
    pattern: QuadPattern,
    quads: dict[Quad, None],
    derived: Derived | None,
) -> list[Binding]:
    """The bindings, each with every quad that fits it."""
    known = bindings[0].keys() if bindings else frozenset()
    places = [place for place, term in enumerate(pattern) if term in known]
    index: dict[tuple[Term, ...], list[Quad]] = {}
    for quad in quads:
        index.setdefault(tuple(quad[place] for place in places), []).append(quad)
    joined: list[Binding] = []
    for binding in bindings:
        if len(joined) > MOST_BINDINGS:
            break
        key = tuple(binding[Variable(pattern[place])] for place in places)
        for quad in index.get(key, ()):
            row = unify(pattern, quad, binding)
            if row is not None:
                if derived is not None:
                    row[derived.variable] = derived.of(quad)
                joined.append(row)
    return joined


def unify(pattern: QuadPattern, quad: Quad, binding: Binding) -> Binding | None:
    """The binding with what the quad adds to it; ``None`` where it does not match."""
    row = dict(binding)
    for wanted, term in zip(pattern, quad, strict=True):
        if is_variable(wanted):
            if row.setdefault(Variable(wanted), term) != term:
                return None
        elif wanted != term:
            return None
    return row


FreshNames: TypeAlias = Callable[[str], Variable]


def fresh_names() -> FreshNames:
    """A maker of variables that no query and no canonical pattern contains."""
    count = 0

    def fresh(hint: str) -> Variable:
        nonlocal count
        count += 1
        return Variable(f"?.{hint}{count}")

    return fresh
