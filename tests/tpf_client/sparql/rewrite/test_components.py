"""Components, compared with a plain reading of what connects means."""

from hypothesis import given
from hypothesis import strategies as st

from tpf_client.sparql.rewrite.join_order import components

ITEMS = st.lists(st.frozensets(st.integers(0, 9), max_size=3), max_size=9)


@given(ITEMS)
def test_items_are_together_if_and_only_if_a_chain_of_names_connects_them(
    sets: list[frozenset[int]],
) -> None:
    groups = components(range(len(sets)), lambda each: sets[each])
    assert sorted(each for group in groups for each in group) == list(range(len(sets)))
    assert groups == sorted(map(sorted, groups))
    reached = {each: {each} for each in range(len(sets))}
    for _ in sets:
        for known in reached.values():
            names = frozenset().union(*(sets[each] for each in known))
            known |= {each for each in reached if names & sets[each]}
    assert {frozenset(group) for group in groups} == {frozenset(r) for r in reached.values()}
