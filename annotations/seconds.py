"""Numbers of seconds that users give."""

from collections.abc import Callable

MOST_SECONDS = 1e9
"""So many are taken, some 30 years: with more, sums of instants end after the year 9999."""


def is_seconds(value: float) -> bool:
    """Whether this many can be reckoned with: a number, and not more than `MOST_SECONDS`."""
    return abs(value) <= MOST_SECONDS


def seconds_from(least: float) -> Callable[[str | float], float]:
    """Reads the seconds of an option.

    Args:
        least: the fewest that are taken.

    Returns:
        A function that raises `ValueError` where a text is no number, or one out of range; what it
        is called is what help calls the value.
    """

    def seconds(text: str | float) -> float:
        value = float(text)
        if not is_seconds(value) or value < least:
            raise ValueError(f"{least:g} to {MOST_SECONDS:g} seconds, not {text}")
        return value

    return seconds
