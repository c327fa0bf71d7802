"""The content of windows.

A window holds elements that may match a pattern of its queries (a physical one, which counts, all
of them). When it moves it notifies listeners of triples that came, went, or have a later timestamp.
A query that shares it sees elements after its registration (`WindowView.since`).
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable
from operator import itemgetter
from typing import Final, Literal, TypeAlias

from tpf_server.continuous.runtime.instants.csparql_query import (
    LogicalWindow,
    Occurrence,
    PhysicalWindow,
    SteppedWindow,
)
from tpf_server.continuous.runtime.windows.matchers import ByConstants, EncodedTriple, Mask

OnChange: TypeAlias = Callable[[EncodedTriple, int | None, int | None], None]
"""Called with a triple and its latest timestamp (or stamp) in the window, before and after."""


_Place: TypeAlias = Literal[0, 3]
_AT: Final = 0
_STAMP: Final = 3
_BY_TIME = itemgetter(_AT)


class WindowContents:
    """The content of a window."""

    def __init__(self, window: SteppedWindow) -> None:
        self.window = window
        self.views: list[WindowView] = []
        self.newest: int | None = None
        self._partial: deque[WindowView] = deque()
        self.listeners: ByConstants[_Listener] = ByConstants()
        self._coming: list[Occurrence] = []
        self._inside: deque[Occurrence] = deque()
        self._occurrences: dict[EncodedTriple, tuple[Occurrence, ...]] = {}
        self._start: int | None = None
        self._at: int | None = None

    @property
    def triples(self) -> Collection[EncodedTriple]:
        return self._occurrences.keys()

    def held(self, since: int = 0) -> int:
        """Count elements after a number, also those about to enter."""
        held = len(self._coming) + len(self._inside)
        if not since or not held:
            return held
        return sum(each.number > since for part in (self._inside, self._coming) for each in part)

    def holds(self, since: int) -> bool:
        parts = self._inside, self._coming
        return any(each.number > since for part in parts for each in reversed(part))

    def passed(self, newest: int | None, since: int) -> bool:
        """True where all elements up to a number have left; `newest` is their last timestamp."""
        if newest is None:
            return True
        if isinstance(self.window, PhysicalWindow):
            return self.held(since) == self.held()
        return self._start is not None and newest <= self._start

    def latest(self, triple: EncodedTriple, since: int, place: _Place) -> int | None:
        """Return the latest timestamp or stamp of a triple among elements after a number."""
        return _latest(self._occurrences.get(triple, ()), since, place)

    def add(self, occurrence: Occurrence) -> None:
        """Add an element; it enters when the window moves."""
        if self.newest is None or occurrence.at > self.newest:
            self.newest = occurrence.at
        if self._coming and occurrence.at < self._coming[-1].at:
            insort(self._coming, occurrence, key=_BY_TIME)
        else:
            self._coming.append(occurrence)

    def show(self, view: "WindowView") -> None:
        """Connect a view; earlier elements stay hidden until they expire."""
        self.views.append(view)
        view.contents = self
        for mask, listener in view.listeners:
            self.listeners.add(mask, listener)
        if self.newest is None:
            view.reveal()
        elif view.since:
            view.hidden = self.newest
            self._partial.append(view)

    def hide(self, view: "WindowView") -> None:
        self.views.remove(view)
        for mask, listener in view.listeners:
            self.listeners.remove(mask, listener)
        if view in self._partial:
            self._partial.remove(view)

    def move(self, at: int) -> None:
        """Move to an instant, and notify listeners."""
        if at == self._at and not self._coming:
            return
        self._at, window = at, self.window
        if isinstance(window, PhysicalWindow):
            self._move(at, lambda: window.full(self._inside))
        else:
            start, end = window.bounds(at)
            if start == self._start and not (self._coming and self._coming[0].at <= end):
                return
            self._start = start
            self._move(end, lambda: self._inside[0].at <= start)
        # In the order of their registration.
        while self._partial and self.passed(self._partial[0].hidden, self._partial[0].since):
            self._partial.popleft().reveal()

    def _move(self, until: int, too_old: Callable[[], bool]) -> None:
        before: dict[EncodedTriple, tuple[Occurrence, ...]] = {}
        occurrences, inside = self._occurrences, self._inside
        entering = 0
        for each in self._coming:
            if each.at > until:
                break
            entering += 1
            present = occurrences.get(each.triple, ())
            before.setdefault(each.triple, present)
            occurrences[each.triple] = (*present, each)
        if entering:
            arrived = self._coming[:entering]
            del self._coming[:entering]
            if inside and arrived[0].at < inside[-1].at and isinstance(self.window, LogicalWindow):
                # Late elements take their place among those that are there.
                self._inside = inside = deque(sorted([*inside, *arrived], key=_BY_TIME))
            else:
                inside.extend(arrived)
        while inside and too_old():
            gone = inside.popleft()
            present = occurrences[gone.triple]
            before.setdefault(gone.triple, present)
            if len(present) == 1:
                del occurrences[gone.triple]
            else:
                occurrences[gone.triple] = tuple([each for each in present if each is not gone])
        for triple, old in before.items():
            listeners = self.listeners.of(triple)
            if not listeners:
                continue
            new = occurrences.get(triple, ())
            first = min([each.number for each in (*old, *new)], default=0)
            whole = _latest(old, 0, _AT), _latest(new, 0, _AT)
            for view, tell in listeners:
                since, place = view.since, view.place
                if since < first and place == _AT:
                    then, now = whole
                else:
                    then, now = _latest(old, since, place), _latest(new, since, place)
                if then != now:
                    view.changed()
                    tell(triple, then, now)


def _latest(occurrences: Iterable[Occurrence], since: int, place: _Place) -> int | None:
    result = [each[place] for each in occurrences if each.number > since]
    return max(result) if result else None


class WindowView:
    """A query's view of a window.

    Attributes:
        changed: is called before listeners.
        hidden: the latest timestamp before the registration.
        place: what listeners are told of the latest occurrence of a triple.
    """

    contents: WindowContents

    def __init__(
        self,
        window: SteppedWindow,
        since: int,
        changed: Callable[[], None],
        *,
        stamped: bool = False,
    ) -> None:
        self.window = window
        self.changed = changed
        self.place: _Place = _STAMP if stamped else _AT
        self.hidden = 0
        self.listeners: list[tuple[Mask, _Listener]] = []
        WindowContents(window).show(self)
        self.since = since

    def reveal(self) -> None:
        """Show the whole window from now on."""
        self.since = 0

    def listen(self, mask: Mask, tell: OnChange) -> None:
        """Notify of changed triples with these constants."""
        self.listeners.append((mask, (self, tell)))
        self.contents.listeners.add(*self.listeners[-1])

    def silence(self) -> None:
        for mask, listener in self.listeners:
            self.contents.listeners.remove(mask, listener)
        self.listeners.clear()

    def triples(self) -> list[EncodedTriple]:
        return [each for each in self.contents.triples if self.latest(each) is not None]

    def latest(self, triple: EncodedTriple) -> int | None:
        """The latest timestamp (or stamp) of a triple, if it is there."""
        return self.contents.latest(triple, self.since, self.place)


_Listener: TypeAlias = tuple[WindowView, OnChange]
