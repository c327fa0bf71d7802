"""Static graphs that change by themselves: the live facts of datasets, and what is far away.

What changes is found outside the lock of whoever evaluates queries; only putting it in, which costs
what the changed triples meet, happens inside.
"""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from annotations.instants import to_micros
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_server.continuous.engine.static.static_data import MemoryGraph, StaticData
from tpf_server.errors import StoreError
from tpf_server.store.protocols import LiveStore, Standing

# The facts of a live store that are valid now, kept so by batches and by instants that pass.


class _Version:
    __slots__ = ("end", "quad", "row", "stands", "start", "valid")

    def __init__(self, row: int, quad: Quad, start: int, end: int) -> None:
        self.row = row
        self.quad = quad
        self.start = start
        self.end = end
        self.stands = True
        self.valid = False


_News: TypeAlias = tuple[bool, Sequence[int], Sequence[Standing]]


class LiveFacts:
    """Follows a live store (see `tpf_server.store.protocols.Follower`).

    What the store tells, in whatever thread, only waits here; whoever wants to know asks
    `changes`, in one thread at a time. A change costs the logarithm of how many versions wait for
    their start or end.
    """

    def __init__(self) -> None:
        self._news: deque[_News] = deque()
        self._standing: dict[int, _Version] = {}
        self._due: list[tuple[int, int, _Version]] = []
        self._numbers = itertools.count()
        self._valid: Counter[Quad] = Counter()

    def begin(self, versions: Sequence[Standing]) -> None:
        """See `Follower`."""
        self._news.append((True, (), versions))

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        """See `Follower`."""
        self._news.append((False, removed, added))

    def changes(self, now: int) -> Mapping[Quad, bool]:
        """What has changed since last time: quads that hold now and did not, or did and do not."""
        before: dict[Quad, bool] = {}
        while self._news:
            anew, removed, added = self._news.popleft()
            for row in tuple(self._standing) if anew else removed:
                version = self._standing.pop(row, None)
                if version is not None:
                    version.stands = False
                    self._set(version, holds=False, before=before)
            for row, quad, start, end in added:
                if end > now:
                    version = self._standing[row] = _Version(row, quad, start, end)
                    self._look(version, now, before)
        while self._due and self._due[0][0] <= now:
            _, _, version = heapq.heappop(self._due)
            if version.stands:
                self._look(version, now, before)
        if len(self._due) > 2 * len(self._standing) + 64:
            self._due = [each for each in self._due if each[2].stands]
            heapq.heapify(self._due)
        return {
            quad: quad in self._valid
            for quad, was in before.items()
            if was != (quad in self._valid)
        }

    def _look(self, version: _Version, now: int, before: dict[Quad, bool]) -> None:
        """A version that stands begins to hold, ends, or waits."""
        if now >= version.end:
            version.stands = False
            if self._standing.get(version.row) is version:
                del self._standing[version.row]
            self._set(version, holds=False, before=before)
            return
        holds = now >= version.start
        self._set(version, holds=holds, before=before)
        until = version.end if holds else version.start
        heapq.heappush(self._due, (until, next(self._numbers), version))

    def _set(self, version: _Version, *, holds: bool, before: dict[Quad, bool]) -> None:
        if version.valid == holds:
            return
        version.valid = holds
        quad = version.quad
        before.setdefault(quad, quad in self._valid)
        if holds:
            self._valid[quad] += 1
        else:
            self._valid[quad] -= 1
            if not self._valid[quad]:
                del self._valid[quad]


_Triple: TypeAlias = tuple[Term, Term, Term]
Pending: TypeAlias = Sequence[tuple["_Source", Mapping[Quad, bool]]]
"""What has changed, and where: the quads that are there now, and those that are not."""


class Changes(Protocol):
    """What tells how quads change."""

    def changes(self, now: int) -> Mapping[Quad, bool]:
        """Quads that are there now and were not when it was asked last, or were and are not."""


class _Source:
    """Quads that change, and the parts of graphs that they are."""

    def __init__(self, quads: Changes, default: Term | None = None) -> None:
        self.quads = quads
        self.default = default
        """A further name of their default graph."""
        self.parts: dict[Term, MemoryGraph] = {}
        self.sizes: dict[Term, int] = {}


class _LiveSource(_Source):
    """The facts of a live store."""

    def __init__(self, name: Term, store: LiveStore) -> None:
        facts = LiveFacts()
        super().__init__(facts, name)
        self.store = store
        self.stop = store.follow(facts)


class ChangingGraphs:
    """Parts of static graphs: facts of live stores that are valid now, and whatever else changes.

    Facts of a default graph are in the default graph, and in that of their dataset.
    """

    def __init__(self, static: StaticData, others: Iterable[Changes] = ()) -> None:
        self._static = static
        self._live: list[_LiveSource] = []
        self._others = [_Source(each) for each in others]
        self._now = 0

    def add(self, changes: Changes) -> None:
        """Let quads of named graphs change from now on as this one tells."""
        self._others.append(_Source(changes))

    def drop(self, changes: Changes) -> None:
        """Take out what this one told."""
        for source in self._others:
            if source.quads is changes:
                for part in source.parts.values():
                    self._static.drop(part)
        self._others = [source for source in self._others if source.quads is not changes]

    def follow(self, stores: Mapping[Term, LiveStore]) -> None:
        """Follow these live stores from now on, and no others."""
        kept = []
        for source in self._live:
            assert source.default is not None
            if stores.get(source.default) is source.store:
                kept.append(source)
                continue
            source.stop()
            for part in source.parts.values():
                self._static.drop(part)
        known = {source.default for source in kept}
        kept += [_LiveSource(*each) for each in stores.items() if each[0] not in known]
        self._live = kept

    def pending(self, now: datetime) -> Pending:
        """What has changed until an instant; it is not told again.

        Where the clock was set back, nothing that began ends before it has caught up. Of a store
        that cannot be read it is told once it can be.
        """
        self._now = max(self._now, to_micros(now))
        sources: list[_Source] = [*self._others]
        for source in self._live:
            try:
                # Also what other machines published.
                source.store.current(now)
                sources.append(source)
            except StoreError:
                pass  # another one takes its place just now, or it can be read again next time
        found = ((source, source.quads.changes(self._now)) for source in sources)
        return [(source, changes) for source, changes in found if changes]

    def apply(self, pending: Pending) -> None:
        """Let queries see what has changed."""
        for source, changes in pending:
            if source not in self._live and source not in self._others:
                continue
            graphs: dict[Term, tuple[list[_Triple], list[_Triple]]] = {}
            for quad, there in changes.items():
                added, removed = graphs.setdefault(quad.graph, ([], []))
                (added if there else removed).append(quad[:3])
            for graph, (added, removed) in graphs.items():
                self._change(source, graph, added, removed)

    def _change(
        self, source: _Source, graph: Term, added: list[_Triple], removed: list[_Triple]
    ) -> None:
        part = source.parts.get(graph)
        if part is None:
            names = [graph]
            if graph == DEFAULT_GRAPH and source.default is not None:
                names.append(source.default)
            part = source.parts[graph] = self._static.part(names)
        self._static.change(part, added, removed)
        size = source.sizes[graph] = source.sizes.get(graph, 0) + len(added) - len(removed)
        if not size:
            # Every fact may have a graph of its own.
            del source.parts[graph], source.sizes[graph]
            self._static.drop(part)
