"""What time it is on a stream.

An engine has one time, which the newest element moves on: where elements of several streams come in
the order of time, every window is at the instant of the element that comes. A stream whose element
is older than that is behind the others. Its windows are set back to this element, and from then on
they are as far behind as the stream was then, until it has caught up or somebody who knows says how
late it is. A stream that is ahead of what somebody said keeps its own windows there, and moves no
others.
"""

from typing import Final, Protocol

NEVER: Final = -(2**63)
"""Before every instant."""


class Hiding(Protocol):
    """A window that keeps what others have pushed out of it, because its stream may be behind."""

    def trim(self) -> bool:
        """Let go of what its stream has passed; whether nothing is left."""


class StreamTime:
    """The time of a stream, from that of its engine.

    Attributes:
        elements: how many came.
        latest: the time of its newest element, or what the engine was told since: older ones are
            late.
        lag: how far it was behind the engine when its newest element came, in milliseconds.
        hiding: windows over it that keep what the time of others has pushed out of them.
        plain: whether it is neither behind nor ahead, and nothing is hidden.
    """

    def __init__(self) -> None:
        self.elements = 0
        self.latest = NEVER
        self.lag = 0
        self.hiding: list[Hiding] = []
        self.plain = True
        # The time of its newest element, and how many there were when it was last told something.
        self._own = NEVER
        self._counted = 0

    def at(self, front: int) -> int:
        """The time of the stream when that of the engine is `front`."""
        own = front - self.lag
        return own if own > self.latest else self.latest

    def settle(self, front: int) -> None:
        """Nothing older than its newest element will come, and the engine is at `front`."""
        if self.hiding:
            self.hiding[:] = [each for each in self.hiding if not each.trim()]
        self.plain = not self.lag and not self.hiding and self.latest <= front

    def hide(self, window: Hiding) -> None:
        """A window keeps something."""
        self.plain = False
        if window not in self.hiding:
            self.hiding.append(window)

    def tell(self, at: int, front: int) -> None:
        """Everything up to an instant has come, and the engine is at `front`.

        What is told may be less than it was before, where a clock was set back. Then elements are
        late no longer that are older than what was told by mistake.
        """
        if self.elements != self._counted:
            self._own = self.latest
            self._counted = self.elements
        self.latest = max(at, self._own)
        self.settle(front)
