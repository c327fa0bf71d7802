"""Numbers of seconds that users and callers give."""

from collections.abc import Callable

MOST_SECONDS = 1e9
"""So many are taken, some 30 years: with more, sums of instants end after the year 9999."""


def is_seconds(value: float) -> bool:
    """Whether this many can be reckoned with: a number, and not more than `MOST_SECONDS`."""
    return abs(value) <= MOST_SECONDS


def seconds_from(least: float, most: float = MOST_SECONDS) -> Callable[[str | float], float]:
    """Reads the seconds of an option.

    Args:
        least: the fewest that are taken.
        most: the most that are taken.

    Returns:
        A function that raises `ValueError` where a text is no number, or one out of range; what it
        is called is what help calls the value.
    """

    def seconds(text: str | float) -> float:
        value = float(text)
        if not least <= value <= most:
            raise ValueError(f"{_range(least, most)}, not {text}")
        return value

    return seconds


def check_seconds(least: float = 0.0, most: float = MOST_SECONDS, **given: float | None) -> None:
    """See to it that numbers of seconds can be reckoned with.

    Args:
        least: the fewest that each may be.
        most: the most that each may be.
        given: the numbers, by the names that callers know; ``None``: it is not given.

    Raises:
        ValueError: one is none, or out of range.
    """
    for name, value in given.items():
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name}: {_range(least, most)}, not {value}")


def _range(least: float, most: float) -> str:
    return f"{least:.12g} to {most:.12g} seconds"
