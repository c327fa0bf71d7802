"""Numbers of seconds from users and callers."""

import math
from collections.abc import Callable

MOST_SECONDS = 1e9
"""So many are taken, some 30 years: with more, sums of instants end after the year 9999."""


def is_seconds(value: float) -> bool:
    """True for a number of at most `MOST_SECONDS`."""
    return abs(value) <= MOST_SECONDS


def seconds_from(least: float, most: float = MOST_SECONDS) -> Callable[[str | float], float]:
    """Return a parser of options in seconds from `least` to `most`, named for help."""

    def seconds(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"{_range(least, most)}, not {text}")
        return value

    return seconds


def check_seconds(least: float = 0.0, most: float = MOST_SECONDS, **given: float | None) -> None:
    """Check numbers of seconds by name; ``None``: absent."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"{name}: {_range(least, most)}, not {value!r}")


def _range(least: float, most: float) -> str:
    return f"{least:.12g} to {most:.12g} seconds"
