"""The join of windows and static rows: each arriving row takes a route through the others.

A route is generated nested loops, ordered greedily. Routing ``reviewed`` reorders by current
cardinalities, ``fixed`` keeps the first routes, ``per-tuple`` chooses for each row (paper 000).

Source: paper 000, sections 3.3 and 4.4; paper 001, section 3.2 (indexed buffers).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from annotations.terms import Variable
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.codegen import compiled
from tpf_client.dataflow.node import Node, Work
from tpf_client.dataflow.state.row_index import (
    Columns,
    JoinCondition,
    JoinInput,
    RowStatistics,
    columns_text,
)
from tpf_client.errors import LimitError
from tpf_client.sparql.rewrite.join_order import greedy_order

# What the steps of a route through a join cost, estimated from the rows that are there.


class RouteCosts:
    """The cost of a route's next step, for the current rows."""

    def __init__(self, inputs: Sequence[JoinInput]) -> None:
        self._inputs = inputs
        self._statistics: dict[tuple[int, Columns], RowStatistics] = {}
        self._recent: dict[int, Sequence[Solution]] = {}

    def of(self, route: Sequence[int], number: int) -> tuple[bool, float, int]:
        """Estimate a route's step: whether a cross product, partners of a row, all rows."""
        each = self._inputs[number]
        size = each.size()
        columns = each.columns_of({n for at in route for n in self._inputs[at].variables})
        if not columns or not size:
            return not columns, size, size
        statistics = self._statistics.get((number, columns))
        if statistics is None:
            statistics = self._statistics[number, columns] = each.bag.statistics(columns, size)
        keys = self._keys(route, [each.variables[column] for column in columns])
        if keys:
            return False, statistics.partners(keys), size
        return False, size / statistics.distinct, size

    def _keys(self, route: Sequence[int], names: Sequence[Variable]) -> Sequence[Any]:
        for number in route:
            variables = self._inputs[number].variables
            if all(name in variables for name in names):
                if number not in self._recent:
                    self._recent[number] = self._inputs[number].recent()
                sample = self._recent[number]
                at = [variables.index(name) for name in names]
                if len(at) == 1:
                    return [row[at[0]] for row in sample]
                return [tuple([row[p] for p in at]) for row in sample]
        return ()


Routing = Literal["reviewed", "fixed", "per-tuple"]
"""When it is decided how rows find their way."""
_Route = Callable[[Solution, int], None]
ROUTINGS: Final[tuple[Routing, ...]] = get_args(Routing)
# A route is changed only for a clear gain, and only if the next look says the same, because making
# one costs and what is measured is a sample.
_GAIN: Final = 1.5
_LOOPS: Final = 16
"""Python nests at most 20 loops in a function; then another one begins inside."""


