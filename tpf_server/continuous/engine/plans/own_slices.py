"""OFFSET and LIMIT of queries that differ in other constants, too: each has an order of its own."""

from collections.abc import Callable
from typing import Any, TypeAlias

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.node import Input, Node
from tpf_server.continuous.engine.static.static_cache import INSTANCE

MakeSlice: TypeAlias = Callable[[Node, int, int | None], Node]


class OwnSlices(Node):
    """What each query gets of its rows: the column `INSTANCE` holds the number of the query.

    A change costs those whose rows it concerns.

    Args:
        upstream: solutions, with the numbers of their queries in the column, or that of one.
        make: makes what lets through the part of one query.
    """

    def __init__(self, upstream: Node, make: MakeSlice) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=False)
        self._upstream = upstream
        self._make = make
        self._column = upstream.schema.index(INSTANCE)
        self._parts: dict[int, tuple[Input, Node]] = {}
        self._touched: dict[Node, None] = {}
        upstream.connect(self._push)

    @property
    def pending(self) -> bool:
        """Whether some part must be looked at again."""
        return bool(self._touched)

    def add(self, number: int, offset: int, limit: int | None, *, news: bool) -> None:
        """One more query, before its rows come.

        Args:
            number: of the query.
            offset: how many rows it leaves out.
            limit: how many it gets at most.
            news: whether what is there already is news to it.
        """
        assert news, "it goes on with what it had, which nobody else has"
        entry = Input(self._upstream.schema, self._upstream.certain)
        part = self._make(entry, offset, limit)
        part.connect(lambda row, count: self.emit(row, count))
        self._parts[number] = (entry, part)

    def remove(self, number: int) -> None:
        """That query is gone."""
        _, part = self._parts.pop(number)
        self._touched.pop(part, None)

    def flush(self) -> None:
        """Send what changed about the parts of queries whose rows came or went."""
        touched, self._touched = self._touched, {}
        for part in touched:
            part.flush()

    def _push(self, solution: Solution, count: int) -> None:
        column, touched = self._column, self._touched
        numbers: Any = solution[column]
        if not isinstance(numbers, tuple):
            numbers = (numbers,)
        before, after = solution[:column], solution[column + 1 :]
        for number in numbers:
            found = self._parts.get(number)
            if found is not None:
                entry, part = found
                touched[part] = None
                entry.push((*before, number, *after), count)
