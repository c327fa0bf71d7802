"""Planned, cancelled and postponed instants against a table."""

from hypothesis import given
from hypothesis import strategies as st

from tpf_server.continuous.runtime.due_instants import DueInstants

steps = st.lists(
    st.tuples(st.sampled_from(["plan", "give up", "drop", "put off"]), st.integers(0, 5),
              st.integers(0, 30)),
    max_size=60,
)  # fmt: skip


@given(steps)
def test_the_first_of_those_that_count(actions: list[tuple[str, int, int]]) -> None:
    due: DueInstants[str] = DueInstants()
    table: dict[int, int] = {}
    for action, item, at in actions:
        first = min(((when, each) for each, when in table.items()), default=None)
        if action == "plan":
            table[item] = at
            due.plan(at, item, f"item {item}")
        elif action == "give up":
            table.pop(item, None)
            due.give_up(f"item {item}")
        elif first is not None:
            assert due.first(first[0]) is None
            assert due.first(first[0] + 1) == (first[0], f"item {first[1]}")
            if action == "drop":
                del table[first[1]]
                due.drop()
            else:
                table[first[1]] = at
                due.put_off(at)
        assert due.next == {f"item {each}": when for each, when in table.items()}
        assert len(due.heap) <= 2 * len(table) + 65


def test_what_was_given_up_does_not_stay() -> None:
    due: DueInstants[int] = DueInstants()
    for at in range(10_000):
        due.plan(at, 0, 0)
    assert len(due.heap) < 100
    assert due.first(9_999) is None
    assert due.first(10_000) == (9_999, 0)
