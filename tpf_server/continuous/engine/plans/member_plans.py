"""Plans of queries that differ in constants: whom one takes, and whose solutions it has."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tpf_client.dataflow.changes import Solution
from tpf_server.continuous.engine.plans.plan import Plan
from tpf_server.continuous.engine.plans.templates import Template, differing
from tpf_server.continuous.engine.static.static_cache import INSTANCE, SLICE


class MemberPlan(NamedTuple):
    """A plan of queries that differ in constants only.

    Args:
        template: of one of them.
        numbers: of the constants in which its instances may differ; ``None``: it has no instances.
        plan: the plan.
    """

    template: Template
    numbers: tuple[int, ...] | None
    plan: Plan

    def takes(self, other: "MemberPlan") -> bool:
        """Whether it has a place for the queries of another one, if both hold the same."""
        different = {*differing(other.template, self.template), *(other.numbers or ())}
        if self.numbers is None:
            return other.numbers is None and not different
        # What joins tell apart, and orders of their own, hold what nobody else has.
        lifted = self.plan.lifted
        apart = INSTANCE in lifted or (SLICE in lifted and len(lifted) > 1)
        return not apart and different <= set(self.numbers)


def shares_of(
    solutions: Sequence[tuple[Solution, int]], column: int
) -> Iterator[tuple[Sequence[int], Sequence[tuple[Solution, int]]]]:
    """Numbers of instances, and the solutions that they all have.

    Args:
        solutions: those of all.
        column: has the number of one instance, or the numbers of several.
    """
    if len(solutions) == 1:
        numbers: Any = solutions[0][0][column]
        yield numbers if isinstance(numbers, tuple) else (numbers,), solutions
        return
    places: dict[int, list[int]] = {}
    for place, (solution, _) in enumerate(solutions):
        numbers = solution[column]
        for number in numbers if isinstance(numbers, tuple) else (numbers,):
            places.setdefault(number, []).append(place)
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, own in places.items():
        alike.setdefault(tuple(own), []).append(number)
    for shared, found in alike.items():
        yield found, [solutions[place] for place in shared]
