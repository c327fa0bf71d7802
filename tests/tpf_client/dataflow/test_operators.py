"""Every operator beside its plain twin, on random changes."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.namespaces import XSD
from annotations.terms import Term, Variable, literal
from tests.support.changes import Tick, check, timelines
from tests.support.examples import examples
from tests.support.plain_operators import (
    plain_closure,
    plain_distinct,
    plain_extend,
    plain_filter,
    plain_group,
    plain_join,
    plain_left_join,
    plain_lookup_join,
    plain_minus,
    plain_number,
    plain_project,
    plain_semi_join,
    plain_slice,
    plain_top_k,
    plain_union,
    plain_values,
)
from tpf_client.dataflow.changes import UNBOUND, Change, Multiset, Schema, Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Dataflow, Input, Meter, Node
from tpf_client.dataflow.operators.basic import (
    Distinct,
    Extend,
    Filter,
    Number,
    Output,
    Project,
    Union,
    Values,
)
from tpf_client.dataflow.operators.closure import Closure
from tpf_client.dataflow.operators.group import Group, PerKey
from tpf_client.dataflow.operators.hash_join import HashJoin, LookupJoin
from tpf_client.dataflow.operators.layout import Layout, layout
from tpf_client.dataflow.operators.matching import LeftJoin, Mark, Minus, SemiJoin, removes
from tpf_client.dataflow.operators.order import Slice, TopK
from tpf_client.dataflow.operators.service import OnDemand, at_once
from tpf_client.dataflow.state.aggregates import accumulator
from tpf_client.dataflow.state.groups import Grouping
from tpf_client.sparql.algebra import Aggregate, VariableRef
from tpf_client.sparql.expressions.typed_terms import TypedTerms

A, B, C, D = (Variable(f"?{name}") for name in "abcd")

few = examples(13)


def rows(width: int, loose: Sequence[int] = (), high: int = 3) -> st.SearchStrategy[Solution]:
    """Solutions of so many variables; the `loose` ones may be unbound."""
    return st.tuples(*(st.integers(0 if p in loose else 1, high) for p in range(width)))


def source(schema: Schema, loose: Sequence[int] = ()) -> Input:
    return Input(schema, frozenset(n for p, n in enumerate(schema) if p not in loose))


JOINS = [
    ((A, B), (), (B, C), ()),
    ((A, B), (), (C,), ()),
    ((A, B), (1,), (B, C), ()),
    ((A, B), (0, 1), (A, B, C), (0, 1)),
]


def joined(data: st.DataObject, shape: tuple) -> tuple[Input, Input, Layout, list[Tick]]:
    """Two inputs of a shape, how they are joined, and their changes."""
    left_schema, left_loose, right_schema, right_loose = shape
    left, right = source(left_schema, left_loose), source(right_schema, right_loose)
    how = layout(left.schema, left.certain, right.schema, right.certain)
    ticks = timelines(rows(len(left_schema), left_loose), rows(len(right_schema), right_loose))
    return left, right, how, data.draw(ticks)


@pytest.mark.parametrize("shape", JOINS)
@few
@given(data=st.data())
def test_hash_join(data: st.DataObject, shape: tuple) -> None:
    left, right, how, ticks = joined(data, shape)
    check([left, right], HashJoin(left, right), lambda one, two: plain_join(one, two, how), ticks)


@pytest.mark.parametrize("shape", JOINS)
@pytest.mark.parametrize("condition", [None, lambda row: sum(row) % 2 == 0])
@few
@given(data=st.data())
def test_left_join(data: st.DataObject, shape: tuple, condition: Callable | None) -> None:
    left, right, how, ticks = joined(data, shape)
    node = LeftJoin(left, right, condition)
    check([left, right], node, lambda one, two: plain_left_join(one, two, how, condition), ticks)


@pytest.mark.parametrize("shape", JOINS)
@pytest.mark.parametrize("negated", [False, True])
@few
@given(data=st.data())
def test_semi_join(data: st.DataObject, shape: tuple, negated: bool) -> None:
    left, right, how, ticks = joined(data, shape)
    node = SemiJoin(left, right, negated=negated)
    check([left, right], node, lambda one, two: plain_semi_join(one, two, how, negated), ticks)


@few
@given(timelines(rows(2), rows(2)))
def test_semi_join_with_a_mark(ticks: list[Tick]) -> None:
    left, right = source((A, B)), source((B, C))
    how = layout(left.schema, left.certain, right.schema, right.certain)

    def twin(one: Multiset, other: Multiset) -> Multiset:
        found = plain_semi_join(one, other, how, False)
        return Multiset({(*row, 8 if row in found else 9): n for row, n in one.items()})

    check([left, right], SemiJoin(left, right, mark=Mark(D, 8, 9)), twin, ticks)


@pytest.mark.parametrize("apart", [(), (A,)])
@pytest.mark.parametrize("shape", JOINS)
@few
@given(data=st.data())
def test_minus(data: st.DataObject, shape: tuple, apart: tuple) -> None:
    left, right, how, ticks = joined(data, shape)
    pair = removes(how, left.schema, right.schema, apart, {})
    node = Minus(left, right, apart)
    check([left, right], node, lambda one, two: plain_minus(one, two, how, pair), ticks)


class _Source:
    """Answers at once, and with every later change."""

    def __init__(self) -> None:
        self.known: Counter[Solution] = Counter()
        self.wanted: dict[Solution, Callable] = {}

    def request(self, key: Solution, deliver: Callable) -> None:
        assert key not in self.wanted
        self.wanted[key] = deliver
        deliver([(row, n) for row, n in self.known.items() if row[:1] == key])

    def release(self, key: Solution) -> None:
        del self.wanted[key]

    def change(self, row: Solution, count: int) -> None:
        self.known[row] += count
        if row[:1] in self.wanted:
            self.wanted[row[:1]]([(row, count)])


@few
@given(timelines(rows(2), rows(2)))
def test_lookup_join(ticks: list[Tick]) -> None:
    left, right, asked = source((A, B)), source((B, C)), _Source()
    right.connect(asked.change)
    node = LookupJoin(left, asked, (B,), (B, C))
    twin = lambda one, two: plain_lookup_join(one, (A, B), two, (B, C))  # noqa: E731
    check([left, right], node, twin, ticks)
    assert not asked.wanted


def _even(row: Solution) -> bool:
    return sum(row) % 2 == 0


def _third(row: Solution) -> int:
    return sum(row) % 3


ONE_INPUT: dict[str, tuple[Callable[[Input], Node], Callable[[Multiset], Multiset]]] = {
    "filter": (lambda one: Filter(one, _even), lambda r: plain_filter(r, _even)),
    "distinct": (Distinct, plain_distinct),
    "extend": (lambda one: Extend(one, C, _third), lambda r: plain_extend(r, _third)),
}


@pytest.mark.parametrize("name", ONE_INPUT)
@few
@given(ticks=timelines(rows(2)))
def test_operators_of_one_input(ticks: list[Tick], name: str) -> None:
    make, twin = ONE_INPUT[name]
    one = source((A, B))
    check([one], make(one), twin, ticks)


@few
@given(timelines(rows(2)))
def test_what_is_built_at_the_first_solution(ticks: list[Tick]) -> None:
    one = source((A, B))
    node = OnDemand(one, (A, B), (A, B), lambda rows, _seed: rows, at_once, monotone=True)
    check([one], node, lambda rows: rows, ticks)


@pytest.mark.parametrize("names", [(B,), (B, A), (A, B), (C, A), ()])
@few
@given(ticks=timelines(rows(2)))
def test_project(ticks: list[Tick], names: Schema) -> None:
    one = source((A, B))
    check([one], Project(one, names), lambda r: plain_project(r, (A, B), names), ticks)


@few
@given(timelines(rows(2), rows(2)))
def test_union(ticks: list[Tick]) -> None:
    left, right = source((A, B)), source((C, B))
    twin = lambda one, two: plain_union(one, (A, B), two, (C, B))  # noqa: E731
    check([left, right], Union(left, right), twin, ticks)


@few
@given(timelines(rows(1)))
def test_extend_with_values_that_differ_each_time(ticks: list[Tick]) -> None:
    one, numbers = source((A,)), iter(range(10, 10_000))
    node = Extend(one, B, lambda _row: next(numbers), volatile=True)

    def same(made: Multiset, wanted: Multiset) -> bool:
        return all(n == 1 for n in made.values()) and wanted == plain_project(made, (A, B), (A,))

    check([one], node, lambda r: r, ticks, same)


@few
@given(timelines(rows(1)))
def test_number(ticks: list[Tick]) -> None:
    one = source((A,))

    def same(made: Multiset, wanted: Multiset) -> bool:
        numbers = [row[1] for row in made]
        visible = plain_project(made, (A, B), (A,)) == plain_project(wanted, (A, B), (A,))
        return visible and len(set(numbers)) == len(numbers)

    check([one], Number(one, B), plain_number, ticks, same)


@few
@given(st.lists(rows(2, (1,))))
def test_values(data: list[Solution]) -> None:
    node, flow = Values((A, B), data), Dataflow(TermDictionary())
    output = Output(flow.add(node), (A, B))
    flow.flush()
    flow.flush()
    assert output.multiset() == plain_values(data)
    assert (B in node.certain) == all(row[1] for row in data)


@pytest.mark.parametrize(("offset", "limit"), [(0, 2), (1, 3), (2, None), (0, 0), (0, None)])
@few
@given(ticks=timelines(rows(1)))
def test_slice(ticks: list[Tick], offset: int, limit: int | None) -> None:
    one = source((A,))
    current: Multiset = Multiset()

    def twin(present: Multiset) -> Multiset:
        current.clear()
        current.update(present)
        return present

    def same(made: Multiset, _wanted: Multiset) -> bool:
        return made <= current and made.total() == plain_slice(current, offset, limit)

    check([one], Slice(one, offset, limit), twin, ticks, same)


@pytest.mark.parametrize(("offset", "limit"), [(0, 2), (1, 3), (2, None), (0, 0), (0, None)])
@few
@given(arrivals=st.lists(st.tuples(rows(1), st.integers(1, 2)), max_size=8))
def test_slice_takes_nothing_back(arrivals: list[Change], offset: int, limit: int | None) -> None:
    """Output stays while solutions only arrive."""
    one = source((A,))
    node = Slice(one, offset, limit)
    output = Output(node, (A,))
    present: Multiset = Multiset()
    for row, count in arrivals:
        present[row] += count
        one.push(row, count)
        shown = output.multiset()
        assert shown.total() == plain_slice(present, offset, limit)
        node.flush()
        assert output.multiset() == shown
        assert all(change > 0 for _, change in output.take_changes())


@pytest.mark.parametrize(("offset", "limit"), [(0, 2), (1, 3), (2, None), (0, 0), (0, None)])
@pytest.mark.parametrize("distinct", [None, lambda row: row[:1]])
@few
@given(ticks=timelines(rows(2)))
def test_top_k(
    ticks: list[Tick], offset: int, limit: int | None, distinct: Callable | None
) -> None:
    one = source((A, B))
    key = lambda row: -row[1]  # noqa: E731
    twin = lambda r: plain_top_k(r, key, offset, limit, distinct)  # noqa: E731
    node = TopK(one, key, offset, limit, distinct)
    if node.reserve is not None:
        # So few that they run out.
        node.reserve = max(1, offset + (limit or 0))
    check([one], node, twin, ticks)


@few
@given(ticks=timelines(rows(2)))
def test_per_key(ticks: list[Tick]) -> None:
    one = source((A, B))
    key = lambda row: -row[1]  # noqa: E731

    def twin(present: Multiset) -> Multiset:
        best: Multiset = Multiset()
        for first in {row[0] for row in present}:
            own = Multiset({row: n for row, n in present.items() if row[0] == first})
            best.update(plain_top_k(own, key, 0, 1, None))
        return best

    node = PerKey(one, (A,), lambda each: TopK(each, key, 0, 1))
    check([one], node, twin, ticks)
    assert not node._parts, "keys without rows are kept"


TYPED = TypedTerms(TermDictionary())
NUMBERS = [
    TYPED.dictionary.encode(term)
    for term in (
        *(literal(str(n), datatype=XSD + "integer") for n in (1, 2, 10)),
        literal("0.5", datatype=XSD + "decimal"),
        literal("0.25", datatype=XSD + "double"),
        literal("x"),
        Term("<http://a/b>"),
    )
]
AGGREGATES = ["COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "MEDIAN"]


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
@examples(15)
@given(data=st.data())
def test_group(data: st.DataObject, distinct: bool, grouped: bool, remembers: bool) -> None:
    values = st.tuples(st.integers(1, 2), st.sampled_from([UNBOUND, *NUMBERS, *NUMBERS]))
    ticks = data.draw(timelines(values))
    for name in AGGREGATES:
        _check_group(ticks, name, distinct, grouped, remembers)


def _check_group(
    ticks: list[Tick], name: str, distinct: bool, grouped: bool, remembers: bool
) -> None:
    one = source((A, B), (1,))
    make = accumulator(Aggregate(name, VariableRef(B), distinct, "|"), TYPED)
    keys = [(A, lambda row: row[0])] if grouped else []
    value = lambda row: row[1]  # noqa: E731
    computed = [*(key for _, key in keys), value, lambda _row: 1]
    how = Grouping(
        tuple(name for name, _ in keys),
        [(C, make), (D, make)],
        lambda row: tuple(compute(row) for compute in computed),
        remembers=remembers,
    )
    node = Group(one, how)

    def twin(rows: Multiset) -> Multiset:
        return plain_group(rows, [k for _, k in keys], [(value, make), (lambda _row: 1, make)])

    def same(made: Multiset, wanted: Multiset) -> bool:
        if name not in ("SAMPLE", "GROUP_CONCAT"):
            return made == wanted
        # Which value, or in which order, depends on the order of arrival.
        if name == "GROUP_CONCAT":
            return _letters(made) == _letters(wanted)
        return len(made) == len(wanted)

    check([one], node, twin, ticks, same)


def _letters(groups: Multiset) -> Counter:
    """Groups with what their concatenation is made of, in no order."""
    decode = TYPED.dictionary.decode
    return Counter((*row[:-2], row[-2] and "".join(sorted(decode(row[-2])))) for row in groups)


def _shape(one: Solution, other: Solution) -> Solution | None:
    return (one[0], other[0]) if other[0] != 4 else None


@pytest.mark.parametrize("at_least_once", [False, True])
@pytest.mark.parametrize("many", [False, True])
@few
@given(ticks=timelines(rows(1, high=5), rows(2, high=5)))
def test_closure(ticks: list[Tick], at_least_once: bool, many: bool) -> None:
    starts, edges = source((A,)), source((A, B))
    unique = Distinct(starts)
    node = Closure(unique, edges, None, (A, B), _shape, at_least_once=at_least_once, many=many)
    twin = lambda s, e: plain_closure(s, e, _shape, at_least_once, many)  # noqa: E731
    check([starts, edges], node, twin, ticks)


@pytest.mark.parametrize("at_least_once", [False, True])
@pytest.mark.parametrize("many", [False, True])
@few
@given(ticks=timelines(rows(1, high=5), rows(2, high=5)))
def test_a_closure_asks_for_edges_of_what_it_reaches_only(
    ticks: list[Tick], at_least_once: bool, many: bool
) -> None:
    starts, edges, frontier = source((A,)), source((A, B)), source((A,))
    asked = Output(frontier, (A,))
    known = HashJoin(frontier, edges)
    unique = Distinct(starts)
    node = Closure(unique, known, frontier, (A, B), _shape, at_least_once=at_least_once, many=many)

    def twin(some: Multiset, steps: Multiset) -> Multiset:
        ends = plain_closure(some, steps, lambda _, end: end, at_least_once, many)
        assert asked.multiset() == Multiset({*some, *(ends if many else ())})
        return plain_closure(some, steps, _shape, at_least_once, many)

    check([starts, edges], node, twin, ticks)


def test_a_change_of_one_in_a_thousand_costs_one_probe() -> None:
    left, right = source((A, B)), source((B, C))
    join = HashJoin(left, right)
    kept = Filter(join, lambda row: row[2] > 0)
    output, meter = Output(kept, kept.schema), Meter(join)
    for n in range(1000):
        left.push((n, n), 1)
        right.push((n, n + 1), 1)
    assert (join.probes, meter.changes, len(output)) == (2000, 1000, 1000)
    output.take_changes()
    right.push((7, 8), -1)
    right.push((7, 9), 1)
    assert (join.probes, meter.changes) == (2002, 1002)
    assert sorted(output.take_changes()) == [((7, 7, 8), -1), ((7, 7, 9), 1)]
