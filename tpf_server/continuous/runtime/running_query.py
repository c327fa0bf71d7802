"""A running continuous query of any language."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Literal, TypeVar, overload

import pyarrow as pa

from annotations.terms import Term
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    CallbackError,
    ContinuousError,
    FailedEvaluationError,
)

# Results of continuous queries as record batches of Arrow.
#
# The schema of a query is always the same: ``sequence`` and ``at`` of the emission that a row is
# of, ``multiplicity`` (1: it is in the result, or came into it; -1: it left it; 0: the emission has
# no rows, and this stands for that), and a column for each variable, called as it is written
# (``?a``), with terms as N-Triples texts and null where it is unbound.

_log: Final = logging.getLogger(__name__)

ResultFormat = Literal["objects", "arrow"]
_FIXED: Final = (
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("multiplicity", pa.int8(), nullable=False),
)
_NUMBER: Final = pa.field("id", pa.int64(), nullable=False)
_TRIPLE: Final = ("?s", "?p", "?o")


def result_variables(query: Query, *, graphs: bool = False) -> tuple[str, ...]:
    """Return the variables of a query's rows; triples have ``?s``, ``?p`` and ``?o``."""
    if query.form == "SELECT":
        return query.variables
    if query.form == "ASK":
        return ()
    return (*_TRIPLE, "?g") if graphs else _TRIPLE


class EmissionColumns:
    """Make record batches of emissions.

    Args:
        removes: all rows left the result, whatever emissions say.
        numbered: emissions have numbers in a log: ``id``, the first column.
    """

    def __init__(
        self, variables: Sequence[str], *, removes: bool = False, numbered: bool = False
    ) -> None:
        self._width = len(variables)
        self._removes = removes
        self._numbered = numbered
        fields = [*([_NUMBER] if numbered else []), *_FIXED]
        self.schema = pa.schema([*fields, *(pa.field(each, pa.string()) for each in variables)])

    def batch(self, emissions: Sequence[Emission], numbers: Sequence[int] = ()) -> pa.RecordBatch:
        nothing: Row = (None,) * self._width
        counts = [len(each.rows) or 1 for each in emissions]
        rows: list[Row] = []
        signs: list[int] = []
        for each in emissions:
            rows += each.rows or (nothing,)
            sign = -1 if each.removed or self._removes else 1
            signs += [sign] * len(each.rows) or [0]
        head = [numbers] if self._numbered else []
        columns = [
            *(_repeated(each, counts) for each in head),
            _repeated([each.sequence for each in emissions], counts),
            _repeated([each.at for each in emissions], counts),
            signs,
            *(_term_columns(rows) if rows and self._width else [()] * self._width),
        ]
        return pa.RecordBatch.from_arrays(
            [
                each if isinstance(each, pa.Array) else pa.array(each, field.type)
                for each, field in zip(columns, self.schema, strict=True)
            ],
            schema=self.schema,
        )


def _term_columns(rows: Sequence[Row]) -> Iterator[object]:
    """Return the columns of rows; a row that a plan gives again is read once."""
    distinct = {id(row): row for row in rows}
    if 2 * len(distinct) > len(rows):
        yield from zip(*rows, strict=True)
        return
    positions = dict(zip(distinct, range(len(distinct)), strict=True))
    taken = pa.array([positions[id(row)] for row in rows], pa.int64())
    for column in zip(*distinct.values(), strict=True):
        yield pa.array(column, pa.string()).take(taken)


def _repeated(values: Sequence[int], counts: Sequence[int]) -> list[int]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


EmissionT = TypeVar("EmissionT")
_ROWS: Final = 1 << 16
"""About so many rows are one record batch."""


class RunningQuery(Generic[EmissionT]):
    """A registered query: its name, its state, and the taker of its emissions.

    Args:
        callback: is called with each emission; ``None``: they wait to be taken.
        backlog: how many may wait; with one more the query is stopped.

    Attributes:
        emitted: count of rows, or in C-SPARQL of answers.
        state: ``running``, ``stopped`` (by a limit, or because its callback raised) or ``closed``.
        stream: the stream that its triples are pushed to, if there is one.
    """

    stream: Term | None = None

    def __init__(
        self,
        name: str,
        callback: Callable[[EmissionT], None] | None,
        backlog: int,
        drop: Callable[[Any], None],
    ) -> None:
        self.name = name
        self.take = self._keep if callback is None else callback
        self.waiting: deque[EmissionT] = deque()
        self.emitted = 0
        self.state = "running"
        self.error: ContinuousError | None = None
        self._backlog = backlog
        self._given = 0
        self._drop = drop

    def _keep(self, emission: EmissionT) -> None:
        if len(self.waiting) >= self._backlog:
            raise BacklogError(f"{self.name}: {self._backlog} results wait to be taken")
        self.waiting.append(emission)

    def __iter__(self) -> Iterator[EmissionT]:
        return self.results()

    @overload
    def results(self, format: Literal["objects"] = "objects") -> Iterator[EmissionT]: ...

    @overload
    def results(self, format: Literal["arrow"]) -> Iterator[pa.RecordBatch]: ...

    def results(self, format: ResultFormat = "objects") -> Iterator[Any]:  # noqa: A002
        """Take the emissions that wait, as objects or as record batches (``arrow``) like `columns`.

        A batch has as many emissions as wait, or as have 65,536 rows. The error of a stopped query
        comes after its last emissions.
        """
        if format not in ("objects", "arrow"):
            raise ValueError(f"{format!r} is neither objects nor arrow")
        return self._taken(self._next if format == "objects" else self._batch)

    def _taken(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.waiting:
            yield take()
        if self.error is not None:
            raise self.error

    def _next(self) -> EmissionT:
        self._given += 1
        return self.waiting.popleft()

    def _batch(self) -> pa.RecordBatch:
        some: list[Emission] = []
        rows = 0
        for number, each in enumerate(self.waiting, self._given + 1):
            some.append(self.emission(each, number))
            rows += len(some[-1].rows) or 1
            if rows >= _ROWS:
                break
        batch = self.columns.batch(some)
        # Those that cannot be written wait on.
        for _ in some:
            self._next()
        return batch

    def emission(self, each: EmissionT, number: int) -> Emission:
        """Turn an emission into one of CQELS; `number` is of the answer, where it has none."""
        raise NotImplementedError

    @property
    def columns(self) -> EmissionColumns:
        """Return the writer of its results as record batches."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """End the query because `take` has raised."""
        self.stop(error if isinstance(error, BacklogError) else CallbackError(self.name, error))

    def stop(self, error: ContinuousError) -> None:
        """End the query for this reason, and release its state."""
        if isinstance(error, FailedEvaluationError):
            # Nobody expected it, so whoever mends it needs to know where.
            _log.error("query %s: %s", self.name, error, exc_info=error.__cause__)
        self.state = "stopped"
        self.error = error
        self._drop(self)

    def close(self) -> None:
        """End the query, if it runs, and release its state."""
        if self.state == "running":
            self.state = "closed"
        self._drop(self)

    @property
    def condition(self) -> dict[str, Any]:
        """Its state, and the reason where it has ended or can have no results."""
        return {"state": self.state} | ({} if self.error is None else {"error": str(self.error)})

    def explain(self) -> dict[str, Any]:
        made = {} if self.stream is None else {"stream": self.stream[1:-1]}
        return {"name": self.name, **self.condition, "emitted": self.emitted, **made}
