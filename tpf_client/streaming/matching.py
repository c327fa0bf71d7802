"""Quad patterns matched together at a source, step by step, in as few requests as the counts allow.

For the small joins inside a rewritten pattern. The joins of queries are a dataflow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from annotations.methods.base import Derived
from annotations.terms import Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.planner.driver import Task
from tpf_client.planner.evaluation import canonical
from tpf_client.planner.reading import Content, together
from tpf_client.planner.source import Source, substitute

Binding: TypeAlias = dict[Variable, Term]


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
        self._pages: dict[QuadPattern, int | None] = {}

    def match(
        self,
        patterns: Sequence[QuadPattern],
        at: datetime,
        derived: Derived | None = None,
    ) -> Task[Match]:
        """All solutions of these patterns.

        Args:
            patterns: what to match.
            at: the instant at which it must hold.
            derived: a variable whose value follows from the match of the first pattern.
        """
        result = Match()
        remaining = list(patterns)
        while remaining and result.bindings:
            if len(remaining) == len(patterns) and derived is not None:
                pattern = remaining[0]
                cost = yield from self.cost(pattern)
            else:
                pattern, cost = yield from self._cheapest(remaining, result.bindings)
            remaining.remove(pattern)
            bound = [substitute(pattern, each) for each in result.bindings]
            names = list(dict.fromkeys(canonical(each) for each in bound))
            if cost is not None and cost < len(names):
                names = [canonical(pattern)]
            contents = yield from together([self._source.read(name, at) for name in names])
            result.contents += contents
            quads = [fact.quad for content in contents for fact in content.facts]
            extend = derived if len(remaining) + 1 == len(patterns) else None
            result.bindings = _join(result.bindings, pattern, dict.fromkeys(quads), extend)
        return result

    def cost(self, pattern: QuadPattern) -> Task[int | None]:
        """How many requests it takes to read a pattern whole; ``None``: nobody knows."""
        name = canonical(pattern)
        if name not in self._pages:
            estimate = yield from self._source.estimate(name)
            self._pages[name] = None if estimate.pages is None else estimate.pages + 1
        return self._pages[name]

    def _cheapest(
        self, remaining: Sequence[QuadPattern], bindings: Sequence[Binding]
    ) -> Task[tuple[QuadPattern, int | None]]:
        costs = yield from together([self.cost(pattern) for pattern in remaining])

        def rank(place: int) -> tuple[bool, float]:
            pattern, cost = remaining[place], costs[place]
            known = bindings[0].keys()
            connected = not known or any(term in known for term in pattern)
            bound = {substitute(pattern, each) for each in bindings}
            whole = float("inf") if cost is None else cost
            return (not connected, min(len(bound), whole) if known else whole)

        best = min(range(len(remaining)), key=rank)
        return remaining[best], costs[best]


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
