"""The windows of an engine: shared by queries, moved by time."""

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from annotations.terms import Term
from tpf_server.continuous.engine.windows.continuous_query import WindowClause
from tpf_server.continuous.engine.windows.expiries import Expiries
from tpf_server.continuous.engine.windows.matchers import PatternKey
from tpf_server.continuous.engine.windows.specification import All, Range
from tpf_server.continuous.engine.windows.star_window import StarWindow
from tpf_server.continuous.engine.windows.stream_time import StreamTime
from tpf_server.continuous.engine.windows.streams import ElementStream
from tpf_server.continuous.engine.windows.triple_window import TripleWindow
from tpf_server.continuous.engine.windows.watermark import Watermark
from tpf_server.continuous.engine.windows.window_input import WindowInput

_Key = tuple[object, ...]


class WindowRegistry:
    """All window inputs.

    There are two kinds. What is registered before any element came, or alone, takes a plain window,
    whose rows all its queries see. What is registered later than others shares a window whose rows
    are stamped, and sees those that came after it (see `Watermark`).

    Args:
        stream: gives the stream of a name.
        watermark: counts registrations.
        streams: all that there are.
        numbers: of which each window takes one, so that there is an order of all.

    Attributes:
        touched: windows in which rows came or went, and whose plans hold something back.
        streams: see above.
        timed: what to look at when time passes (see `Expiries`).
        sliding: windows whose elements wait for a boundary.
    """

    def __init__(
        self,
        stream: Callable[[str], ElementStream],
        watermark: Watermark,
        streams: Mapping[Term, ElementStream],
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.streams = streams
        self.touched: list[WindowInput] = []
        self.sliding: list[WindowInput] = []
        self._stream = stream
        self._watermark = watermark
        self._numbers = itertools.count() if numbers is None else numbers
        self._shared: dict[_Key, list[WindowInput]] = {}
        self._streams: dict[WindowInput, tuple[ElementStream, _Key]] = {}
        self._expiries = Expiries()
        self.timed = self._expiries.timed

    def window_input(
        self, clause: WindowClause, key: PatternKey, taken: Sequence[WindowInput], *, opens: bool
    ) -> WindowInput:
        """An input for these patterns that is none of `taken`, shared with other queries.

        Args:
            clause: the stream and the window.
            key: the patterns.
            taken: those that the query has already.
            opens: whether other queries are to share its plan whenever they come, so that its rows
                must be stamped. Otherwise they are only where the window is in use already.
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
        make = TripleWindow if len(key.patterns) == 1 else StarWindow
        window = make(
            clause.window, key, stream, next(self._numbers), self.touched.append, watermark
        )
        if watermark is not None and not window.keeps_log:
            # Later queries may want its rows.
            window.keep_rows()
        self._shared.setdefault(share_key, []).append(window)
        self._streams[window] = stream, share_key
        stream.listen(window)
        if window.slides:
            self.sliding.append(window)
        if window.moves:
            self._expiries.add(window)
        return window

    def position(self, window: WindowInput) -> int:
        """The time, or the number, of the last that came in the stream of a window."""
        stream, _ = self._streams[window]
        return stream.triples if window.by_count else stream.latest

    def slides(self, clauses: Iterable[WindowClause]) -> list[tuple[StreamTime, int]]:
        """The slides that clauses speak of, each with the time of its stream."""
        found: dict[tuple[StreamTime, int], None] = {}
        for clause in clauses:
            if isinstance(clause.window, Range) and clause.window.slide is not None:
                every = self.streams.values() if clause.varies else (self._stream(clause.stream),)
                found.update({(each, clause.window.slide): None for each in every})
        return list(found)

    def drop_idle(self) -> None:
        """Drop the windows that nobody listens to."""
        for window in [each for each in self._streams if not each.consumers]:
            self.drop(window)

    def drop(self, window: WindowInput) -> None:
        """Nobody listens to this window any more."""
        stream, key = self._streams.pop(window)
        stream.leave(window)
        self._expiries.remove(window)
        for windows in (self.sliding, self.touched):
            if window in windows:
                windows.remove(window)
        share = self._shared[key]
        share.remove(window)
        if not share:
            del self._shared[key]

    def expire(self, front: int) -> None:
        """Let go what is too old when the engine is at an instant."""
        for log, width, each in self.timed:
            if log and log[0][0] < front - width:
                each.expire(front)

    def admit(self, front: int) -> None:
        """Let in what has waited for its slide."""
        for window in self.sliding:
            window.admit(front)

    def moved(self, stream: ElementStream) -> None:
        """The time of a stream has another distance from that of the engine, or went back."""
        self._expiries.moved(stream, stream.inputs)

    def boundary(self, before: int | None) -> int | None:
        """The first instant at which a window with a slide changes; ``None`` where there is none.

        Args:
            before: an instant of the engine that it must be before; ``None`` asks for those only at
                which what waits comes in.
        """
        gone = before is not None
        found = [
            change + each.time.lag
            for each in self.sliding
            if (change := each.next_change(gone=gone)) is not None
        ]
        return _first(found, before)

    def next_gone(self, before: int) -> int | None:
        """The first instant at which something leaves a window of a plan that emits differences.

        Args:
            before: an instant of the engine that it must be before.
        """
        return self._expiries.next_gone(before)

    def next_gone_of(self, streams: Iterable[ElementStream], before: int) -> int | None:
        """The same for some streams, as an instant of these."""
        found = [
            window.last_instant(window.log[0][0]) + 1
            for stream in streams
            for window in stream.inputs
            if window.netted and window.moves and window.log
        ]
        return _first(found, before)

    def boundary_of(self, streams: Container[ElementStream], before: int) -> int | None:
        """The same for some streams, as an instant of these."""
        found = [
            change
            for each in self.sliding
            if self._streams[each][0] in streams
            and (change := each.next_change(gone=True)) is not None
        ]
        return _first(found, before)

    def __len__(self) -> int:
        return len(self._streams)


def _first(instants: Iterable[int], before: int | None) -> int | None:
    first = min(instants, default=None)
    return first if first is None or before is None or first < before else None
