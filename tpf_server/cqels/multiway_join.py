"""The join of windows and static caches: every arriving row finds its own way through the others.

There is no tree of joins and there are no intermediate results. Every input is a bag of rows with
hash indexes; a row that arrives at one input probes the others one after the other, along a route.
The route of each input is a generated function of nested loops. Its order is chosen greedily: next
comes the input with the fewest expected partners for what is bound so far, connected ones first,
the smaller one where two are equal; conditions are checked as soon as their variables are bound.
How many partners a row has is measured with the rows that arrived last, where they bind what is
asked for, or with some rows of the input that does; otherwise taken as rows over distinct keys.
`adapt` looks at the cardinalities as they are now and makes a new route where another order has
become better.

Source: paper 000, section 3.3 (routing) and 4.4 (cardinality-based policy); paper 001, section 3.2
(indexed buffers).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from annotations.terms import Variable
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.node import Node
from tpf_server.cqels.row_index import Columns, RowBag, Statistics, columns_text, compiled

Condition = Callable[[Solution], bool]
# A route is changed only for a clear gain, and only if the next look says the same, because making
# one costs and what is measured is a sample.
_GAIN: Final = 1.5
_LOOPS: Final = 16
"""Python nests at most 20 loops in a function; then another one begins inside."""


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A condition on a joined row.

    Args:
        variables: what it needs.
        check: takes the values of exactly these variables, in this order.
    """

    variables: tuple[Variable, ...]
    check: Condition


class JoinInput:
    """One input of a join: its variables, its rows, and the route of rows that arrive at it.

    Attributes:
        label: what it is, for people.
        takes_expired: whether rows that go must be routed too.
        route: takes a row and how many copies came (positive) or went (negative). Rows must be in
            `bag` before they are routed, and out of it before they are routed as gone.
        order: the inputs in the order in which `route` visits them.
        candidate: another order that was better when routes were last looked at.
        size: how many rows there are; must cost nothing.
        recent: gives some rows, where rows come all the time those that came last.
        seldom: whether rows come or go so seldom that their route, and the indexes that it needs,
            are made when a row does, and given back afterwards.
    """

    def __init__(
        self,
        label: str,
        variables: Schema,
        bag: Callable[[], RowBag],
        size: Callable[[], int],
        recent: Callable[[], Sequence[Solution]] = tuple,
        *,
        seldom: bool = False,
    ) -> None:
        self.label = label
        self.variables = variables
        self.takes_expired = True
        self.route: Callable[[Solution, int], None] = _unbuilt
        self.order: tuple[int, ...] = ()
        self.candidate: tuple[int, ...] = ()
        self.wanted: list[tuple[int, Columns]] = []
        self.size = size
        self.recent = recent
        self.seldom = seldom
        self._bag = bag

    @property
    def bag(self) -> RowBag:
        """The rows that are there."""
        return self._bag()

    def hold(self) -> None:
        """Have rows kept from now on, because a route may come to probe them."""
        self._bag()


def _unbuilt(_row: Solution, _count: int) -> None:
    raise AssertionError("rows arrived before the join was started")


