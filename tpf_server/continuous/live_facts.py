"""The facts of a live store that are valid now, kept so by batches and by instants that pass."""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from annotations.terms import Quad
from tpf_server.store.protocols import Standing


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
        """What has changed since last time: quads that hold now and did not, or did and do not.

        Args:
            now: microseconds since 1970; no earlier than last time.
        """
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