class MultiwayJoin(Node):
    """Join the rows of several inputs."""

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        conditions: Sequence[JoinCondition],
        needed: Schema,
        routing: Routing = "reviewed",
        work: Work | None = None,
    ) -> None:
        names = {name for each in inputs for name in each.variables}
        schema = tuple(name for name in needed if name in names)
        if len(inputs) == 1 and set(schema) == names:
            # Then rows pass as they are.
            schema = tuple(inputs[0].variables)
        super().__init__(schema, frozenset(schema))
        self.inputs = tuple(inputs)
        self.rerouted = 0
        self._conditions = tuple(conditions)
        # Of two inputs there is one order.
        self._routing: Routing = routing if len(inputs) > 2 else "reviewed"
        self._settled = False
        self._work = work
        if work is not None:
            for each in inputs:
                each.failed = work.fail

    def columns_of(self, entry: object) -> tuple[int, ...] | None:
        """Return the input's columns, if the join only projects that single input."""
        (first, *others) = self.inputs
        if first is not entry or others or self._conditions:
            return None
        return tuple([first.variables.index(name) for name in self.schema])

    def start(self) -> None:
        """Make the first routes, after all sinks are connected."""
        costs = RouteCosts(self.inputs)
        for number, each in enumerate(self.inputs):
            if len(self.inputs) > 1:
                each.hold()
            if each.seldom:
                self._rest(number)
            elif self._routing == "per-tuple":
                self._choose(number)
            else:
                self._reroute(number, self._best_order(number, costs))

    def stop(self) -> None:
        for each in self.inputs:
            self._release(each)

    def adapt(self) -> bool:
        changed = False
        for number, each in enumerate(self.inputs):
            if each.seldom and each.order:
                self._rest(number)
        if len(self.inputs) < 3 or self._routing == "per-tuple" or self._settled:
            return changed
        self._settled = self._routing == "fixed"
        costs = RouteCosts(self.inputs)
        for number, each in enumerate(self.inputs):
            if each.seldom:
                continue
            order = self._best_order(number, costs)
            better = order != each.order and self._clearly_better(number, order, each.order, costs)
            if better and (order == each.candidate or self._settled):
                self._reroute(number, order)
                self.rerouted += 1
                changed = True
            each.candidate = order if better else ()
        return changed

    def explain(self) -> list[dict[str, Any]]:
        """Return the inputs with their present cardinalities and routes."""
        costs = RouteCosts(self.inputs)
        return [
            {
                "input": each.label,
                "variables": [name for name in each.variables if not name.startswith("?.")],
                "rows": each.size(),
                "route": [
                    self.inputs[other].label
                    for other in each.order or self._best_order(number, costs)
                ],
            }
            for number, each in enumerate(self.inputs)
        ]

    # ------------------------------------------------------------------------------- order

    def _best_order(self, start: int, costs: RouteCosts) -> tuple[int, ...]:
        route = [start]
        route += greedy_order(
            (number for number in range(len(self.inputs)) if number != start),
            lambda number: self.inputs[number].variables,
            lambda number, _: costs.of(route, number),
            self.inputs[start].variables,
        )
        return tuple(route[1:])

    def _clearly_better(
        self, start: int, new: tuple[int, ...], old: tuple[int, ...], costs: RouteCosts
    ) -> bool:
        for step, (one, other) in enumerate(zip(new, old, strict=True)):
            if one != other:
                route = [start, *new[:step]]
                cost, other_cost = costs.of(route, one), costs.of(route, other)
                if cost[0] != other_cost[0] or cost[1] * _GAIN < other_cost[1]:
                    return True
                return cost[1] <= other_cost[1] and cost[2] * _GAIN < other_cost[2]
        return False

    # ------------------------------------------------------------------------------ routes

    def _release(self, each: JoinInput) -> None:
        for number, columns in each.used_indexes:
            self.inputs[number].bag.release(columns)
        each.used_indexes = []

    def _rest(self, start: int) -> None:
        each = self.inputs[start]
        others = [other.size for other in self.inputs if other is not each]

        def route(row: Solution, count: int) -> None:
            if all(size() for size in others):
                self._reroute(start, self._best_order(start, RouteCosts(self.inputs)))
                each.route(row, count)

        each.route = route
        each.order = ()
        self._release(each)

    def _choose(self, start: int) -> None:
        """Sizes are those at the start of a row, for all its steps."""
        each = self.inputs[start]
        others = [number for number in range(len(self.inputs)) if number != start]
        sizes = [self.inputs[number].size for number in others]
        routes: dict[tuple[int, ...], tuple[tuple[int, ...], _Route]] = {}

        def route(row: Solution, count: int) -> None:
            held = [size() for size in sizes]
            smallest = tuple(sorted(range(len(held)), key=held.__getitem__))
            choice = routes.get(smallest)
            if choice is None:
                by_place = dict(zip(others, held, strict=True))
                choice = routes[smallest] = self._by_size(start, by_place)
            if choice[0] != each.order:
                self.rerouted += bool(each.order)
                each.order = choice[0]
            choice[1](row, count)

        each.route = route

    def _by_size(self, start: int, sizes: Mapping[int, int]) -> tuple[tuple[int, ...], _Route]:
        order = tuple(
            greedy_order(
                sizes,
                lambda number: self.inputs[number].variables,
                lambda number, _: sizes[number],
                self.inputs[start].variables,
            )
        )
        return order, self._generated(start, order)

    def _reroute(self, start: int, order: tuple[int, ...]) -> None:
        each = self.inputs[start]
        old = each.used_indexes
        each.used_indexes = []
        each.order = order
        each.route = self._generated(start, order)
        for number, columns in old:
            self.inputs[number].bag.release(columns)

    def _generated(self, start: int, order: tuple[int, ...]) -> Callable[[Solution, int], None]:
        each = self.inputs[start]
        passes = not order and not self._conditions and each.variables == self.schema
        if passes and (self._work is None or not self._work.guards):
            return self.emit
        names: dict[str, Any] = {"emit": self.emit, "work": self._work, "LimitError": LimitError}
        numbers: dict[Variable, int] = {}
        for name in each.variables:
            numbers[name] = len(numbers)
        lines = ["def route(row, count):"]
        if each.variables:
            lines.append(f"    {', '.join(f'v{n}' for n in range(len(numbers)))}, = row")
        waiting = list(self._conditions)
        copies = ["count"]
        indent = "    "
        loops = 0
        inner: list[str] = []

        def check(leave: str) -> None:
            for condition in list(waiting):
                if all(name in numbers for name in condition.variables):
                    waiting.remove(condition)
                    values = [f"v{numbers[name]}" for name in condition.variables]
                    own = f"c{len(names)}"
                    test = condition.text.format(*values, constant=own)
                    names[own] = condition.constant
                    if not test:
                        names[own] = condition.check
                        test = f"{own}(({''.join(f'{value}, ' for value in values)}))"
                    lines.append(f"{indent}if not {test}:")
                    lines.append(f"{indent}    {leave}")

        check("return")
        leave = "return"
        for step, number in enumerate(order):
            other = self.inputs[number]
            columns = other.columns_of(numbers)
            rest = other.bag.rest(columns)
            each.used_indexes.append((number, columns))
            names[f"get{step}"] = other.bag.want(columns).get
            key = columns_text((numbers[other.variables[column]] for column in columns), prefix="v")
            lines.append(f"{indent}found{step} = get{step}({key})")
            lines.append(f"{indent}if not found{step}:")
            lines.append(f"{indent}    {leave}")
            if not rest:
                copies.append(f"found{step}")
                continue
            new = [other.variables[column] for column in rest]
            for name in new:
                numbers[name] = len(numbers)
            targets = columns_text((numbers[name] for name in new), prefix="v")
            if self._work is not None:
                lines.append(f"{indent}work.left -= len(found{step})")
                lines.append(f"{indent}if work.left < 0:")
                lines.append(f"{indent}    raise LimitError")
            lines.append(f"{indent}for {targets}, times{step} in found{step}.items():")
            indent += "    "
            loops += 1
            copies.append(f"times{step}")
            leave = "continue"
            check(leave)
            if not loops % _LOOPS:
                inner.append(f"{indent}inner{step}()")
                lines.append(f"{indent}def inner{step}():")
                indent += "    "
                leave = "return"
        values = "".join(f"v{numbers[name]}, " for name in self.schema)
        lines.append(f"{indent}emit(({values}), {' * '.join(copies)})")
        lines += reversed(inner)
        if self._work is not None:
            body = [f"    {line}" for line in lines[1:]]
            lines[1:] = ["    try:", *body, "    except LimitError:", "        work.end()"]
        return compiled("\n".join(lines), "route", names)