class MultiwayJoin(Node):
    """The joined rows.

    Args:
        inputs: what is joined, at least one.
        conditions: on variables of the inputs.
        needed: the variables that somebody needs of the result, in the order of its schema.
    """

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        conditions: Sequence[JoinCondition],
        needed: Schema,
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

    def start(self) -> None:
        """Make the first routes; to be called when all sinks are connected."""
        costs = _Costs(self.inputs)
        for place, each in enumerate(self.inputs):
            if len(self.inputs) > 1:
                each.hold()
            if each.seldom:
                self._rest(place)
            else:
                self._reroute(place, self._best_order(place, costs))

    def stop(self) -> None:
        """Give the indexes back."""
        for each in self.inputs:
            self._release(each)

    def adapt(self) -> bool:
        """Choose the routes anew; whether any changed."""
        changed = False
        for place, each in enumerate(self.inputs):
            if each.seldom and each.order:
                self._rest(place)
        if len(self.inputs) < 3:
            return changed
        costs = _Costs(self.inputs)
        for place, each in enumerate(self.inputs):
            if each.seldom:
                continue
            order = self._best_order(place, costs)
            better = order != each.order and self._clearly_better(place, order, each.order, costs)
            if better and order == each.candidate:
                self._reroute(place, order)
                self.rerouted += 1
                changed = True
            each.candidate = order if better else ()
        return changed

    def explain(self) -> list[dict[str, Any]]:
        """The inputs with their present cardinalities and routes."""
        costs = _Costs(self.inputs)
        return [
            {
                "input": each.label,
                "variables": [name for name in each.variables if not name.startswith("?.")],
                "rows": each.size(),
                "route": [
                    self.inputs[other].label
                    for other in each.order or self._best_order(place, costs)
                ],
            }
            for place, each in enumerate(self.inputs)
        ]

    # ------------------------------------------------------------------------------- order

    def _best_order(self, start: int, costs: "_Costs") -> tuple[int, ...]:
        rest = [place for place in range(len(self.inputs)) if place != start]
        route = [start]
        while rest:
            following = min(rest, key=lambda place: costs.of(route, place))
            rest.remove(following)
            route.append(following)
        return tuple(route[1:])

    def _clearly_better(
        self, start: int, new: tuple[int, ...], old: tuple[int, ...], costs: "_Costs"
    ) -> bool:
        for step, (one, other) in enumerate(zip(new, old, strict=True)):
            if one != other:
                route = [start, *new[:step]]
                here, there = costs.of(route, one), costs.of(route, other)
                if here[0] != there[0] or here[1] * _GAIN < there[1]:
                    return True
                return here[1] <= there[1] and here[2] * _GAIN < there[2]
        return False

    # ------------------------------------------------------------------------------ routes

    def _release(self, each: JoinInput) -> None:
        for place, columns in each.wanted:
            self.inputs[place].bag.release(columns)
        each.wanted = []

    def _rest(self, start: int) -> None:
        """Give back what the route of a seldom input uses; the next row of it makes a new one."""
        each = self.inputs[start]
        others = [other.size for other in self.inputs if other is not each]

        def route(row: Solution, count: int) -> None:
            if all(size() for size in others):
                self._reroute(start, self._best_order(start, _Costs(self.inputs)))
                each.route(row, count)

        each.route = route
        each.order = ()
        self._release(each)

    def _reroute(self, start: int, order: tuple[int, ...]) -> None:
        each = self.inputs[start]
        old = each.wanted
        each.wanted = []
        each.order = order
        each.route = self._generated(start, order)
        for place, columns in old:
            self.inputs[place].bag.release(columns)

    def _generated(self, start: int, order: tuple[int, ...]) -> Callable[[Solution, int], None]:
        each = self.inputs[start]
        if not order and not self._conditions and each.variables == self.schema:
            return self.emit
        names: dict[str, Any] = {"emit": self.emit}
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
                    function = f"c{len(names)}"
                    names[function] = condition.check
                    values = "".join(f"v{numbers[name]}, " for name in condition.variables)
                    lines.append(f"{indent}if not {function}(({values})):")
                    lines.append(f"{indent}    {leave}")

        check("return")
        leave = "return"
        for step, place in enumerate(order):
            other = self.inputs[place]
            columns = _bound_columns(other, set(numbers))
            rest = other.bag.rest(columns)
            each.wanted.append((place, columns))
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
        return compiled("\n".join(lines), "route", names)


class _Costs:
    """What the next step of a route costs, by the rows as they are now."""

    def __init__(self, inputs: Sequence[JoinInput]) -> None:
        self._inputs = inputs
        self._statistics: dict[tuple[int, Columns], Statistics] = {}
        self._recent: dict[int, Sequence[Solution]] = {}

    def of(self, route: Sequence[int], place: int) -> tuple[bool, float, int]:
        """What comes next, at `place`, costs a row that took this route.

        Returns:
            Whether it is a cross product, the expected partners of a row, and all rows.
        """
        each = self._inputs[place]
        size = each.size()
        columns = _bound_columns(each, {n for at in route for n in self._inputs[at].variables})
        if not columns or not size:
            return not columns, size, size
        statistics = self._statistics.get((place, columns))
        if statistics is None:
            statistics = self._statistics[place, columns] = each.bag.statistics(columns, size)
        keys = self._keys(route, [each.variables[column] for column in columns])
        if keys:
            return False, statistics.partners(keys), size
        return False, size / statistics.distinct, size

    def _keys(self, route: Sequence[int], names: Sequence[Variable]) -> Sequence[Any]:
        """Values of these variables, from some rows of the first input that has them all."""
        for place in route:
            variables = self._inputs[place].variables
            if all(name in variables for name in names):
                if place not in self._recent:
                    self._recent[place] = self._inputs[place].recent()
                sample = self._recent[place]
                at = [variables.index(name) for name in names]
                if len(at) == 1:
                    return [row[at[0]] for row in sample]
                return [tuple([row[p] for p in at]) for row in sample]
        return ()


def _bound_columns(each: JoinInput, bound: set[Variable]) -> Columns:
    return tuple(place for place, name in enumerate(each.variables) if name in bound)
