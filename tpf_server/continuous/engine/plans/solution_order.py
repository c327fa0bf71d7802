"""The order in which the solutions of an emission are given."""

from collections.abc import Callable
from typing import Any, Final

from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.expressions.typed_terms import Remembered

_MOST: Final = 1_000
"""So many keys of solutions are remembered at most."""


class SolutionOrder:
    """Sorts solutions.

    Args:
        key: what solutions are sorted by; ``None``: they stay as they are.
        again: whether the same solutions come again and again, so that keys are remembered.
    """

    def __init__(self, key: Callable[[Solution], Any] | None, *, again: bool) -> None:
        self._key = key
        self._known: Remembered[Solution, Any] | None = Remembered() if again else None

    @property
    def remembered(self) -> int:
        """How many keys are remembered."""
        return 0 if self._known is None else len(self._known)

    def sort(self, solutions: list[tuple[Solution, int]]) -> None:
        """Put solutions, with how often they are there, in their order."""
        key, known = self._key, self._known
        if key is None or len(solutions) < 2:
            return
        if known is None or len(solutions) > _MOST:
            # Of so many, none is asked for again before they are forgotten.
            solutions.sort(key=lambda each: key(each[0]))
            return
        for solution, _ in solutions:
            if solution not in known:
                known[solution] = key(solution)
        solutions.sort(key=lambda each: known[each[0]])
        if len(known) > _MOST:
            present = {solution: known[solution] for solution, _ in solutions}
            known.clear()
            known.update(present)
