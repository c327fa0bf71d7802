"""Random changes of the inputs of operators, and the expected output."""

from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Node
from tpf_client.dataflow.operators.basic import Output

Tick = list[tuple[int, Solution, int]]
"""Changes: of which input, the solution, and how many copies come or go."""


@st.composite
def timelines(draw: st.DrawFn, *inputs: st.SearchStrategy[Solution]) -> list[Tick]:
    """Ticks of changes of several inputs; counts are never negative at the end of a tick."""
    present: list[Counter[Solution]] = [Counter() for _ in inputs]
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


def check(
    inputs: Sequence[Input],
    node: Node,
    twin: Callable[..., Multiset],
    ticks: list[Tick],
    compare: Callable[[Multiset, Multiset], bool] = Counter.__eq__,
) -> None:
    """Compare the output after every tick with the twin's on the same inputs."""
    flow = Dataflow(TermDictionary())
    for each in (*inputs, node):
        flow.add(each)
    output = Output(node, node.schema)
    totals = [Multiset() for _ in inputs]
    for tick in ticks:
        for place, row, count in tick:
            totals[place][row] += count
            inputs[place].push(row, count)
        flow.flush()
        assert all(count > 0 for count in output.multiset().values())
        assert compare(output.multiset(), twin(*(+total for total in totals)))
        output.take_changes()
    for row, count in (+totals[0]).items():
        inputs[0].push(row, -count)
    flow.flush()
    assert compare(output.multiset(), twin(Multiset(), *(+total for total in totals[1:])))
