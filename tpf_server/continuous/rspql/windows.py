"""The windows of RSP-QL: which elements they hold at an instant, and when they close.

A sliding window of width α and slide β that begins at t0 is a sequence of fixed windows (o, c]: the
first opens at t0, each is α wide, and opens β after the one before. At an instant t the *present*
window is the one of those with o < t <= c that closes first; what the query sees are its elements
up to t. (Where β is longer than α there are instants without a present window.) A window in the
past, ``FROM NOW-a TO NOW-b``, is that of α = a - b, seen b later.

Source: paper 005, section 3; paper 006 for windows in the past and those that count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final

from tpf_server.continuous.csparql.windows import LogicalWindow, Occurrence, PhysicalWindow

_NUMBER: Final = attrgetter("number")


@dataclass(frozen=True, slots=True)
class SlidingWindow(LogicalWindow):
    """``[RANGE range STEP step]``, in milliseconds.

    Args:
        start: t0; no element up to it is in any window.
        past: how much later everything is seen.
        own: whether it is moved on by the arrivals of its query, so that nobody shares it.
    """

    start: int = 0
    past: int = 0
    own: bool = False

    @property
    def shared(self) -> bool:
        """Whether queries may have it in common."""
        return not self.own

    @property
    def first_close(self) -> int:
        """The first instant at which a window closes."""
        return self.start + self.range + self.past

    def closes(self, at: int) -> int:
        """When the present window at an instant closes: the first such instant not before it."""
        first = self.first_close
        return max(first, first - (first - at) // self.step * self.step)

    def closed(self, at: int) -> int | None:
        """The last instant up to this at which a window closed, if one has."""
        first = self.first_close
        return None if at < first else first + (at - first) // self.step * self.step

    def bounds(self, at: int) -> tuple[int, int]:
        """The elements that are seen at an instant have timestamps in (lower, upper]."""
        return self.closes(at) - self.past - self.range, at - self.past

    def leaves(self, timestamp: int) -> int:
        """The first instant at which an element is not seen any more that was seen before."""
        first = self.first_close
        # It is in the windows that open before it; the last of them that is not the present one.
        beyond = timestamp + self.past + self.range
        close = first + max(0, -((first - beyond) // self.step)) * self.step
        return close - self.step + 1

    def __str__(self) -> str:
        if self.past:
            beginning = f"FROM NOW-{self.range + self.past}ms TO NOW-{self.past}ms STEP"
            text = f"{beginning} {self.step}ms"
        else:
            text = f"RANGE {self.range}ms STEP {self.step}ms"
        return text + (f" STARTING AT {self.start}ms" if self.start else "")


@dataclass(frozen=True, slots=True)
class ElementWindow(PhysicalWindow):
    """``[ELEMENTS count STEP step]``: the last elements; it closes whenever `step` have come."""

    def full(self, inside: Sequence[Occurrence]) -> bool:
        """Whether the oldest of these triples is to go, and so its element."""
        numbers = groupby(map(_NUMBER, inside))
        return sum(1 for _ in numbers) > self.count

    def __str__(self) -> str:
        return f"ELEMENTS {self.count} STEP {self.step}"
