"""Means with confidence intervals, and percentiles."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LARGEST = math.log(1e300)


class MeanEstimate(NamedTuple):
    """A mean, its 95 % confidence interval (unless of a single value), and the count."""

    mean: float
    low: float | None
    high: float | None
    repetitions: int


def estimate(values: Iterable[float]) -> MeanEstimate | None:
    """Return mean and 95 % confidence interval by Student's t, if there are values."""
    numbers = list(values)
    if not numbers:
        return None
    mean = statistics.fmean(numbers)
    if len(numbers) == 1:
        return MeanEstimate(mean, None, None, 1)
    half = _quantile(len(numbers) - 1) * statistics.stdev(numbers) / math.sqrt(len(numbers))
    return MeanEstimate(mean, mean - half, mean + half, len(numbers))


def ratio_estimate(before: Sequence[float], after: Sequence[float]) -> MeanEstimate | None:
    """Return the ratio of geometric means with its 95 % interval, by Welch.

    Single values have no interval; ``None`` where one is missing or not positive.
    """
    if not before or not after or min(*before, *after) <= 0:
        return None
    first, second = ([math.log(value) for value in values] for values in (before, after))
    ratio = statistics.fmean(second) - statistics.fmean(first)
    repetitions = min(len(first), len(second))
    if repetitions == 1:
        return MeanEstimate(math.exp(ratio), None, None, 1)
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    half = 0.0
    if total := sum(parts):
        shares = zip(parts, (first, second), strict=True)
        degrees = total**2 / sum(part**2 / (len(values) - 1) for part, values in shares)
        half = _quantile(max(1.0, degrees)) * math.sqrt(total)
    low, high = math.exp(ratio - half), math.exp(min(ratio + half, _LARGEST))
    return MeanEstimate(math.exp(ratio), low, high, repetitions)


def _quantile(degrees: float) -> float:
    from scipy.special import stdtrit  # which takes long to load

    return float(stdtrit(degrees, 0.975))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank."""
    if not values or not 0 <= percent <= 100:
        raise ValueError("a percentile needs values, and a percentage from 0 to 100")
    rank = max(1, math.ceil(percent / 100 * len(values)))
    return sorted(values)[rank - 1]
