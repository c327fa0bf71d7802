"""The greedy join order against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Variable
from tpf_client.sparql.rewrite.join_order import greedy_order

NAMES = st.frozensets(st.sampled_from([Variable(f"?{name}") for name in "abcde"]), max_size=2)
ITEMS = st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=7)


@given(ITEMS, NAMES)
def test_the_cheapest_that_is_connected_comes_next(
    items: list[tuple[frozenset[Variable], int]], known: frozenset[Variable]
) -> None:
    def cost(place: int, bound: set[Variable]) -> int:
        # What is bound makes it cheaper, as a lookup is.
        return items[place][1] - len(items[place][0] & bound)

    order = list(greedy_order(range(len(items)), lambda each: items[each][0], cost, known))
    assert sorted(order) == list(range(len(items)))
    rest, bound = list(range(len(items))), set(known)
    for taken in order:
        connected = [each for each in rest if items[each][0] & bound]
        costs = [(cost(each, bound), each) for each in connected or rest]
        assert taken == min(costs)[1]
        rest.remove(taken)
        bound |= items[taken][0]


def test_costs_are_asked_when_the_next_is_wanted_and_never_of_what_is_alone() -> None:
    costs = {"a": 1, "b": 2, "c": 3}
    asked: list[str] = []

    def cost(item: str, _: object) -> int:
        asked.append(item)
        return costs[item]

    order = greedy_order("abc", lambda _: (), cost)
    assert next(order) == "a"
    costs["b"] = 9
    assert list(order) == ["c", "b"]
    assert asked == ["a", "b", "c", "b", "c"]
    asked.clear()
    assert list(greedy_order("a", lambda _: (), cost)) == ["a"]
    assert not asked


def test_what_an_item_binds_may_be_less_than_what_connects_it() -> None:
    x, y = Variable("?x"), Variable("?y")
    names = {"optional": (x, y), "other": (y,), "first": (x,)}
    order = greedy_order(
        names, names.__getitem__, lambda *_: 0, [x], lambda each: () if each == "optional" else (y,)
    )
    assert list(order) == ["optional", "first", "other"]


def test_equal_items_are_all_there() -> None:
    pair = ("same", "same")
    assert list(greedy_order(pair, lambda _: (), lambda *_: 0)) == list(pair)
