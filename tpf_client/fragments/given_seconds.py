"""Numbers of seconds that callers give."""

from annotations.seconds import MOST_SECONDS, is_seconds


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
        if value is not None and not (is_seconds(value) and least <= value <= most):
            raise ValueError(f"{name}: {least:g} to {most:g} seconds, not {value}")
