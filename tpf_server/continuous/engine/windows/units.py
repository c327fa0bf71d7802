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
_LENGTHS: Final = {name: length for length, names in _NANOSECONDS.items() for name in names}


def nanoseconds_of(unit: str) -> int | None:
    """How long a unit is, by its name in the singular or the plural; ``None``: there is none."""
    name = unit.lower()
    return _LENGTHS.get(name) or _LENGTHS.get(name.removesuffix("s"))
