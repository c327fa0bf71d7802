"""The order of solutions, whether or not their keys are remembered."""

from random import Random

import pytest

from tpf_client.dataflow.changes import Solution
from tpf_server.continuous.runtime.plans.plan import SolutionOrder

MOST = 1_000


@pytest.mark.parametrize("again", [False, True])
def test_solutions_are_in_the_order_of_their_keys_and_those_of_one_key_stay(again: bool) -> None:
    chance = Random(7)
    order = SolutionOrder(lambda each: -each[0], again=again)
    for _ in range(300):
        size = chance.randrange(12)
        some: list[tuple[Solution, int]] = [
            ((chance.randrange(9), chance.randrange(400)), 1) for _ in range(size)
        ]
        expected = sorted(some, key=lambda each: -each[0][0])
        order.sort(some)
        assert some == expected


def test_without_an_order_they_stay() -> None:
    some: list[tuple[Solution, int]] = [((3,), 1), ((1,), 2)]
    SolutionOrder(None, again=True).sort(some)
    assert some == [((3,), 1), ((1,), 2)]


def test_a_key_is_computed_once() -> None:
    asked: list[tuple[int, ...]] = []

    def key(solution: tuple[int, ...]) -> int:
        asked.append(solution)
        return solution[0]

    order = SolutionOrder(key, again=True)
    for _ in range(3):
        order.sort([((2,), 1), ((1,), 1)])
    assert asked == [(2,), (1,)]


@pytest.mark.parametrize("size", [MOST // 2, MOST, 50 * MOST])
def test_no_more_keys_are_remembered_than_may_be(size: int) -> None:
    asked: list[tuple[int, ...]] = []

    def key(solution: tuple[int, ...]) -> int:
        asked.append(solution)
        return -solution[0]

    order = SolutionOrder(key, again=True)
    for first in range(5):
        numbers = range(first, first + size)
        some: list[tuple[Solution, int]] = [((number,), 1) for number in numbers]
        order.sort(some)
        assert [each[0] for each, _ in some] == [*reversed(numbers)]
        assert order.remembered <= MOST
    assert size > MOST or len(asked) == size + 4
