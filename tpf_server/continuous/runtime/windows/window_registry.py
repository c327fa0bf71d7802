"""The windows of an engine: shared by queries, moved by time."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.codegen import compiled
from tpf_server.continuous.runtime.clock import StreamClock
from tpf_server.continuous.runtime.due_instants import DueInstants
from tpf_server.continuous.runtime.windows.continuous_query import WindowClause
from tpf_server.continuous.runtime.windows.matchers import (
    EncodedTriple,
    PatternKey,
    StampedStarMatcher,
    StarMatcher,
    TripleMatcher,
    Watermark,
)
from tpf_server.continuous.runtime.windows.specification import All, Range
from tpf_server.continuous.runtime.windows.star_window import StarWindow
from tpf_server.continuous.runtime.windows.streams import ElementStream
from tpf_server.continuous.runtime.windows.window_input import WindowInput

# Which windows something leaves when time passes.

_FEW: Final = 16


class Expiring(Protocol):
    """A thing with rows that expire."""

    def expire(self, now: int, /) -> None:
        """Expire rows at an instant."""


class Expiries:
    """Windows that time empties.

    Few are checked one by one. Many are in a heap, by an instant of the engine until which nothing
    leaves them.

    Attributes:
        timed: rows to check when time passes: sequences that begin with an instant, oldest first;
            how long they stay; and the object that expires them.
    """

    def __init__(self) -> None:
        self.timed: list[tuple[Sequence[tuple[Any, ...]], int, Expiring]] = []
        self._windows: dict[int, WindowInput] = {}
        self._due: DueInstants[int] = DueInstants()
        self._ordered = False

    def add(self, window: WindowInput) -> None:
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
        self._plan(window, window.last_instant(at) + window.time.lag)

    def _plan(self, window: WindowInput, due: int) -> None:
        self._due.plan(due, window.number, window.number)

    def moved(self, time: StreamClock, windows: Iterable[WindowInput]) -> None:
        """Note windows with another time than the engine from now on, or with older rows again."""
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
        while (result := self._due.first(now)) is not None:
            self._expire_first(self._windows[result[1]], now)

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

    def next_gone(self, before: int) -> int:
        """Return the first instant of the engine at which a `netted` window loses something.

        If it is not before another, that. Others may expire rows until then.
        """
        if not self._ordered:
            soonest = before
            for number, (log, width, _) in zip(self._windows, self.timed, strict=True):
                if log and log[0][0] + width + 1 < soonest and self._windows[number].netted:
                    soonest = log[0][0] + width + 1
            return soonest
        heap = self._due.heap
        if not heap or heap[0][0] >= before - 1:
            return before
        while (first := self._due.first(before - 1)) is not None:
            last, window = first[0], self._windows[first[1]]
            log = window.log
            if window.netted and log and window.last_instant(log[0][0]) + window.time.lag <= last:
                return last + 1
            self._expire_first(window, last + 1)
        return before


# A single triple pattern over a window of a stream.

_SCHEDULING = ("if not window.scheduled:", "    schedule(at)")


def _routed(consumers: str, count: int) -> list[str]:
    """Return the lines that route a row to consumers; see `Consumer.failed`."""
    return [
        f"for consumer in {consumers}:",
        "    try:",
        f"        consumer.route(row, {count})",
        "    except Exception as error:",
        "        consumer.failed(error)",
    ]


class TripleWindow(WindowInput):
    """Rows of one triple pattern in a window; for the arguments see `WindowInput`.

    Entries of the log are a time (or a number) and a row.
    """

    matcher: TripleMatcher

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._prepare()

    def arrive(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        watermark, row_of = self.watermark, self.matcher.row
        self.used = 1 if watermark is None else watermark.last
        for triple in triples:
            row = row_of(triple)
            if row is not None:
                self._enter((at, row if watermark is None else (*row, watermark.last)))

    def _present(self) -> Iterable[tuple[Solution, int]]:
        return ((entry[1], 1) for entry in self.log)

    def _come(self, entry: tuple[Any, ...]) -> None:
        self._changed(entry[1], 1)

    def _go(self, entry: tuple[Any, ...]) -> None:
        self._changed(entry[1], -1)

    def _prepare(self) -> None:
        names: dict[str, Any] = {
            "window": self,
            "watermark": self.watermark,
            "time": self.time,
            "hide": self._hide,
            "rouse": self._rouse,
            "schedule": self._schedule,
            "enter": self._enter,
            "log": self.log,
            "remember": self.recent.append,
            "consumers": self.consumers,
            "leavers": self._leavers,
            "older": self.by_count - 1,
            "width": self.width,
            "slide": self._slide,
        }
        indexing = [] if self._bag is None else self._bag.maintenance(names)
        rousing = ["if window.calm:", "    rouse()"] if self.holders else []
        if self._slide is not None:
            come = ["enter((at, row))"]
        else:
            come = [
                *([] if self._schedule_at is None else _SCHEDULING),
                *rousing,
                "log.append((at, row))" if self.keeps_log else "window._rows += 1",
                "count = 1",
                *indexing,
                "remember(row)",
                *_routed("consumers", 1),
            ]
        go = ["row = log.popleft()[1]", *indexing, *_routed("leavers", -1)]
        lines = ["def arrive_row(at, row):", "    window.used = 1"]
        if self.watermark is not None:
            lines = ["def arrive_row(at, row):", "    window.used = stamp = watermark.last"]
            lines.append("    row = (*row, stamp)")
        lines += [f"    {line}" for line in come]
        self.arrive_row = compiled("\n".join(lines), "arrive_row", names)
        if self.by_count:
            lines = ["def expire(number):", "    first = number - older"]
        else:
            first = "front - width"
            if self._slide is not None:
                first = "front // slide * slide - width"
            lines = [
                "def expire(front):",
                "    if front != time.latest:",
                "        return hide(front)",
                f"    first = {first}",
            ]
        lines.append("    count = -1")
        if rousing:
            lines += ["    if log and log[0][0] < first and window.calm:", "        rouse()"]
        lines += ["    while log and log[0][0] < first:", *(f"        {line}" for line in go)]
        self.expire = compiled("\n".join(lines), "expire", names)


_Key = tuple[object, ...]


class WindowRegistry:
    """All window inputs.

    A query that is registered before any element came, or alone, takes a plain window, whose rows
    all its queries see. Later ones share a window of stamped rows (see `Watermark`).

    Args:
        stream: gives the stream of a name.

    Attributes:
        touched: windows in which rows came or went, and whose plans hold something back.
        timed: rows to check when time passes (see `Expiries`).
        sliding: windows with elements that wait for a boundary.
    """

    def __init__(
        self,
        stream: Callable[[str], ElementStream],
        watermark: Watermark,
        streams: Mapping[Term, ElementStream],
    ) -> None:
        self.streams = streams
        self.touched: list[WindowInput] = []
        self.sliding: dict[WindowInput, None] = {}
        self._stream = stream
        self._watermark = watermark
        self._numbers = itertools.count()
        self._shared: dict[_Key, list[WindowInput]] = {}
        self._streams: dict[WindowInput, tuple[ElementStream, _Key]] = {}
        self._expiries = Expiries()
        self.timed = self._expiries.timed

    def window_input(
        self, clause: WindowClause, key: PatternKey, taken: Sequence[WindowInput], *, opens: bool
    ) -> WindowInput:
        """Return an input for these patterns that is none of `taken`, shared with other queries.

        Args:
            clause: the stream and the window.
            key: the patterns.
            taken: the inputs of the query.
            opens: other queries may share its plan at any time, so that its rows must be stamped;
                else only those of a window in use are.
        """
        share_key = (clause.stream, clause.window, key)
        share = [each for each in self._shared.get(share_key, ()) if each not in taken]
        stamped = opens
        if not opens:
            for window in share:
                if window.watermark is None and not window.used:
                    return window
            # Of what is kept for ever only those keep rows who need them, so others cannot share.
            stamped = not isinstance(clause.window, All) and any(
                each.watermark is None for each in share
            )
        if stamped:
            for window in share:
                if window.watermark is not None:
                    return window
        return self._new(clause, key, share_key, self._watermark if stamped else None)

    def _new(
        self, clause: WindowClause, key: PatternKey, share_key: _Key, watermark: Watermark | None
    ) -> WindowInput:
        stream = self._stream(clause.stream)
        make: type[WindowInput] = StarWindow
        matcher: TripleMatcher | StarMatcher
        if len(key.patterns) == 1:
            make, matcher = TripleWindow, TripleMatcher(key)
        else:
            matcher = StampedStarMatcher(key, watermark) if watermark else StarMatcher(key)
        window = make(
            clause.window, matcher, stream, next(self._numbers), self.touched.append, watermark
        )
        if watermark is not None and not window.keeps_log:
            # Later queries may want its rows.
            assert window.bag is not None
        self._shared.setdefault(share_key, []).append(window)
        self._streams[window] = stream, share_key
        stream.listen(window)
        if window.slides:
            window.slide_among(self.sliding)
        if window.moves:
            self._expiries.add(window)
        return window

    def position(self, window: WindowInput) -> int:
        """Return the time, or the number, of the last arrival in the stream of a window."""
        stream, _ = self._streams[window]
        return stream.triples if window.by_count else stream.latest

    def slides(self, clauses: Iterable[WindowClause]) -> list[tuple[StreamClock, int]]:
        """Return the slides of clauses, each with the time of its stream."""
        result: dict[tuple[StreamClock, int], None] = {}
        for clause in clauses:
            if isinstance(clause.window, Range) and clause.window.slide is not None:
                every = self.streams.values() if clause.varies else (self._stream(clause.stream),)
                result.update({(each, clause.window.slide): None for each in every})
        return list(result)

    def drop_idle(self) -> None:
        for window in [each for each in self._streams if not each.consumers]:
            self.drop(window)

    def drop(self, window: WindowInput) -> None:
        stream, key = self._streams.pop(window)
        stream.leave(window)
        self._expiries.remove(window)
        self.sliding.pop(window, None)
        if window in self.touched:
            self.touched.remove(window)
        share = self._shared[key]
        share.remove(window)
        if not share:
            del self._shared[key]

    def expire(self, front: int) -> None:
        for log, width, each in self.timed:
            if log and log[0][0] < front - width:
                each.expire(front)

    def admit(self, front: int) -> None:
        for window in tuple(self.sliding):
            if window.empty:
                del self.sliding[window]
            else:
                window.admit(front)

    def moved(self, stream: ElementStream) -> None:
        """Note that a stream has another distance in time from the engine, or went back."""
        self._expiries.moved(stream, stream.inputs)

    def boundary(
        self, before: int, streams: Collection[ElementStream] | None = None, *, gone: bool = True
    ) -> int:
        """Return the first instant of the engine, or of `streams`, at which a slide changes.

        If it is not before another, that. Only with `gone` it matters that rows go.
        """
        changes = [
            each.next_change(gone=gone) + (each.time.lag if streams is None else 0)
            for each in self.sliding
            if streams is None or each.time in streams
        ]
        return min(before, *changes) if changes else before

    def next_gone(self, before: int, streams: Collection[ElementStream] | None = None) -> int:
        """Return the same of the windows of plans with differences that lose rows."""
        if streams is None:
            return self._expiries.next_gone(before)
        gone = [
            each.next_gone
            for stream in streams
            for each in stream.inputs
            if each.netted and each.moves
        ]
        return min([before, *gone])

    def __len__(self) -> int:
        return len(self._streams)
