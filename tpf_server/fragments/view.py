"""A view: a dataset, and the method through which its live facts are shown.

Matches are a sequence: the static quads, then those of each part of the method.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, repeat
from typing import NamedTuple, Protocol

from annotations.labels import Fact, Label, Labelling
from annotations.methods import METHODS
from annotations.methods.base import FactPattern, Naming, Part
from annotations.terms import Quad, QuadPattern, Term, TermOrVariable, is_variable
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import PLAIN
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import QuadColumns, Snapshot, quad_columns
from tpf_server.store.static.columnar import ColumnarStore

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
        return (Part(looked_up, lambda fact: fact.quad, equal if repeated else None),)


def _bound(term: TermOrVariable) -> Term | None:
    return None if is_variable(term) else Term(term)


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
    ) -> "Matches":
        return Matches(self.dataset, patterns, snapshot, state)


class State(NamedTuple):
    """The freshness of the matches of a pattern."""

    next_change: datetime | None
    parts: tuple[tuple[Part, ...], ...]


def _extend(columns: QuadColumns, more: QuadColumns) -> None:
    for column, terms in zip(columns, more, strict=True):
        column += terms


class Matches:
    """The quads of a view that match disjoint patterns, in a fixed order; evaluated lazily."""

    def __init__(
        self,
        dataset: OpenDataset,
        patterns: Sequence[QuadPattern],
        snapshot: Snapshot | None,
        state: State,
    ) -> None:
        self._live: list[_PartFacts] = []
        self._sources: list[_StaticQuads | _PartFacts] = []
        for pattern, parts in zip(patterns, state.parts or repeat(()), strict=False):
            live: list[_PartFacts] = []
            if dataset.live is not None and snapshot is not None:
                live = [_PartFacts(dataset.live, snapshot, part) for part in parts]
            if dataset.static is not None:
                quads = _StaticQuads(dataset.static, pattern)
                shown = quads.count and any(rows.count for rows in live)
                if shown and dataset.overlap is not None and snapshot is not None:
                    quads.hide(dataset.overlap.hidden(pattern, parts, snapshot))
                self._sources.append(quads)
            self._sources += live
            self._live += live
        self.dynamic = sum([rows.count for rows in self._live])
        self.total = sum([rows.count for rows in self._sources])

    def slice(self, offset: int, limit: int) -> LabelledRows:
        """Return up to `limit` matches from position `offset`."""
        result = LabelledRows(QuadColumns([], [], [], []), [])
        for source in self._sources:
            missing = limit - len(result.labels)
            if missing <= 0:
                break
            if offset < source.count:
                rows = source.rows(offset, missing)
                if not result.labels:
                    result = rows
                else:
                    for column, terms in zip(result.columns, rows.columns, strict=True):
                        column += terms
                    result.labels.extend(rows.labels)
            offset = max(0, offset - source.count)
        return result

    def labellings(self) -> list[Labelling]:
        """Return the kinds of label that the matching facts carry."""
        return [kind for kind in _LABELLINGS if any(rows.carries(kind) for rows in self._live)]

    def earliest_end(self) -> datetime | None:
        """Return the earliest end of the labels of the matching facts."""
        ends = [rows.earliest_end() for rows in self._live if rows.count]
        return min((end for end in ends if end is not None), default=None)


class _StaticQuads:
    def __init__(self, static: ColumnarStore, pattern: QuadPattern) -> None:
        self._static = static
        self._pattern = pattern
        self._hidden: list[tuple[int, Quad]] = []
        self.count = static.count(pattern)

    def hide(self, quads: list[tuple[int, Quad]]) -> None:
        """Leave out quads at these positions."""
        self._hidden = quads
        self.count -= len(quads)

    def rows(self, offset: int, limit: int) -> LabelledRows:
        if not self._hidden:
            columns = self._static.columns(self._pattern, offset, limit)
        else:
            # How many hidden ones stand before the first and before the last of the page.
            before = [position - k for k, (position, _) in enumerate(self._hidden)]
            first, last = bisect_right(before, offset), bisect_right(before, offset + limit - 1)
            quads = self._static.quads(self._pattern, offset + first, limit + last - first)
            hidden = {quad for _, quad in self._hidden[first:last]}
            columns = quad_columns([quad for quad in quads if quad not in hidden])
        return LabelledRows(columns, [None] * len(columns.subjects))


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

    def rows(self, offset: int, limit: int) -> LabelledRows:
        if self._known is not None:
            facts = self._known[offset : offset + limit]
        else:
            facts = self._live.facts(self.part.facts, self._snapshot, offset, limit)
            if len(facts) == self.count:
                self._known = facts
        columns = quad_columns(map(self.part.render, facts))
        return LabelledRows(columns, [fact.label for fact in facts])

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
