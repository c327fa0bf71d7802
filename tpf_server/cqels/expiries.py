"""Which windows something leaves when time passes."""

import heapq
from collections.abc import Sequence
from typing import Any, Final, Protocol

from tpf_server.cqels.windows.window_input import WindowInput

_FEW: Final = 16


class Expiring(Protocol):
    """What lets go what is too old."""

    def expire(self, now: int, /) -> None:
        """Let go what is too old at an instant."""


class Expiries:
    """Windows that time empties.

    Few are looked at one by one. Many are in a heap, by the instant after which something leaves
    them at the earliest.

    Attributes:
        timed: what to look at when time passes: things that begin with an instant, oldest first;
            how long they stay; and who lets them go.
    """

    def __init__(self) -> None:
        self.timed: list[tuple[Sequence[tuple[Any, ...]], int, Expiring]] = []
        self._windows: dict[WindowInput, None] = {}
        self._due: list[tuple[int, int, WindowInput]] = []
        self._ordered = False

    def add(self, window: WindowInput) -> None:
        """Look after a window."""
        self._windows[window] = None
        if self._ordered:
            window.order(self.schedule)
        elif len(self._windows) <= _FEW:
            self.timed.append((window.log, window.width, window))
        else:
            self._ordered = True
            self.timed[:] = [(self._due, 0, self)]
            for each in self._windows:
                each.order(self.schedule)

    def remove(self, window: WindowInput) -> None:
        """A window is gone."""
        if self._windows.pop(window, self) is self:
            return
        if not self._ordered:
            self.timed[:] = [each for each in self.timed if each[2] is not window]
        elif window.scheduled:
            self._due[:] = [each for each in self._due if each[2] is not window]
            heapq.heapify(self._due)
        if not self._windows:
            self.timed.clear()
            self._ordered = False

    def schedule(self, window: WindowInput, at: int) -> None:
        """The oldest row of a window has this timestamp now, and nobody knows when it goes."""
        heapq.heappush(self._due, (window.last_instant(at), window.number, window))

    def expire(self, now: int, /) -> None:
        """Let go what is too old at an instant, of those that are in the heap."""
        due = self._due
        while due and due[0][0] < now:
            window = due[0][2]
            log = window.log
            if log:
                window.expire(now)
                # What comes from now on goes no earlier, except for what has waited for a slide.
                if log or not window.slides:
                    again = window.last_instant(log[0][0] if log else now)
                    heapq.heapreplace(due, (max(again, now), window.number, window))
                    continue
            heapq.heappop(due)
            window.scheduled = False
