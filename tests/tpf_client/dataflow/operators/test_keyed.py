"""Keyed nodes beside the plain operators, on random changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Variable
from tests.support.changes import Tick, check, timelines
from tests.support.examples import examples
from tests.support.plain_operators import plain_filter, plain_join, plain_project, plain_top_k
from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Input, Node
from tpf_client.dataflow.operators.basic import Extend, Filter, Output, Project
from tpf_client.dataflow.operators.group import Group
from tpf_client.dataflow.operators.hash_join import KeyedJoin, joins_by_key
from tpf_client.dataflow.operators.layout import layout
from tpf_client.dataflow.operators.order import TopK
from tpf_client.dataflow.state.groups import Grouping

A, B, C, D, E = (Variable(f"?{name}") for name in "abcde")
often = examples(30)


class Total:
    """The sum of what it sees, as an aggregate."""

    def __init__(self) -> None:
        self._total = 0

    def add(self, argument: int, count: int) -> None:
        self._total += argument * count

    def result(self) -> int:
        return self._total


def group(upstream: Input, keys: tuple[Variable, ...], total: Variable) -> Group:
    """Sum the last column by the others, without groups of a nine."""
    width = len(keys)

    def values_of(row: Solution) -> Solution:
        return row[: width + 1]

    return Group(upstream, Grouping(keys, [(total, Total)], values_of, lambda key: 9 not in key))


def plain(rows: Multiset, width: int) -> Multiset:
    """The plain twin of `group`."""
    sums: dict[Solution, int] = {}
    for row, count in rows.items():
        sums[row[:width]] = sums.get(row[:width], 0) + row[width] * count
    return Multiset((*key, total) for key, total in sums.items() if 9 not in key)


def rows(width: int, lowest: int = 1) -> st.SearchStrategy[Solution]:
    keys = st.sampled_from([value for value in (0, 1, 2, 3, 9) if value >= lowest])
    return st.tuples(*[keys] * width, st.integers(1, 5))


@often
@given(ticks=timelines(rows(2)))
def test_a_group_sends_what_changes(ticks: list[Tick]) -> None:
    one = Input((A, B, C))
    check([one], group(one, (A, B), D), lambda r: plain(r, 2), ticks)


@often
@given(ticks=timelines(rows(2)))
def test_filters_values_and_columns(ticks: list[Tick]) -> None:
    one = Input((A, B, C))
    grouped = group(one, (A, B), D)
    odd = Filter(grouped, lambda row: bool(row[2] % 2), asks=True)
    more = Extend(odd, E, lambda row: row[0] * row[2], asks=True)
    copied = Project(more, (*more.schema, C), {C: D}, asks=True)
    node = Project(copied, (E, C, B), asks=True)
    assert node.key is None

    def twin(r: Multiset) -> Multiset:
        kept = plain_filter(plain(r, 2), lambda row: bool(row[2] % 2))
        wider: Multiset = Multiset()
        for row, count in kept.items():
            wider[(*row, row[0] * row[2], row[2])] += count
        return plain_project(wider, (A, B, D, E, C), (E, C, B))

    check([one], node, twin, ticks)


def test_columns_that_come_out_as_they_went_in_cost_nothing() -> None:
    grouped = group(Input((A, B)), (A,), B)
    node = Project(Project(grouped, (A, B, C), {C: B}, asks=True), (A, C), asks=True)
    assert node.row is grouped.row
    assert node.key == (A,)
    assert Project(node, (D, C), {D: A}, asks=True).key == (D,)


@pytest.mark.parametrize("right_keys", [(A, B), (B, A)])
@often
@given(ticks=timelines(rows(2, lowest=0), rows(2, lowest=0)))
def test_a_join_by_key(ticks: list[Tick], right_keys: tuple[Variable, ...]) -> None:
    left, right = Input((A, B, C)), Input((*right_keys, C))
    one, other = group(left, (A, B), D), group(right, right_keys, E)
    assert joins_by_key(one, other)
    how = layout(one.schema, one.certain, other.schema, other.certain)
    check(
        [left, right],
        KeyedJoin(one, other),
        lambda a, b: plain_join(plain(a, 2), plain(b, 2), how),
        ticks,
    )


def test_groups_join_by_all_that_they_share_or_not_by_key() -> None:
    def joins(left: Node, right: Node) -> bool:
        return joins_by_key(left, right)

    def grouped(keys: tuple[Variable, ...], total: Variable) -> Group:
        return group(Input((*keys, C)), keys, total)

    assert joins(grouped((A, B), D), grouped((B, A), E))
    assert not joins(grouped((A, B), D), grouped((A,), E))
    assert not joins(grouped((A, B), D), grouped((A, B), D))
    assert not joins_by_key(grouped((A, B), D), Input((A, B)))


@pytest.mark.parametrize(("offset", "limit"), [(0, 1), (0, 2), (1, 3)])
@often
@given(ticks=timelines(rows(2, lowest=0)))
def test_the_first_in_an_order(ticks: list[Tick], offset: int, limit: int) -> None:
    def key(row: Solution) -> tuple[int, int]:
        return (-row[2], row[1])

    one = Input((A, B, C))
    node = TopK(group(one, (A, B), D), key, offset, limit, asks=True)
    # So few that they run out.
    node.reserve = offset + limit
    check([one], node, lambda r: plain_top_k(plain(r, 2), key, offset, limit), ticks)


@often
@given(ticks=timelines(rows(1, lowest=0), rows(1, lowest=0)))
def test_the_first_of_a_join(ticks: list[Tick]) -> None:
    def key(row: Solution) -> int:
        return -row[1] * row[2]

    left, right = Input((A, B)), Input((A, B))
    one, other = group(left, (A,), D), group(right, (A,), E)
    how = layout(one.schema, one.certain, other.schema, other.certain)
    node = TopK(KeyedJoin(one, other), key, 0, 2, asks=True)
    node.reserve = 2
    check(
        [left, right],
        node,
        lambda a, b: plain_top_k(plain_join(plain(a, 1), plain(b, 1), how), key, 0, 2),
        ticks,
    )


def test_the_best_few_are_chosen_anew_only_when_they_run_out() -> None:
    one = Input((A, B))
    node = TopK(group(one, (A,), B), lambda row: -row[1], 0, 10, asks=True)
    output = Output(node, node.schema)
    for number in range(1000):
        one.push((10 + number, 1 + number % 100), 1)
        node.flush()
    assert node.rebuilt == 0
    best = sorted((-(1 + n % 100), 10 + n) for n in range(1000))
    for value, key in best:
        one.push((key, -value), -1)
        node.flush()
    assert not list(output.rows())
    assert node.rebuilt <= 1000 / 22 + 1
