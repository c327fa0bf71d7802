"""The windows of every stream as one input of a join, with a column for the stream.

Each stream has a window of its own, with its own time; streams may come and go. Source: paper 000,
section 4.1 (``STREAM`` over a variable).
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Schema, Solution, TermId
from tpf_client.dataflow.state.row_index import JoinInput, RowBag
from tpf_server.continuous.engine.windows.continuous_query import WindowClause
from tpf_server.continuous.engine.windows.matchers import PatternKey
from tpf_server.continuous.engine.windows.specification import All
from tpf_server.continuous.engine.windows.window_input import WindowInput


class StreamUnion:
    """The rows of some patterns in the windows of all streams.

    Args:
        stream: the variable that is the stream; it may be one of the others, too.
        since: the number of the query: of stamped rows it sees those that came since.
    """

    def __init__(
        self,
        clause: WindowClause,
        key: PatternKey,
        label: str,
        names: Schema,
        stream: Variable,
        since: int,
    ) -> None:
        self.clause = clause
        self.key = key
        self.since = since
        self.branches: dict[Term, StreamBranch] = {}
        # Where it is a variable of the patterns, the column of this must agree.
        self.agrees = names.index(stream) if stream in names else None
        schema = names if stream in names else (*names, stream)
        self.column = schema.index(stream)
        # What a window keeps is not kept again.
        source = None if isinstance(clause.window, All) else self._present
        self.bag = RowBag(len(schema), source)
        self.recent: deque[Solution] = deque(maxlen=32)
        self.entry = JoinInput(
            label, schema, lambda: self.bag, lambda: self.size, lambda: tuple(self.recent)
        )

    @property
    def size(self) -> int:
        """Estimate the number of rows."""
        return sum([branch.window.held for branch in self.branches.values()])

    def of(self, stream: Term) -> WindowClause:
        """Return the clause for one stream."""
        return replace(self.clause, stream=stream)

    def add(self, stream: Term, number: TermId, window: WindowInput) -> "StreamBranch":
        """Add a stream."""
        branch = self.branches[stream] = StreamBranch(self, number, window)
        return branch

    def drop(self, stream: Term) -> None:
        """Remove a stream and its rows."""
        branch = self.branches[stream]
        rows = [(row, count) for row, count in self.bag.rows() if row[self.column] == branch.number]
        del self.branches[stream]
        for row, count in rows:
            branch.pass_on(row, -count)

    def _present(self) -> Iterable[tuple[Solution, int]]:
        for branch in self.branches.values():
            for row, count in branch.window.bag.rows():
                made = branch.made(row)
                if made is not None:
                    yield made, count


class StreamBranch:
    """Take the rows of one stream."""

    def __init__(self, union: StreamUnion, number: TermId, window: WindowInput) -> None:
        self.number = number
        self.window = window
        self._union = union
        self.route: Callable[[Solution, int], None] = self._route

    @property
    def takes_expired(self) -> bool:
        """True, because the rows of all streams have one index."""
        return True

    @takes_expired.setter
    def takes_expired(self, takes: bool) -> None:
        """Set it on the input of the join."""
        self._union.entry.takes_expired = takes

    def _route(self, row: Solution, count: int) -> None:
        made = self.made(row)
        if made is not None:
            self.pass_on(made, count)

    def made(self, row: Solution) -> Solution | None:
        """Return the row with its stream; ``None`` where the query does not see it."""
        union = self._union
        if self.window.watermark is not None:
            if row[-1] < union.since:
                return None
            row = row[:-1]
        if union.agrees is None:
            return (*row, self.number)
        return row if row[union.agrees] == self.number else None

    def pass_on(self, made: Solution, count: int) -> None:
        """Pass a row that came or left to the join."""
        union = self._union
        union.bag.change(made, count)
        if count > 0:
            union.recent.append(made)
        if count > 0 or union.entry.takes_expired:
            union.entry.route(made, count)
