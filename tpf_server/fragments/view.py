"""A view: a dataset, and the method through which its live facts are shown.

Matches are a sequence: the static quads, then those of each part of the method.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple, Protocol

from annotations.labels import Fact, Label, Labelling
from annotations.methods import METHODS
from annotations.methods.base import FactPattern, Naming, Part
from annotations.terms import Quad, QuadPattern, Term, TermOrVariable, is_variable
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import PLAIN
from tpf_server.store.protocols import LiveStore, QuadColumns, Snapshot, StaticStore, quad_columns

# The plain view: a live fact is shown as its own quad, its label only in the metadata.


class Plain:
    """Show facts through no annotation method; it can only be matched."""

    name = PLAIN

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:  # noqa: ARG002
        positions: dict[str, list[int]] = {}
        for position, term in enumerate(pattern):
            if is_variable(term):
                positions.setdefault(term, []).append(position)
        repeated = [group for group in positions.values() if len(group) > 1]

        def equal(fact: Fact) -> bool:
            return all(len({fact.quad[p] for p in group}) == 1 for group in repeated)

        looked_up = FactPattern(
            _bound(pattern.subject),
            _bound(pattern.predicate),
            _bound(pattern.object),
            _bound(pattern.graph),
            repeats=bool(repeated),
        )
        return (Part(looked_up, _own_quad, equal if repeated else None),)


def _bound(term: TermOrVariable) -> Term | None:
    return None if is_variable(term) else Term(term)


def _own_quad(fact: Fact) -> Quad:
    return fact.quad


_LABELLINGS: tuple[Labelling, ...] = ("expiration", "interval")
_CHUNK = 1 << 14


class _ShownMethod(Protocol):
    name: str

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:
        """Return the labelled facts with matching quads, and these."""


_ALL: tuple[_ShownMethod, ...] = (Plain(), *METHODS)
VIEW_METHODS: dict[str, _ShownMethod] = {method.name: method for method in _ALL}


class LabelledRows(NamedTuple):
    """The quads of a page and, one for one, the labels of their facts (``None``: static)."""

    columns: QuadColumns
    labels: list[Label | None]


@dataclass(frozen=True, slots=True)
class View:
    """A dataset through one method, with the naming of the nodes that this mints."""

    dataset: OpenDataset
    method: _ShownMethod
    naming: Naming

    def state(self, patterns: Sequence[QuadPattern], snapshot: Snapshot | None) -> "State":
        """Return the freshness of the matches, without counting them."""
        live = self.dataset.live
        if live is None or snapshot is None:
            return State(None, ())
        parts = tuple([tuple(self.method.match(p, self.naming)) for p in patterns])
        instants = [live.next_change(part.facts, snapshot) for part in chain.from_iterable(parts)]
        return State(min((each for each in instants if each is not None), default=None), parts)

    def matches(
        self, patterns: Sequence[QuadPattern], snapshot: Snapshot | None, state: "State"
    ) -> "Matches | AllMatches":
        parts = state.parts or ((),) * len(patterns)
        matches = [
            Matches(self.dataset, pattern, snapshot, own)
            for pattern, own in zip(patterns, parts, strict=True)
        ]
        return matches[0] if len(matches) == 1 else AllMatches(matches)


class State(NamedTuple):
    """The freshness of the matches of a pattern."""

    next_change: datetime | None
    parts: tuple[tuple[Part, ...], ...]


def _extend(columns: QuadColumns, more: QuadColumns) -> None:
    for column, terms in zip(columns, more, strict=True):
        column += terms


class AllMatches:
    """The matches of several disjoint patterns, one after the other."""

    def __init__(self, matches: Sequence["Matches"]) -> None:
        self._matches = matches
        self.dynamic = sum(one.dynamic for one in matches)
        self.total = sum(one.total for one in matches)

    def slice(self, offset: int, limit: int) -> LabelledRows:
        result = LabelledRows(QuadColumns([], [], [], []), [])
        for one in self._matches:
            missing = limit - len(result.labels)
            if missing <= 0:
                break
            if offset < one.total:
                rows = one.slice(offset, missing)
                _extend(result.columns, rows.columns)
                result.labels.extend(rows.labels)
            offset = max(0, offset - one.total)
        return result

    def labellings(self) -> list[Labelling]:
        kinds = {kind for one in self._matches for kind in one.labellings()}
        return [kind for kind in _LABELLINGS if kind in kinds]

    def earliest_end(self) -> datetime | None:
        ends = [one.earliest_end() for one in self._matches if one.dynamic]
        return min((end for end in ends if end is not None), default=None)


class Matches:
    """The quads of a view that match a pattern, in a fixed order; evaluated lazily."""

    def __init__(
        self,
        dataset: OpenDataset,
        pattern: QuadPattern,
        snapshot: Snapshot | None,
        parts: Sequence[Part],
    ) -> None:
        self._dataset = dataset
        self._pattern = pattern
        self._snapshot = snapshot
        self._static_count = dataset.static.count(pattern) if dataset.static else 0
        self._parts: list[_PartFacts] = []
        if dataset.live is not None and snapshot is not None:
            self._parts = [_PartFacts(dataset.live, snapshot, part) for part in parts]
        self.dynamic = sum(rows.count for rows in self._parts)
        self._hidden: list[tuple[int, Quad]] = []
        if self.dynamic and self._static_count and dataset.overlap and snapshot is not None:
            self._hidden = dataset.overlap.hidden(pattern, parts, snapshot)
            self._static_count -= len(self._hidden)
        self.total = self._static_count + self.dynamic

    def slice(self, offset: int, limit: int) -> LabelledRows:
        """Return up to `limit` matches from position `offset`."""
        result = QuadColumns([], [], [], [])
        if offset < self._static_count and self._dataset.static is not None:
            result = self._static_columns(self._dataset.static, offset, limit)
        labels: list[Label | None] = [None] * len(result.subjects)
        start = self._static_count
        for rows in self._parts:
            missing = limit - len(labels)
            if missing <= 0:
                break
            skipped = max(0, offset - start)
            if skipped < rows.count:
                render = rows.part.render
                facts = rows.facts(skipped, missing)
                _extend(result, quad_columns([render(fact) for fact in facts]))
                labels += [fact.label for fact in facts]
            start += rows.count
        return LabelledRows(result, labels)

    def _static_columns(self, static: StaticStore, offset: int, limit: int) -> QuadColumns:
        if not self._hidden:
            return static.columns(self._pattern, offset, limit)
        # How many hidden ones stand before the first and before the last of the page.
        before = [position - k for k, (position, _) in enumerate(self._hidden)]
        first, last = bisect_right(before, offset), bisect_right(before, offset + limit - 1)
        quads = static.quads(self._pattern, offset + first, limit + last - first)
        hidden = {quad for _, quad in self._hidden[first:last]}
        return quad_columns([quad for quad in quads if quad not in hidden])

    def labellings(self) -> list[Labelling]:
        """Return the kinds of label that the matching facts carry."""
        return [kind for kind in _LABELLINGS if any(rows.carries(kind) for rows in self._parts)]

    def earliest_end(self) -> datetime | None:
        """Return the earliest end of the labels of the matching facts."""
        ends = [rows.earliest_end() for rows in self._parts if rows.count]
        return min((end for end in ends if end is not None), default=None)


class _PartFacts:
    def __init__(self, live: LiveStore, snapshot: Snapshot, part: Part) -> None:
        self.part = part
        self._live = live
        self._snapshot = snapshot
        self._known: Sequence[Fact] | None = None
        """All of them, once they have been looked at."""
        if part.residual is None:
            self.count = live.count(part.facts, snapshot)
        else:
            # Few facts repeat a term, and the store finds those alone; which positions agree is
            # looked at here.
            self._known = [fact for fact in self._all() if part.residual(fact)]
            self.count = len(self._known)

    def _all(self) -> Iterable[Fact]:
        offset = 0
        while True:
            facts = self._live.facts(self.part.facts, self._snapshot, offset, _CHUNK)
            yield from facts
            if len(facts) < _CHUNK:
                return
            offset += _CHUNK

    def facts(self, offset: int, limit: int) -> Sequence[Fact]:
        if self._known is not None:
            return self._known[offset : offset + limit]
        facts = self._live.facts(self.part.facts, self._snapshot, offset, limit)
        if len(facts) == self.count:
            self._known = facts
        return facts

    def carries(self, kind: Labelling) -> bool:
        if self._known is not None:
            return any(fact.label and fact.label.labelling == kind for fact in self._known)
        labelling = self.part.facts.labelling
        if labelling is not None:
            return labelling == kind and self.count > 0
        return self._live.count(self.part.facts._replace(labelling=kind), self._snapshot) > 0

    def earliest_end(self) -> datetime | None:
        if self._known is not None:
            return min((fact.label.end for fact in self._known if fact.label), default=None)
        return self._live.earliest_end(self.part.facts, self._snapshot)
