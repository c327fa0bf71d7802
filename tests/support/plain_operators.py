"""Each operator of the dataflow as a function from whole inputs to whole output."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from annotations.terms import Variable
from tpf_client.dataflow.changes import UNBOUND, Condition, Multiset, Schema, Solution, projection
from tpf_client.dataflow.operators.basic import Compute
from tpf_client.dataflow.operators.closure import Edges, PairSolution, reachable
from tpf_client.dataflow.operators.layout import Layout, layout
from tpf_client.dataflow.operators.matching import Pair
from tpf_client.dataflow.operators.order import SeenAs, SortKeyOf, window
from tpf_client.dataflow.state.aggregates import Accumulator


def plain_join(left: Multiset, right: Multiset, how: Layout) -> Multiset:
    """Join pair by pair."""
    result: Multiset = Multiset()
    for one, times in left.items():
        for other, more in right.items():
            if how.left_key(one) == how.right_key(other):
                merged = how.merge(one, other)
                if merged is not None:
                    result[merged] += times * more
    return result


def plain_left_join(
    left: Multiset, right: Multiset, how: Layout, condition: Condition | None = None
) -> Multiset:
    result: Multiset = Multiset()
    for one, times in left.items():
        alone = True
        for other, more in right.items():
            merged = how.merge(one, other) if how.left_key(one) == how.right_key(other) else None
            if merged is not None and (condition is None or condition(merged)):
                result[merged] += times * more
                alone = False
        if alone:
            result[one + (UNBOUND,) * (len(how.schema) - len(one))] += times
    return result


def plain_semi_join(
    left: Multiset,
    right: Multiset,
    how: Layout,
    negated: bool,
    condition: Condition | None = None,
) -> Multiset:
    """Without a mark."""
    result: Multiset = Multiset()
    for one, times in left.items():
        found = any(
            how.left_key(one) == how.right_key(other)
            and (merged := how.merge(one, other)) is not None
            and (condition is None or condition(merged))
            for other in right
        )
        if found != negated:
            result[one] = times
    return result


def plain_minus(left: Multiset, right: Multiset, how: Layout, pair: Pair) -> Multiset:
    return Multiset(
        {
            one: times
            for one, times in left.items()
            if not any(
                how.left_key(one) == how.right_key(other) and pair(one, other) for other in right
            )
        }
    )


def plain_lookup_join(
    left: Multiset, left_schema: Schema, right: Multiset, right_schema: Schema
) -> Multiset:
    """The join with everything that the source knows."""
    how: Any = layout(left_schema, frozenset(left_schema), right_schema, frozenset(right_schema))
    return plain_join(left, right, how)


def plain_filter(rows: Multiset, condition: Condition) -> Multiset:
    return Multiset({row: count for row, count in rows.items() if condition(row)})


def plain_project(rows: Multiset, schema: Schema, variables: Sequence[Variable]) -> Multiset:
    reduce = projection(schema, variables)
    result: Multiset = Multiset()
    for row, count in rows.items():
        result[reduce(row)] += count
    return result


def plain_distinct(rows: Multiset) -> Multiset:
    return Multiset(rows.keys())


def plain_union(
    left: Multiset, left_schema: Schema, right: Multiset, right_schema: Schema
) -> Multiset:
    schema = tuple(dict.fromkeys((*left_schema, *right_schema)))
    result: Multiset = Multiset()
    for rows, source in ((left, left_schema), (right, right_schema)):
        widen = projection(source, schema)
        for row, count in rows.items():
            result[widen(row)] += count
    return result


def plain_extend(rows: Multiset, compute: Compute) -> Multiset:
    """Of a computation that is not volatile."""
    result: Multiset = Multiset()
    for row, count in rows.items():
        result[(*row, compute(row))] += count
    return result


def plain_number(rows: Multiset) -> Multiset:
    """Which solution has which number is not determined."""
    return Multiset({(*row, -place): rows[row] for place, row in enumerate(rows, 1)})


def plain_values(rows: Iterable[Solution]) -> Multiset:
    return Multiset(rows)


def plain_slice(rows: Multiset, offset: int, limit: int | None) -> int:
    """Only the number of solutions is determined."""
    return sum(window(iter(rows.items()), offset, limit).values())


def plain_top_k(
    rows: Multiset, key: SortKeyOf, offset: int, limit: int | None, distinct: SeenAs | None = None
) -> Multiset:
    copies = [
        row for row in sorted(rows, key=lambda row: (key(row), row)) for _ in range(rows[row])
    ]
    if distinct is not None:
        first = {distinct(row): row for row in reversed(copies)}
        copies = [row for row in dict.fromkeys(copies) if first[distinct(row)] == row]
    return Multiset(copies[offset : None if limit is None else offset + limit])


def plain_group(
    rows: Multiset,
    keys: Sequence[Compute],
    aggregates: Sequence[tuple[Compute, Callable[[], Accumulator]]],
) -> Multiset:
    """Fresh accumulators that only ever see the whole group."""
    groups: dict[Solution, Multiset] = {} if keys else {(): Multiset()}
    for row, count in rows.items():
        groups.setdefault(tuple(compute(row) for compute in keys), Multiset())[row] += count
    result: Multiset = Multiset()
    for key, members in groups.items():
        values = []
        for argument, make in aggregates:
            fresh = make()
            for row, count in members.items():
                fresh.add(argument(row), count)
            values.append(fresh.result())
        result[key + tuple(values)] += 1
    return result


def plain_closure(
    starts: Multiset, edges: Multiset, shape: PairSolution, at_least_once: bool, many: bool
) -> Multiset:
    """Of all edges."""
    steps: Edges = {}
    for source, target, *graph in edges:
        steps.setdefault((source, *graph), {})[(target, *graph)] = 1
    pairs = (
        shape(start, end)
        for start in starts
        for end in reachable(start, steps, at_least_once, many)
    )
    return Multiset(pair for pair in pairs if pair is not None)
