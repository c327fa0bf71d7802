"""Random changes of the inputs of operators."""

from collections import Counter

from hypothesis import strategies as st

from tpf_client.dataflow.changes import Solution

Tick = list[tuple[int, Solution, int]]
"""Changes: of which input, the solution, and how many copies come or go."""


@st.composite
def timelines(draw: st.DrawFn, *inputs: st.SearchStrategy[Solution]) -> list[Tick]:
    """Ticks of changes of several inputs; never negative at the end of a tick, but within it."""
    present = [Counter() for _ in inputs]  # type: ignore[var-annotated]
    ticks = []
    for _ in range(draw(st.integers(1, 4))):
        tick: Tick = []
        for place, rows in enumerate(inputs):
            for row in draw(st.lists(rows, max_size=5)):
                present[place][row] += 1
                tick.append((place, row, 1))
            there = sorted(present[place].elements())
            for row in draw(st.lists(st.sampled_from(there), max_size=4)) if there else []:
                if present[place][row] > 0:
                    present[place][row] -= 1
                    tick.append((place, row, -1))
        ticks.append(draw(st.permutations(tick)))
    return ticks
