"""Means, confidence intervals and percentiles."""

import random

import pytest

from experiments.harness.estimates import MeanEstimate, estimate, percentile


def test_interval_of_a_known_sample() -> None:
    found = estimate([5.0, 7.0, 9.0])
    assert found is not None
    # mean 7, standard deviation 2, t(0.975; 2) = 4.303
    assert found.mean == 7
    assert found.high == pytest.approx(7 + 4.303 * 2 / 3**0.5)
    assert found.low == pytest.approx(7 - 4.303 * 2 / 3**0.5)


def test_a_single_value_has_no_interval() -> None:
    assert estimate([4.0]) == MeanEstimate(4.0, None, None, 1)
    assert estimate([]) is None


@pytest.mark.parametrize("size", [2, 5, 20, 40])
def test_the_interval_holds_the_mean_in_about_95_of_100_cases(size: int) -> None:
    chance = random.Random(size)
    hits = 0
    for _ in range(1000):
        found = estimate(chance.gauss(3, 2) for _ in range(size))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 3 <= found.high
    assert 925 <= hits <= 975


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(n) for n in range(1, 101)]
    random.Random(0).shuffle(values)
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 0) == 1
    assert percentile(values, 100) == 100
    assert percentile([7.0], 99) == 7
    for wrong in ([], values):
        with pytest.raises(ValueError):
            percentile(wrong, 101 if wrong else 50)
