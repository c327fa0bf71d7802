"""Project, filter, extend, union, values, and the output of a dataflow."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from annotations.terms import Variable
from tpf_client.dataflow.changes import (
    UNBOUND,
    Change,
    Condition,
    Multiset,
    Schema,
    Sink,
    Solution,
    TermId,
    add_copies,
    column_numbers,
    projection,
    selection,
)
from tpf_client.dataflow.node import Key, Node
from tpf_client.sparql.algebra import Expression, Pattern

# Filter: lets through the solutions for which a condition is true.


class Filter(Node):
    """Keep solutions for which `condition`, a function of them alone, is true."""

    def __init__(
        self,
        upstream: Node,
        condition: Condition,
        certain: frozenset[Variable] | None = None,
        *,
        asks: bool = False,
        expression: Expression | None = None,
    ) -> None:
        super().__init__(
            upstream.schema,
            upstream.certain if certain is None else certain,
            monotone=upstream.monotone,
        )
        self.expression = expression

        def push(solution: Solution, count: int) -> None:
            if condition(solution):
                self.emit(solution, count)

        if not asks:
            upstream.connect(push)
            return
        row_of = upstream.row

        def row(key: Key) -> Solution | None:
            solution = row_of(key)
            return solution if solution is not None and condition(solution) else None

        self.ask(upstream, row, upstream.key)


# Extend: one more variable, with a value computed from the solution.

Compute = Callable[[Solution], TermId]


class Extend(Node):
    """Add `variable` to solutions; `UNBOUND` where `compute` has an error.

    Args:
        volatile: every copy gets its own value (RAND, UUID, blank nodes).
        always: `compute` never gives `UNBOUND`.
        asks: ask for the solutions instead of listening; not where volatile.
    """

    def __init__(
        self,
        upstream: Node,
        variable: Variable,
        compute: Compute,
        *,
        volatile: bool = False,
        always: bool = False,
        asks: bool = False,
        expression: Expression | None = None,
    ) -> None:
        if variable in upstream.schema:
            raise ValueError(f"{variable} has a value already")
        certain = upstream.certain | {variable} if always else upstream.certain
        super().__init__((*upstream.schema, variable), certain, monotone=upstream.monotone)
        self.compute = compute
        self.expression = expression
        self._given: dict[Solution, list[TermId]] = {}
        self._owed: dict[Solution, int] = {}
        if asks:
            assert not volatile, "a volatile value is given once"
            row_of = upstream.row

            def row(key: Key) -> Solution | None:
                solution = row_of(key)
                return None if solution is None else (*solution, compute(solution))

            self.ask(upstream, row, upstream.key)
        elif volatile:
            upstream.connect(self._push_volatile)
        else:
            upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        self.emit((*solution, self.compute(solution)), count)

    def _push_volatile(self, solution: Solution, count: int) -> None:
        given = self._given.setdefault(solution, [])
        # A copy may be taken back before it comes, within a tick; then the two cancel out here.
        balance = len(given) - self._owed.pop(solution, 0) + count
        while len(given) < balance:
            given.append(self.compute(solution))
            self.emit((*solution, given[-1]), 1)
        while given and len(given) > balance:
            self.emit((*solution, given.pop()), -1)
        if balance < 0:
            self._owed[solution] = -balance
        if not given:
            del self._given[solution]


# Union: the solutions of several nodes, brought to one schema.


class Union(Node):
    """The solutions of all inputs; variables that an input lacks are unbound."""

    def __init__(self, *inputs: Node) -> None:
        schema = tuple(dict.fromkeys(name for node in inputs for name in node.schema))
        certain = frozenset.intersection(*(node.certain for node in inputs))
        super().__init__(schema, certain, monotone=all(node.monotone for node in inputs))
        for node in inputs:
            node.connect(self._sink(node.schema))

    def _sink(self, source: Schema) -> Sink:
        widen = projection(source, self.schema)

        def push(solution: Solution, count: int) -> None:
            self.emit(widen(solution), count)

        return push


# Values: solutions that are there from the first flush on (inline data, constants).


class Values(Node):
    """Constant solutions, sent once, at the first flush."""

    def __init__(self, schema: Sequence[Variable], rows: Iterable[Solution]) -> None:
        self._rows = list(rows)
        certain = frozenset(
            name
            for column, name in enumerate(schema)
            if all(row[column] != UNBOUND for row in self._rows)
        )
        super().__init__(schema, certain)
        self._sent = False

    @property
    def pending(self) -> bool:
        return not self._sent

    def flush(self) -> None:
        if not self._sent:
            self._sent = True
            for row in self._rows:
                self.emit(row, 1)


# Number: gives every distinct solution an identifier of its own, while it is there.


class Number(Node):
    """Add a variable that numbers distinct solutions, with negative identifiers."""

    def __init__(self, upstream: Node, variable: Variable) -> None:
        super().__init__(
            (*upstream.schema, variable), upstream.certain | {variable}, monotone=upstream.monotone
        )
        self._numbers: dict[Solution, tuple[int, int]] = {}
        self._last = 0
        upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        entry = self._numbers.get(solution)
        if entry is None:
            self._last -= 1
            entry = (self._last, 0)
        number, total = entry[0], entry[1] + count
        if total:
            self._numbers[solution] = (number, total)
        else:
            del self._numbers[solution]
        self.emit((*solution, number), count)


# Distinct: every solution once, as long as there is at least one copy of it.


class Distinct(Node):
    """Every solution once."""

    def __init__(self, upstream: Node) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=upstream.monotone)
        self._counts: dict[Solution, int] = {}
        self.upstream = upstream
        upstream.connect(self._push)

    def present(self) -> Iterator[Solution]:
        return (solution for solution, count in self._counts.items() if count > 0)

    @property
    def empty(self) -> bool:
        return not self._counts

    def _push(self, solution: Solution, count: int) -> None:
        after = add_copies(self._counts, solution, count)
        if after - count <= 0 < after:
            self.emit(solution, 1)
        elif after <= 0 < after - count:
            self.emit(solution, -1)


# Output: the present result of a dataflow, and what changed of it since it was last asked.


class Core(NamedTuple):
    """The node of a query before its solution modifiers."""

    pattern: Pattern
    node: Node
    variables: tuple[Variable, ...]
    distinct: bool
    offset: int


class Output:
    """Collect the changes of a tick and net them.

    `order` sorts solutions *of the upstream schema*; `on_change` receives changes before netting.
    """

    def __init__(
        self,
        upstream: Node,
        variables: Sequence[Variable],
        order: Callable[[Solution], Any] | None = None,
        on_change: Callable[[Solution, int], None] | None = None,
        *,
        pattern: Pattern | None = None,
        core: Core | None = None,
    ) -> None:
        self.node = upstream
        self.pattern = pattern
        self.core = core
        self.variables = tuple(variables)
        self.on_change = on_change
        self._order = order
        self._visible = projection(upstream.schema, self.variables)
        self._rows: dict[Solution, int] = {}
        self._changes: dict[Solution, int] = {}
        upstream.connect(self._push)

    @property
    def ordered(self) -> bool:
        return self._order is not None

    def _push(self, solution: Solution, count: int) -> None:
        add_copies(self._rows, solution, count)
        seen = self._visible(solution)
        # An order may be by what is not seen.
        changed = seen if self._order is None else solution
        self._changes[changed] = self._changes.get(changed, 0) + count
        if self.on_change is not None:
            self.on_change(seen, count)

    def changes(self) -> list[Change]:
        """Return the net changes since they were taken; what moves in an order comes and goes."""
        if self._order is None:
            return [(solution, count) for solution, count in self._changes.items() if count]
        come, gone = Multiset(), Multiset()
        for solution, count in self._changes.items():
            (come if count > 0 else gone)[self._visible(solution)] += count
        return [(each, count) for each, count in (*come.items(), *gone.items()) if count]

    def take_changes(self) -> list[Change]:
        """Take the net changes since the last call (see `changes`)."""
        changes, self._changes = self.changes(), {}
        return changes

    def rows(self) -> Iterator[Solution]:
        """Yield the present result, every copy, in order."""
        rows = list(self._rows.items())
        if self._order is not None:
            order = self._order
            rows.sort(key=lambda row: order(row[0]))
        for row, count in rows:
            seen = self._visible(row)
            for _ in range(count):
                yield seen

    def multiset(self) -> Multiset:
        result: Multiset = Multiset()
        for row, count in self._rows.items():
            result[self._visible(row)] += count
        return result

    def __len__(self) -> int:
        return sum(self._rows.values())


class Project(Node):
    """Project solutions to `variables`; a projection of a projection is one step."""

    def __init__(
        self,
        upstream: Node,
        variables: Sequence[Variable],
        copies: Mapping[Variable, Variable] | None = None,
        *,
        asks: bool = False,
    ) -> None:
        copied = copies or {}
        names = [copied.get(name, name) for name in variables]
        certain = frozenset(
            name
            for name, source in zip(variables, names, strict=True)
            if source in upstream.certain
        )
        super().__init__(variables, certain, monotone=upstream.monotone)
        columns = column_numbers(upstream.schema, names)
        self._source: Node = upstream
        if isinstance(upstream, Project) and upstream.keyed == asks:
            self._source = upstream._source
            columns = tuple(
                [upstream._columns[column] if column >= 0 else -1 for column in columns]
            )
        self._columns: tuple[int, ...] = columns
        self._reduce = reduce = selection(columns, len(self._source.schema))
        if not asks:
            return
        key: tuple[Variable, ...] | None = None
        if upstream.key is not None and set(upstream.key) <= set(names):
            key = tuple([variables[names.index(name)] for name in upstream.key])
        row_of = self._source.row

        def row(key: Key) -> Solution | None:
            solution = row_of(key)
            return None if solution is None else reduce(solution)

        same = columns == tuple(range(len(self._source.schema)))
        self.ask(upstream, row_of if same else row, key)

    @property
    def taken(self) -> tuple[Node, tuple[int, ...]]:
        """The source of its solutions, and its columns there; -1: unbound."""
        return self._source, self._columns

    def connect(self, sink: Sink) -> None:
        """See `Node`; nothing comes from upstream before somebody listens."""
        if self.keyed:
            super().connect(sink)
            return
        reduce = self._reduce

        def push(solution: Solution, count: int) -> None:
            sink(reduce(solution), count)

        self._source.connect(push)
        super().connect(sink)
