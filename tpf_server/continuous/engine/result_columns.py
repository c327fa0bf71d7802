"""Results of continuous queries as record batches of Arrow.

The schema of a query is always the same: ``sequence`` and ``at`` of the emission that a row is of,
``multiplicity`` (1: it is in the result, or came into it; -1: it left it; 0: the emission has no
rows, and this stands for that), and a column for each variable, called as it is written (``?a``),
with terms as N-Triples texts and null where it is unbound.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import pyarrow as pa

from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.engine.delivery import Emission

ResultFormat = Literal["objects", "arrow"]
_FIXED: Final = (
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("at", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("multiplicity", pa.int8(), nullable=False),
)
_NUMBER: Final = pa.field("id", pa.int64(), nullable=False)
_TRIPLE: Final = ("?s", "?p", "?o")


def result_variables(query: Query, *, graphs: bool = False) -> tuple[str, ...]:
    """The variables of a query's rows; triples have ``?s``, ``?p`` and ``?o``.

    Args:
        query: what makes the rows.
        graphs: whether triples have a graph, ``?g``.
    """
    if query.form == "SELECT":
        return query.variables
    if query.form == "ASK":
        return ()
    return (*_TRIPLE, "?g") if graphs else _TRIPLE


class EmissionColumns:
    """Makes record batches of emissions.

    Args:
        variables: of their rows.
        removes: whether all rows left the result, whatever emissions say.
        numbered: whether emissions have numbers in a log: ``id``, the first column.

    Attributes:
        schema: of all record batches.
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
        """Emissions as one record batch.

        Args:
            emissions: in their order.
            numbers: of them, if they have some.
        """
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
        return self.of_columns(columns)

    def of_columns(self, columns: Iterable[object]) -> pa.RecordBatch:
        """Columns in the order of the schema, as a record batch."""
        return pa.RecordBatch.from_arrays(
            [
                each if isinstance(each, pa.Array) else pa.array(each, field.type)
                for each, field in zip(columns, self.schema, strict=True)
            ],
            schema=self.schema,
        )


def _term_columns(rows: Sequence[Row]) -> Iterator[object]:
    """The columns of rows. A plan gives a row again that it gave before: it is read once."""
    known = {id(row): row for row in rows}
    if 2 * len(known) > len(rows):
        yield from zip(*rows, strict=True)
        return
    places = dict(zip(known, range(len(known)), strict=True))
    taken = pa.array([places[id(row)] for row in rows], pa.int64())
    for column in zip(*known.values(), strict=True):
        yield pa.array(column, pa.string()).take(taken)


def _repeated(values: Sequence[int], counts: Sequence[int]) -> list[int]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]
