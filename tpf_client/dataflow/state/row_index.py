"""Bags of rows with hash indexes over their columns; their maintenance is generated.

An index over columns K maps values of K to the rest's, with counts (paper 001, section 3.2.2). It
exists while a route uses it.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Condition, Schema, Solution
from tpf_client.dataflow.codegen import compiled

Columns: TypeAlias = tuple[int, ...]
_Table: TypeAlias = dict[Any, Any]

# How many rows are looked at for statistics that no index gives.
_SAMPLE = 1024


def columns_text(columns: Iterable[int], prefix: str = "r") -> str:
    """Return the code of these columns' values: bare, or a tuple."""
    names = [f"{prefix}{column}" for column in columns]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _unindexed(_row: Solution, _count: int) -> None:
    pass


class RowStatistics:
    """Rows for each value of some columns."""

    def __init__(self, table: _Table, buckets: bool, scale: float) -> None:
        self._table = table
        self._buckets = buckets
        self._scale = scale

    @property
    def distinct(self) -> int:
        """The number of distinct values (of those read)."""
        return max(1, len(self._table))

    def partners(self, keys: Sequence[Any]) -> float:
        """Return how many rows have one of these values, on average."""
        table = self._table
        if self._buckets:
            total = sum([len(table.get(key, ())) for key in keys])
        else:
            total = sum([table.get(key, 0) for key in keys])
        return total * self._scale / len(keys)


