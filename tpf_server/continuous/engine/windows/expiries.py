"""Which windows something leaves when time passes."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from tpf_server.continuous.engine.due_instants import DueInstants
from tpf_server.continuous.engine.windows.stream_time import StreamTime
from tpf_server.continuous.engine.windows.window_input import WindowInput

_FEW: Final = 16


class Expiring(Protocol):
    """What lets go what is too old."""

    def expire(self, now: int, /) -> None:
        """Let go what is too old at an instant."""


class Expiries:
    """Windows that time empties.

    Few are looked at one by one. Many are in a heap, by the instant of the engine after which
    something leaves them at the earliest, or by an earlier one.

    Attributes:
        timed: what to look at when time passes: things that begin with an instant, oldest first;
            how long they stay; and who lets them go.
    """

    def __init__(self) -> None:
        self.timed: list[tuple[Sequence[tuple[Any, ...]], int, Expiring]] = []
        self._windows: dict[int, WindowInput] = {}
        self._due: DueInstants[int] = DueInstants()
        self._ordered = False

    def add(self, window: WindowInput) -> None:
        """Look after a window."""
        self._windows[window.number] = window
        if self._ordered:
            window.order(self.schedule)
        elif len(self._windows) <= _FEW:
            self._list()
        else:
            self._ordered = True
            self.timed[:] = [(self._due.heap, 0, self)]
            for each in self._windows.values():
                each.order(self.schedule)

    def _list(self) -> None:
        self.timed[:] = [
            (each.log, each.width + each.time.lag, each) for each in self._windows.values()
        ]

    def remove(self, window: WindowInput) -> None:
        """A window is gone."""
        if self._windows.pop(window.number, None) is None:
            return
        self._due.give_up(window.number)
        if not self._windows:
            self.timed.clear()
            self._due.clear()
            self._ordered = False
        elif not self._ordered:
            self._list()

    def schedule(self, window: WindowInput, at: int) -> None:
        """The oldest row of a window has this timestamp now, and nobody knows when it goes."""
        self._plan(window, window.last_instant(at) + window.time.lag)

    def _plan(self, window: WindowInput, due: int) -> None:
        self._due.plan(due, window.number, window.number)

    def moved(self, time: StreamTime, windows: Iterable[WindowInput]) -> None:
        """Windows have another time than the engine from now on, or hold older rows again.

        Args:
            time: of their stream.
            windows: some, among them those that it looks after.
        """
        if not self._ordered:
            self._list()
            return
        for window in windows:
            if window.number in self._windows and window.log:
                due = window.last_instant(window.log[0][0]) + time.lag
                if due < self._due.next.get(window.number, due + 1):
                    window.scheduled = True
                    self._plan(window, due)

    def expire(self, now: int, /) -> None:
        """Let go what is too old at an instant, of those that are in the heap."""
        while (found := self._due.first(now)) is not None:
            self._expire_first(self._windows[found[1]], now)

    def _expire_first(self, window: WindowInput, now: int) -> None:
        due, log = self._due, window.log
        if log:
            window.expire(now)
            # What comes from now on goes no earlier, except for what has waited for a slide.
            if log or not window.slides:
                oldest = log[0][0] if log else window.time.at(now)
                due.put_off(max(window.last_instant(oldest) + window.time.lag, now))
                return
        due.drop()
        window.scheduled = False

    def next_gone(self, before: int) -> int | None:
        """The first instant of the engine at which something leaves a window that is `netted`.

        Others may let go what is too old by then.

        Args:
            before: an instant that it must be before.
        """
        if not self._ordered:
            soonest = before
            for number, (log, width, _) in zip(self._windows, self.timed, strict=True):
                if log and log[0][0] + width + 1 < soonest and self._windows[number].netted:
                    soonest = log[0][0] + width + 1
            return soonest if soonest < before else None
        heap = self._due.heap
        if not heap or heap[0][0] >= before - 1:
            return None
        while (first := self._due.first(before - 1)) is not None:
            last, window = first[0], self._windows[first[1]]
            log = window.log
            if window.netted and log and window.last_instant(log[0][0]) + window.time.lag <= last:
                return last + 1
            self._expire_first(window, last + 1)
        return None
