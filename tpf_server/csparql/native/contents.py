"""What is in the windows of one query, and in the graphs that they make up.

A window holds the elements that can match some pattern of the query (a physical one all of them,
because it counts). When it moves it tells its graphs which triples came, went, or have a later
timestamp now. A graph is a set: a triple that is in two of its windows is in it once.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias

from tpf_client.dataflow.changes import TermId
from tpf_server.csparql.windows import LogicalWindow, PhysicalWindow, Window

EncodedTriple: TypeAlias = tuple[TermId, TermId, TermId]
OnChange: TypeAlias = Callable[[EncodedTriple, int | None, int | None], None]
"""Called with a triple and its latest timestamp in the window, before and after."""

_AT = itemgetter(0)


class WindowContents:
    """The content of a window, moved on by `move`.

    Attributes:
        latest: the triples in the window with their latest timestamps.
        held: how many elements it holds, those that are still to come into it included.
    """

    def __init__(self, window: Window, keep: Callable[[EncodedTriple], bool]) -> None:
        self.window = window
        self.latest: dict[EncodedTriple, int] = {}
        self._keep = keep if isinstance(window, LogicalWindow) else _everything
        self._coming: list[tuple[int, EncodedTriple]] = []
        self._inside: deque[tuple[int, EncodedTriple]] = deque()
        self._counts: dict[EncodedTriple, int] = {}
        self._listeners: list[OnChange] = []
        self._boundary: int | None = None

    @property
    def held(self) -> int:
        """How many elements it holds."""
        return len(self._coming) + len(self._inside)

    @property
    def oldest(self) -> int | None:
        """The timestamp of the oldest element that it holds."""
        first = [each[0][0] for each in (self._inside, self._coming) if each]
        return min(first) if first else None

    @property
    def empty(self) -> bool:
        """Whether nothing is in the window now."""
        return not self._inside

    def connect(self, listener: OnChange) -> None:
        """Tell `listener` of every further change."""
        self._listeners.append(listener)

    def add(self, at: int, triple: EncodedTriple) -> None:
        """An element comes; it enters the window when that moves."""
        if not self._keep(triple):
            return
        element = (at, triple)
        if self._coming and at < self._coming[-1][0]:
            insort(self._coming, element, key=_AT)
        else:
            self._coming.append(element)

    def move(self, at: int) -> bool:
        """Move the window to an instant; whether anything changed."""
        window = self.window
        if isinstance(window, PhysicalWindow):
            return self._move(at, lambda: len(self._inside) > window.count)
        boundary = window.boundary(at)
        if boundary == self._boundary and not (self._coming and self._coming[0][0] <= boundary):
            return False
        self._boundary = boundary
        start = boundary - window.range
        return self._move(boundary, lambda: self._inside[0][0] <= start)

    def _move(self, until: int, too_old: Callable[[], bool]) -> bool:
        before: dict[EncodedTriple, int | None] = {}
        latest, counts, inside = self.latest, self._counts, self._inside
        entering = 0
        for at, triple in self._coming:
            if at > until:
                break
            entering += 1
            before.setdefault(triple, latest.get(triple))
            counts[triple] = counts.get(triple, 0) + 1
            latest[triple] = max(at, latest.get(triple, at))
        if entering:
            arrived = self._coming[:entering]
            del self._coming[:entering]
            if inside and arrived[0][0] < inside[-1][0] and isinstance(self.window, LogicalWindow):
                # Late elements take their place among those that are there.
                self._inside = inside = deque(sorted([*inside, *arrived], key=_AT))
            else:
                inside.extend(arrived)
        while inside and too_old():
            _, triple = inside.popleft()
            before.setdefault(triple, latest.get(triple))
            counts[triple] -= 1
            if not counts[triple]:
                del counts[triple], latest[triple]
        changed = False
        for triple, old in before.items():
            new = latest.get(triple)
            if new != old:
                changed = True
                for listener in self._listeners:
                    listener(triple, old, new)
        return changed


def _everything(_triple: EncodedTriple) -> bool:
    return True


class PatternInput:
    """The matches of a triple pattern in a graph: static ones and those in windows.

    Args:
        row_of: the row that a triple gives, its timestamp left out; ``None`` where it matches not.
        windows: of the streams that the graph is merged from.
        stamped: the windows whose timestamps are wanted; ``None``: no timestamp.
        push: where changes go.
    """

    def __init__(
        self,
        row_of: Callable[[EncodedTriple], tuple[TermId, ...] | None],
        windows: Sequence[WindowContents],
        stamped: Sequence[WindowContents] | None,
        encode_stamp: Callable[[int], TermId],
        push: Callable[[tuple[TermId, ...], int], None],
    ) -> None:
        self._row_of = row_of
        self._windows = list(windows)
        self._stamped = None if stamped is None else list(stamped)
        self._encode_stamp = encode_stamp
        self._push = push
        self._static: set[EncodedTriple] = set()
        for window in self._windows:
            window.connect(self._listener(window))

    def set_static(self, triples: Iterable[EncodedTriple]) -> None:
        """The static triples that match, from now on."""
        now = set(triples)
        before, self._static = self._static, now
        for triple in before - now:
            self._change(triple, self._rows(triple, static=True), self._rows(triple, static=False))
        for triple in now - before:
            self._change(triple, self._rows(triple, static=False), self._rows(triple, static=True))

    def _rows(self, triple: EncodedTriple, *, static: bool) -> tuple[bool, int | None]:
        present = static or any(triple in window.latest for window in self._windows)
        if self._stamped is None:
            return present, None
        stamps = [window.latest[triple] for window in self._stamped if triple in window.latest]
        return present, max(stamps) if stamps else None

    def _change(
        self, triple: EncodedTriple, old: tuple[bool, int | None], new: tuple[bool, int | None]
    ) -> None:
        if old == new:
            return
        row = self._row_of(triple)
        if row is None:
            return
        for (present, stamp), count in ((old, -1), (new, 1)):
            if present:
                if self._stamped is None:
                    self._push(row, count)
                else:
                    encoded = 0 if stamp is None else self._encode_stamp(stamp)
                    self._push((*row, encoded), count)

    def _listener(self, window: WindowContents) -> OnChange:
        others = [each for each in self._windows if each is not window]
        stamped = self._stamped
        own = stamped is not None and window in stamped
        other_stamped = [each for each in stamped or () if each is not window]

        def changed(triple: EncodedTriple, old: int | None, new: int | None) -> None:
            always = triple in self._static or any(triple in each.latest for each in others)
            if stamped is None:
                if not always and (old is None) != (new is None):
                    self._change(triple, (old is not None, None), (new is not None, None))
                return
            elsewhere = [each.latest[triple] for each in other_stamped if triple in each.latest]

            def stamp(mine: int | None) -> int | None:
                found = [*elsewhere, mine] if own and mine is not None else elsewhere
                return max(found) if found else None

            self._change(
                triple,
                (always or old is not None, stamp(old)),
                (always or new is not None, stamp(new)),
            )

        return changed
