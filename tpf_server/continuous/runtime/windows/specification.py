"""The specifications of windows.

At instant t, in milliseconds, a window holds the elements with a timestamp t' <= t and:

========================  ======================================================================
``NOW``                   t' = t
``ALL``                   every t'
``RANGE d``               t' >= t - d
``RANGE d SLIDE s``       as ``RANGE d`` at the last multiple of s that is not after t
``TRIPLES n``             the n triples that came last, whatever their timestamps
========================  ======================================================================

Source: paper 000 (CQELS, 2011), sections 3.2 and 4.1. A slide is anchored at the epoch, so that all
windows with the same slide move together.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

# Units of time, the same in all languages of continuous queries.

_NANOSECONDS: Final = {
    1: ("ns", "nanosecond"),
    1_000_000: ("ms", "millisecond", "milli"),
    1_000_000_000: ("s", "sec", "second"),
    60_000_000_000: ("m", "min", "minute"),
    3_600_000_000_000: ("h", "hour"),
    86_400_000_000_000: ("d", "day"),
}
_SHORTEST_PLURAL: Final = 4
"""Letters: `secs`, but not `ss`."""
_LENGTHS: Final = {name: length for length, names in _NANOSECONDS.items() for name in names}


def nanoseconds_of(unit: str) -> int | None:
    """Return the length of a unit, by its name in the singular or the plural, or ``None``."""
    name = unit.lower()
    if len(name) >= _SHORTEST_PLURAL:
        name = name.removesuffix("s")
    return _LENGTHS.get(name)


@dataclass(frozen=True, slots=True)
class Now:
    """The elements of this very instant."""

    def __str__(self) -> str:
        return "NOW"


@dataclass(frozen=True, slots=True)
class All:
    """Everything since the query was registered."""

    def __str__(self) -> str:
        return "ALL"


@dataclass(frozen=True, slots=True)
class Range:
    """The last `width` milliseconds; where `slide` is given, as of its last multiple."""

    width: int
    slide: int | None = None

    def __str__(self) -> str:
        slide = "" if self.slide is None else f" SLIDE {self.slide}ms"
        return f"RANGE {self.width}ms{slide}"


@dataclass(frozen=True, slots=True)
class Triples:
    """The last `count` triples."""

    count: int

    def __str__(self) -> str:
        return f"TRIPLES {self.count}"


Window: TypeAlias = Now | All | Range | Triples
