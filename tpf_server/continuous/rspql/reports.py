"""When a query of RSP-QL answers, and what of its answer it streams: the policies of the model.

A report is made at an instant where all strategies of the policy hold, for one of the windows:

==================  ==========================================================================
window close        a window closes then
periodic            the instant is a multiple of the period
content change      other elements are in the window than when the query last answered
non-empty content   elements are in the window
==================  ==========================================================================

The tick says where it is looked for such instants:

=====  =======================================================================================
time   at all
batch  where elements have come, after all with one timestamp: the last one since the tick before
tuple  at each element, in the order of arrival: the last one since the tick before that had
       passed, for window close and periodic; otherwise the instant of the element
=====  =======================================================================================

Source: paper 005, sections 3 and 4, after the SECRET model of Botan and others (VLDB 2010).
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

StreamOperator: TypeAlias = Literal["ISTREAM", "DSTREAM", "RSTREAM"]
"""What is streamed: what an answer has more than the one before, what it has less, or all of it."""

TickPolicy: TypeAlias = Literal["time", "batch", "tuple"]

STREAM_OPERATORS: Final[tuple[StreamOperator, ...]] = get_args(StreamOperator)
TICKS: Final[tuple[TickPolicy, ...]] = get_args(TickPolicy)


@dataclass(frozen=True, slots=True)
class ReportPolicy:
    """What must hold where a query answers; all that is said here.

    Args:
        window_close: see above.
        content_change: see above.
        non_empty: see above.
        period: of ``periodic``, in milliseconds; ``None``: it is not said.
    """

    window_close: bool = False
    content_change: bool = False
    non_empty: bool = False
    period: int | None = None

    @property
    def timing(self) -> bool:
        """Whether time alone says at which instants it may hold."""
        return self.window_close or self.period is not None

    @property
    def content(self) -> bool:
        """Whether it depends on what is in the windows."""
        return self.content_change or self.non_empty

    def __str__(self) -> str:
        said = (
            (self.window_close, "window close"),
            (self.content_change, "content change"),
            (self.non_empty, "non-empty content"),
            (self.period is not None, f"periodic {self.period}ms"),
        )
        return ", ".join(name for holds, name in said if holds)


WINDOW_CLOSE: Final = ReportPolicy(window_close=True)
"""The default, as of YASPER and RSP4J."""