class RowBag:
    """A bag of rows of the same width.

    Args:
        source: gives the present rows, where they are held elsewhere anyway.
        keep_indexes: unused indexes stay, for rows that seldom change.
        prepare: called when `maintenance` gives other code than before.

    Attributes:
        change: adds `count` copies of a row; look it up at every use.
        idle: `change` does nothing, for lack of indexes.
    """

    def __init__(
        self,
        width: int,
        source: Callable[[], Iterable[tuple[Solution, int]]] | None = None,
        *,
        keep_indexes: bool = False,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.width = width
        self._all: Columns = tuple(range(width))
        self._source = source
        self._keep_indexes = keep_indexes
        self._prepare = prepare
        self._tables: dict[Columns, _Table] = {} if source is not None else {self._all: {}}
        self._users: dict[Columns, int] = {}
        self.change: Callable[[Solution, int], None] = _unindexed
        self.idle = True
        self._generate()

    def want(self, columns: Columns) -> _Table:
        """Return the table of the index over these columns; make it if new."""
        self._users[columns] = self._users.get(columns, 0) + 1
        if columns not in self._tables:
            self._tables[columns] = self._filled(columns)
            self._drop_idle()
        return self._tables[columns]

    def release(self, columns: Columns) -> None:
        """Release an index; its last user drops it."""
        self._users[columns] -= 1
        if not self._users[columns] and not self._keep_indexes:
            del self._users[columns]
            self._drop_idle()

    def _drop_idle(self) -> None:
        # One index must stay where it alone holds the rows.
        least = 1 if self._source is None else 0
        for columns in list(self._tables):
            if columns not in self._users and len(self._tables) > least:
                del self._tables[columns]
        self._generate()

    def _filled(self, columns: Columns) -> _Table:
        table: _Table = {}
        rest = self.rest(columns)
        names = ", ".join(f"r{column}" for column in self._all)
        lines = ["def fill(rows, table):"]
        lines.append("    for row, count in rows:")
        if self.width:
            lines.append(f"        {names}, = row")
        lines += self._indexing("table", columns, rest, "        ")
        compiled("\n".join(lines), "fill", {})(self.rows(), table)
        return table

    @property
    def tables(self) -> Iterable[_Table]:
        return self._tables.values()

    @property
    def size(self) -> int:
        return sum([count for _, count in self.rows()])

    def rows(self) -> Iterator[tuple[Solution, int]]:
        """Yield the rows with their counts; each once, if held here."""
        if self._source is not None:
            yield from self._source()
            return
        for columns, table in self._tables.items():
            rest = self.rest(columns)
            order = [(columns + rest).index(column) for column in self._all]
            for key, entry in table.items():
                key_part = key if len(columns) != 1 else (key,)
                rests = entry.items() if rest else (((), entry),)
                for rest_key, count in rests:
                    values = key_part + (rest_key if len(rest) != 1 else (rest_key,))
                    yield tuple([values[index] for index in order]), count
            return

    def rest(self, columns: Columns) -> Columns:
        return tuple(column for column in self._all if column not in columns)

    def statistics(self, columns: Columns, rows: int) -> "RowStatistics":
        """Return the distribution of these columns' values, exact with an index."""
        table = self._tables.get(columns)
        if table is not None:
            return RowStatistics(table, bool(self.rest(columns)), 1.0)
        counts: dict[Any, int] = {}
        (only, *more) = columns
        looked_at = 0
        for row, count in islice(self.rows(), _SAMPLE):
            key = tuple([row[column] for column in columns]) if more else row[only]
            counts[key] = counts.get(key, 0) + count
            looked_at += count
        return RowStatistics(counts, False, max(1.0, rows / looked_at) if looked_at else 1.0)

    def _generate(self) -> None:
        self.idle = not self._tables
        names: dict[str, Any] = {}
        lines = ["def change(row, count):", *[f"    {line}" for line in self.maintenance(names)]]
        self.change = _unindexed if self.idle else compiled("\n".join(lines), "change", names)
        if self._prepare is not None:
            self._prepare()

    def maintenance(self, names: dict[str, Any]) -> list[str]:
        """Return the code of `change`, for callers that inline it."""
        lines = [f"{', '.join(f'r{c}' for c in self._all)}, = row"] if self.width else []
        for number, columns in enumerate(self._tables):
            names[f"t{number}"] = self._tables[columns]
            lines += self._indexing(f"t{number}", columns, self.rest(columns), "")
        return lines if self._tables else []

    def _indexing(self, table: str, columns: Columns, rest: Columns, indent: str) -> list[str]:
        key = columns_text(columns)
        if not rest:
            lines = [
                f"key = {key}",
                f"total = {table}.get(key, 0) + count",
                "if total:",
                f"    {table}[key] = total",
                "else:",
                f"    {table}.pop(key, None)",
            ]
        else:
            lines = [
                f"key = {key}",
                f"rest = {columns_text(rest)}",
                f"bucket = {table}.get(key)",
                "if bucket is None:",
                f"    {table}[key] = {{rest: count}}",
                "else:",
                "    total = bucket.get(rest, 0) + count",
                "    if total:",
                "        bucket[rest] = total",
                "    else:",
                "        bucket.pop(rest, None)",
                "        if not bucket:",
                f"            del {table}[key]",
            ]
        return [indent + line for line in lines]


# What is joined: inputs that hold rows, and conditions on what they have together.


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """A condition on a joined row: `check` takes the values of these variables.

    `text` is the same as an expression, with ``{constant}`` so that it is compiled once.
    """

    variables: tuple[Variable, ...]
    check: Condition
    text: str = ""
    constant: int | None = None


class JoinInput:
    """One input of a join: its variables, rows, and route for arriving rows.

    Attributes:
        takes_expired: rows that go must be routed, too.
        failed: takes what `route` raised.
        order: the inputs in the order in which `route` visits them.
        candidate: another order that was better at the last review.
        recent: samples rows.
        seldom: route and indexes are made for a row and released afterwards.
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
        self.failed: Callable[[Exception], None] = _raised
        self.order: tuple[int, ...] = ()
        self.candidate: tuple[int, ...] = ()
        self.used_indexes: list[tuple[int, Columns]] = []
        self.size = size
        self.recent = recent
        self.seldom = seldom
        self._bag = bag

    @property
    def bag(self) -> RowBag:
        return self._bag()

    def columns_of(self, names: Container[Variable]) -> Columns:
        return tuple([column for column, name in enumerate(self.variables) if name in names])

    def hold(self) -> None:
        """Keep rows from now on, because a route may probe them."""
        self._bag()


def _raised(error: Exception) -> None:
    raise error


def _unbuilt(_row: Solution, _count: int) -> None:
    raise AssertionError("rows arrived before the join was started")
