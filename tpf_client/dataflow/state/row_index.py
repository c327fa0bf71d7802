"""Bags of rows with hash indexes over their columns; the code that maintains them is generated.

An index over the columns K maps the values of K to what the other columns hold, with counts. Where
K is all columns an entry is a count alone (the one-way index of paper 001, section 3.2.2);
otherwise it is a dictionary from the rest to its count (the ring index: retrieval by key). Keys and
rests of one column are the bare identifier, of more a tuple, of none the empty tuple.

An index is made when a route first wants it, and dropped when no route wants it any more, so that
a change costs no more than what is used; only where rows seldom change it stays, because making it
again would cost more than keeping it.
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
    """The expression for the values of these columns: bare, or a tuple."""
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
        """How many different values there are (of those that were looked at)."""
        return max(1, len(self._table))

    def partners(self, keys: Sequence[Any]) -> float:
        """How many rows have one of these values, on average."""
        table = self._table
        if self._buckets:
            total = sum([len(table.get(key, ())) for key in keys])
        else:
            total = sum([table.get(key, 0) for key in keys])
        return total * self._scale / len(keys)


class RowBag:
    """A bag of rows of the same width.

    Args:
        width: the number of columns.
        source: gives the rows that are there now, with their counts, where somebody else holds them
            anyway: then an index is filled from it, and without a wanted index nothing is kept.
        keeps: whether an index that nobody wants any more stays: for rows that seldom change.
        prepare: is called when `maintenance` gives other code than before.

    Attributes:
        width: the number of columns.
        change: adds `count` copies of a row (negative: takes them away); looked up at every use,
            because it is generated anew when an index comes or goes.
        idle: whether `change` does nothing, because nobody wants an index.
    """

    def __init__(
        self,
        width: int,
        source: Callable[[], Iterable[tuple[Solution, int]]] | None = None,
        *,
        keeps: bool = False,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.width = width
        self._all: Columns = tuple(range(width))
        self._source = source
        self._keeps = keeps
        self._prepare = prepare
        self._tables: dict[Columns, _Table] = {} if source is not None else {self._all: {}}
        self._users: dict[Columns, int] = {}
        self.change: Callable[[Solution, int], None] = _unindexed
        self.idle = True
        self._generate()

    def want(self, columns: Columns) -> _Table:
        """The table of the index over these columns, filled; made where it is new."""
        self._users[columns] = self._users.get(columns, 0) + 1
        if columns not in self._tables:
            self._tables[columns] = self._filled(columns)
            self._drop_idle()
        return self._tables[columns]

    def release(self, columns: Columns) -> None:
        """One user of this index less; where it was the last, the index goes."""
        self._users[columns] -= 1
        if not self._users[columns] and not self._keeps:
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
        """A new index with the rows that are there."""
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
        """All of its indexes."""
        return self._tables.values()

    @property
    def size(self) -> int:
        """How many rows there are, copies counted (counted when asked for)."""
        return sum([count for _, count in self.rows()])

    def rows(self) -> Iterator[tuple[Solution, int]]:
        """The rows with their counts; each once, where no one else holds them."""
        if self._source is not None:
            yield from self._source()
            return
        for columns, table in self._tables.items():
            rest = self.rest(columns)
            order = [(columns + rest).index(column) for column in self._all]
            for key, entry in table.items():
                key_part = key if len(columns) != 1 else (key,)
                found = entry.items() if rest else (((), entry),)
                for rest_key, count in found:
                    values = key_part + (rest_key if len(rest) != 1 else (rest_key,))
                    yield tuple([values[place] for place in order]), count
            return

    def rest(self, columns: Columns) -> Columns:
        """The columns that are not among these."""
        return tuple(column for column in self._all if column not in columns)

    def statistics(self, columns: Columns, rows: int) -> "RowStatistics":
        """How the values of these columns are distributed.

        Where there is an index over them it is exact; otherwise it is taken from some of the rows.
        """
        table = self._tables.get(columns)
        if table is not None:
            return RowStatistics(table, bool(self.rest(columns)), 1.0)
        found: dict[Any, int] = {}
        (only, *more) = columns
        looked_at = 0
        for row, count in islice(self.rows(), _SAMPLE):
            key = tuple([row[column] for column in columns]) if more else row[only]
            found[key] = found.get(key, 0) + count
            looked_at += count
        return RowStatistics(found, False, max(1.0, rows / looked_at) if looked_at else 1.0)

    def _generate(self) -> None:
        self.idle = not self._tables
        names: dict[str, Any] = {}
        lines = ["def change(row, count):", *[f"    {line}" for line in self.maintenance(names)]]
        self.change = _unindexed if self.idle else compiled("\n".join(lines), "change", names)
        if self._prepare is not None:
            self._prepare()

    def maintenance(self, names: dict[str, Any]) -> list[str]:
        """The code of `change`, for those who have a row often enough to spare the call."""
        lines = [f"{', '.join(f'r{c}' for c in self._all)}, = row"] if self.width else []
        for number, columns in enumerate(self._tables):
            names[f"t{number}"] = self._tables[columns]
            lines += self._indexing(f"t{number}", columns, self.rest(columns), "")
        return lines if self._tables else []

    def _indexing(self, table: str, columns: Columns, rest: Columns, indent: str) -> list[str]:
        """The lines that bring `count` copies of the row ``r0, r1, …`` into a table."""
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
    """A condition on a joined row.

    Args:
        variables: what it needs.
        check: takes the values of exactly these variables, in this order.
        text: the same as an expression with a place for each value, to spare the call.
        constant: what `text` calls ``{constant}``: not a part of it, so that the code that is made
            is the same for all constants, and compiled once.
    """

    variables: tuple[Variable, ...]
    check: Condition
    text: str = ""
    constant: int | None = None


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

    def columns_of(self, names: Container[Variable]) -> Columns:
        """The columns that have one of these variables."""
        return tuple([place for place, name in enumerate(self.variables) if name in names])

    def hold(self) -> None:
        """Have rows kept from now on, because a route may come to probe them."""
        self._bag()


def _unbuilt(_row: Solution, _count: int) -> None:
    raise AssertionError("rows arrived before the join was started")
