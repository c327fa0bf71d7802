"""The windows of an engine: shared by queries, moved by time."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpf_server.cqels.parser import WindowClause
from tpf_server.cqels.streams import Stream
from tpf_server.cqels.windows.matchers import PatternKey
from tpf_server.cqels.windows.window_input import WindowInput


class WindowRegistry:
    """All window inputs.

    Args:
        stream: gives the stream of a name.
        numbers: of which each window takes one, so that there is an order of all.

    Attributes:
        timed: the log, the width and the input of each window that time empties.
        sliding: windows whose elements wait for a boundary.
    """

    def __init__(
        self, stream: Callable[[str], Stream], numbers: Iterator[int] | None = None
    ) -> None:
        self.timed: list[tuple[deque[tuple[Any, ...]], int, WindowInput]] = []
        self.sliding: list[WindowInput] = []
        self._stream = stream
        self._numbers = itertools.count() if numbers is None else numbers
        self._shared: dict[object, list[WindowInput]] = {}
        self._streams: dict[WindowInput, Stream] = {}

    def window_input(
        self, clause: WindowClause, key: PatternKey, taken: Sequence[WindowInput]
    ) -> WindowInput:
        """An input for these patterns, shared with other queries as long as nothing has come."""
        share = self._shared.setdefault((clause.stream, clause.window, key), [])
        for window in share:
            if not window.used and window not in taken:
                return window
        window = WindowInput(clause.window, key, next(self._numbers))
        share.append(window)
        stream = self._streams[window] = self._stream(clause.stream)
        stream.listen(window)
        if window.keeps_log and not window.by_count:
            self.timed.append((window.log, window.width, window))
            if window.slides:
                self.sliding.append(window)
        return window

    def drop_idle(self) -> None:
        """Drop the windows that nobody listens to."""
        for window in [each for each in self._streams if not each.consumers]:
            self.drop(window)

    def drop(self, window: WindowInput) -> None:
        """Nobody listens to this window any more."""
        self._streams.pop(window).leave(window)
        self.timed[:] = [each for each in self.timed if each[2] is not window]
        if window in self.sliding:
            self.sliding.remove(window)
        for key, share in tuple(self._shared.items()):
            if window in share:
                share.remove(window)
                if not share:
                    del self._shared[key]

    def expire(self, at: int) -> None:
        """Let go what is too old at a stream time."""
        for log, width, window in self.timed:
            if log and log[0][0] < at - width:
                window.expire(at)

    def admit(self, at: int) -> None:
        """Let in what has waited for its slide."""
        for window in self.sliding:
            window.admit(at)

    @property
    def oldest(self) -> Iterator[int | None]:
        """The time of the oldest element of each window over time; ``None`` where all are kept."""
        for window in self._streams:
            if not window.keeps_log:
                yield None
            elif not window.by_count and window.oldest is not None:
                yield window.oldest
