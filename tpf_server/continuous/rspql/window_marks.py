"""Which elements are in the windows of one query, as far as report policies ask for it."""

from bisect import bisect_left, bisect_right, insort
from typing import Final, TypeAlias

from tpf_server.continuous.rspql.windows import ElementWindow, SlidingWindow

_SPARE: Final = 256

WindowContent: TypeAlias = tuple[object, ...] | None
"""Equal for equal contents of a window; ``None`` where it is empty."""


class SlidingMarks:
    """The timestamps of the elements that came into a window over time."""

    def __init__(self, window: SlidingWindow) -> None:
        self.window = window
        self._marks: list[tuple[int, int]] = []
        self._came = 0

    def add(self, at: int) -> None:
        """An element with this timestamp came."""
        self._came += 1
        insort(self._marks, (at, self._came))

    def closes(self, at: int) -> bool:
        """Whether a window closes at an instant."""
        return self.window.closed(at) == at

    def content(self, at: int) -> WindowContent:
        """What is in it at an instant."""
        lower, upper = self.window.bounds(at)
        begin = bisect_right(self._marks, lower, key=_timestamp)
        end = bisect_right(self._marks, upper, key=_timestamp)
        if begin >= end:
            return None
        # Marks are only added, so that as many between the same two are the same.
        return self._marks[begin], self._marks[end - 1], end - begin

    def leaving(self, at: int) -> int | None:
        """The first instant from this on at which an element leaves it, as far as is known."""
        place = bisect_left(self._marks, at, key=lambda mark: self.window.leaves(mark[0]))
        return None if place == len(self._marks) else self.window.leaves(self._marks[place][0])

    def forget(self, at: int) -> None:
        """Let go of elements that are in no window from an instant on."""
        if len(self._marks) > _SPARE:
            lower, _ = self.window.bounds(at)
            gone = bisect_right(self._marks, lower, key=_timestamp)
            if 2 * gone > len(self._marks):
                del self._marks[:gone]


class ElementMarks:
    """How many elements came into a window that counts them.

    Attributes:
        closed: whether the last of them has closed it, and nobody has looked since.
    """

    def __init__(self, window: ElementWindow) -> None:
        self.window = window
        self.closed = False
        self._came = 0

    def add(self, at: int) -> None:  # noqa: ARG002
        """An element came."""
        self._came += 1
        self.closed = self._came % self.window.step == 0

    def closes(self, at: int) -> bool:  # noqa: ARG002
        """Whether it closes at an instant."""
        return self.closed

    def content(self, at: int) -> WindowContent:  # noqa: ARG002
        """What is in it."""
        return (self._came,) if self._came else None

    def leaving(self, at: int) -> int | None:  # noqa: ARG002
        """Nothing leaves it by itself."""
        return None

    def forget(self, at: int) -> None:  # noqa: ARG002
        """It was looked at."""
        self.closed = False


def _timestamp(mark: tuple[int, int]) -> int:
    return mark[0]
