"""Units of time, the same in all languages of continuous queries."""

from typing import Final

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
    """How long a unit is, by its name in the singular or the plural; ``None``: there is none."""
    name = unit.lower()
    if len(name) >= _SHORTEST_PLURAL:
        name = name.removesuffix("s")
    return _LENGTHS.get(name)
