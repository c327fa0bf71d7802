"""Means, confidence intervals and percentiles."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.harness.estimates import MeanEstimate, estimate, percentile, ratio_estimate

positive = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=6)


def test_interval_of_a_known_sample() -> None:
    found = estimate([5.0, 7.0, 9.0])
    assert found is not None
    # mean 7, standard deviation 2, t(0.975; 2) = 4.302653
    assert found.mean == 7
    assert found.high == pytest.approx(7 + 4.302653 * 2 / 3**0.5)
    assert found.low == pytest.approx(7 - 4.302653 * 2 / 3**0.5)


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
    assert percentile([1.0, 2.0, 3.0], 50) == 2
    for wrong in ([], values):
        with pytest.raises(ValueError):
            percentile(wrong, 101 if wrong else 50)


@given(positive, positive, st.floats(0.01, 100))
def test_a_ratio_turns_round_and_grows_with_what_it_compares(
    before: list[float], after: list[float], factor: float
) -> None:
    found, back = ratio_estimate(before, after), ratio_estimate(after, before)
    larger = ratio_estimate(before, [factor * value for value in after])
    assert found is not None
    assert back is not None
    assert larger is not None
    assert found.mean * back.mean == pytest.approx(1)
    assert larger.mean == pytest.approx(factor * found.mean, rel=1e-6)
    assert (found.low is None) == (min(len(before), len(after)) == 1)
    if found.low is not None and found.high is not None and back.high is not None:
        assert found.low <= found.mean * (1 + 1e-9)
        assert found.mean <= found.high * (1 + 1e-9)
        if found.low > 0 and back.high < 1e300:
            assert found.low * back.high == pytest.approx(1)


def test_what_is_not_positive_has_no_ratio() -> None:
    assert ratio_estimate([0.0, 1.0], [1.0]) is None
    assert ratio_estimate([1.0], []) is None


def test_the_interval_of_a_ratio_holds_it_in_about_95_of_100_cases() -> None:
    chance = random.Random(7)
    hits = 0
    for _ in range(1000):
        before = [chance.lognormvariate(1, 0.1) for _ in range(5)]
        found = ratio_estimate(before, [chance.lognormvariate(2, 0.2) for _ in range(4)])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= math.e <= found.high
    assert 925 <= hits <= 990
