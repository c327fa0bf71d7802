"""Elements of one shape: a subject and one value for each of some predicates.

A record stands for a graph of as many triples. The windows that take it, and their columns, are
determined once for all records, and only those values are encoded.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import repeat
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.expressions.inlined import MOST_SERIAL
from tpf_server.continuous.runtime.elements.elements import (
    EARLIEST,
    LATEST,
    milliseconds,
)
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.instants.instant_queries import InstantQueries
from tpf_server.continuous.runtime.plans.column_expressions import Column
from tpf_server.continuous.runtime.plans.fused_plan import FusedRows
from tpf_server.continuous.runtime.plans.fused_stream import FusedStream
from tpf_server.continuous.runtime.records.record_columns import (
    column_cells,
    encoded_column,
    milliseconds_of,
    whole_numbers,
)
from tpf_server.continuous.runtime.records.record_reading import (
    RecordValue,
    inlined_value,
    term_text,
)
from tpf_server.continuous.runtime.tick_queries import TickQueries
from tpf_server.continuous.runtime.windows.matchers import EncodedTriple
from tpf_server.continuous.runtime.windows.streams import ElementStream
from tpf_server.continuous.runtime.windows.window_input import WindowInput

_Cells = Column | list[TermId]
Arrive = Callable[[ElementStream, list[EncodedTriple], int], None]


class RecordFeed:
    """Push records into a stream.

    Args:
        parts: the queries of an engine, and what takes an element for all of them.
        predicates: IRIs, as terms, all different.
        subjects: the beginning of the IRIs of subjects, where subjects are given as numbers.
        asked: drop the rest of a batch once there is no query.
    """

    def __init__(
        self,
        parts: tuple[TickQueries, InstantQueries, Arrive],
        stream: ElementStream,
        predicates: Sequence[str],
        subjects: str | None = None,
        *,
        asked: bool = False,
    ) -> None:
        self._ticks, self._instants, self._arrive = parts
        self._asked = asked
        self._stream = stream
        shared = self._ticks.shared
        self._encode = shared.encode
        self._dictionary, self._queries = shared.dictionary, shared.queries
        # They need not be kept for ever: whoever looks for what holds terms looks at feeds.
        self._predicates = tuple([self._encode(each) for each in predicates])
        self._prefix = subjects
        self._code = None if subjects is None else self._dictionary.register_prefix(subjects)
        self._batch: list[list[TermId]] = []

    def push(
        self, subject: str | int, values: Sequence[RecordValue], timestamp: int | datetime
    ) -> None:
        """Push a record.

        Args:
            subject: an IRI or blank node as a term, or its number.
            values: one for each predicate: a term (N-Triples), or a Python value: ``bool``,
                ``int``, ``float`` (a double), ``Decimal`` (with its digits), ``datetime`` (with a
                time zone).
            timestamp: milliseconds since 1970, or an instant.
        """
        self._ticks.settle()
        self._check(len(values))
        if type(timestamp) is not int or not EARLIEST <= timestamp <= LATEST:
            timestamp = milliseconds(timestamp)
        # All are looked at before anything changes, and nothing else holds their terms until then.
        self._batch = [*([self.value(each)] for each in values), [self._subject(subject)]]
        try:
            while not self._deliver(self._batch, [timestamp]):
                pass
        finally:
            self._batch = []

    def push_batch(
        self, subjects: pa.Array, values: pa.RecordBatch, timestamps: pa.Array
    ) -> int | None:
        """Push many records, as if one after the other; return the newest timestamp, if any.

        Args:
            subjects: their numbers, or IRIs and blank nodes as terms.
            values: a column for each predicate, in their order: terms (N-Triples), integers,
                decimals, or instants with a time zone.
            timestamps: milliseconds since 1970, or instants with a time zone.

        Raises:
            ElementError: a value is missing or cannot be a term, or the columns do not fit. Nothing
                of the batch has arrived.
        """
        self._check(values.num_columns)
        if not len(subjects) == values.num_rows == len(timestamps):
            raise ElementError(
                f"{len(subjects)} subjects, {values.num_rows} rows of values and "
                f"{len(timestamps)} timestamps"
            )
        if not values.num_rows:
            return None
        times = milliseconds_of(timestamps)
        shape = self._shape() or []
        plans = self._ticks.fused(self._stream, [taker for taker, _ in shape])
        try:
            columns = self._columns(subjects, values)
            done = 0 if plans is None else self._fuse(plans, columns, times)
            if done < len(times):
                self._ticks.settle()
                self._batch = rest = [
                    each if isinstance(each, list) else each.tolist() for each in columns
                ]
                instants = times.tolist()
                while done < len(instants) and self._goes_on():
                    done += self._deliver([each[done:] for each in rest], instants[done:])
        finally:
            self._batch = []
        return int(times.max())

    def _columns(self, subjects: pa.Array, values: pa.RecordBatch) -> list[_Cells]:
        """Return the integers of a batch; nothing else holds its terms before they arrive."""
        known_term, hold = self._dictionary.find, self._batch.append
        columns = [
            column_cells(name, column, self.value, self._encode, known_term, hold)
            for name, column in zip(values.schema.names, values.columns, strict=True)
        ]
        # The subject comes last, so that its place, -1, is the place in this list too.
        columns.append(self._subjects(subjects))
        self._batch += [each for each in columns if isinstance(each, list)]
        return columns

    def _shape(self) -> Sequence[tuple[WindowInput, tuple[int, ...]]] | None:
        """Return the windows with their columns; ``None`` where one needs whole elements."""
        reorders = self._ticks.shared.settings.lateness
        if reorders or self._stream.counting or self._instants.looks_at(self._stream.name):
            return None
        return self._stream.shape(self._predicates)

    def _fuse(self, plans: FusedStream, columns: Sequence[_Cells], times: Column) -> int:
        try:
            subjects = np.asarray(columns[-1], np.int64)
            cells = {
                window: [np.asarray(columns[index], np.int64) for index in indexes]
                for window, (_, indexes) in zip(
                    plans.windows, self._stream.shape(self._predicates) or (), strict=True
                )
            }
        except OverflowError:
            return 0
        rows = FusedRows(times, subjects, cells)
        return self._ticks.fuse(plans, self._stream, rows, len(self._predicates))

    def _subject(self, subject: object) -> TermId:
        if isinstance(subject, str):
            if subject[:1] == '"' or subject[:2] == "<<":
                raise ElementError(f"not a subject: {subject!r}")
            return self._encode(subject)
        if isinstance(subject, bool) or not isinstance(subject, Integral) or self._prefix is None:
            raise ElementError(f"not a subject: {subject!r}")
        number = int(subject)
        if self._code is not None and 0 <= number < MOST_SERIAL:
            return self._dictionary.serial(self._code, number)
        return self._encode(f"<{self._prefix}{number}>")

    def _subjects(self, subjects: pa.Array) -> _Cells:
        if not pa.types.is_integer(subjects.type) or subjects.null_count:
            return encoded_column("the subject", subjects, self._subject, self._subject)
        if self._code is not None and not pa.types.is_uint64(subjects.type):
            numbers = whole_numbers(subjects)
            if 0 <= numbers.min() <= numbers.max() < MOST_SERIAL:
                return self._dictionary.serials(self._code, numbers)
        return [self._subject(number) for number in subjects.to_pylist()]

    def _goes_on(self) -> bool:
        return not self._asked or bool(self._queries)

    def _deliver(self, columns: Sequence[Any], times: Sequence[int]) -> int:
        """Give records to windows while these take them; return how many arrived."""
        stream = self._stream
        shape = self._shape()
        if shape is None:
            *values, subjects = columns
            for subject, at, *objects in zip(subjects, times, *values, strict=True):
                if not self._goes_on():
                    break
                triples = zip(repeat(subject), self._predicates, objects)
                self._arrive(stream, list(triples), at)
            return len(times)
        ticks, version, width = self._ticks, stream.version, len(self._predicates)
        takers = [taker for taker, _ in shape]
        rows = [zip(*[columns[index] for index in indexes], strict=True) for _, indexes in shape]
        done = 0
        for subject, at, *own in zip(columns[-1], times, *rows, strict=True):
            if ticks.ticking:
                ticks.reach(stream, at)
                if stream.version != version:
                    break
            done += 1
            if ticks.begin_arrival(stream, at, width):
                for taker, row in zip(takers, own, strict=True):
                    taker.arrive_star(at, subject, row)
                ticks.end_arrival(at)
                if stream.version != version or not self._goes_on():
                    break
        return done

    def _check(self, columns: int) -> None:
        if columns != len(self._predicates):
            raise ElementError(f"{columns} values for {len(self._predicates)} predicates")
        declarations = self._instants.declarations
        if declarations.declared:
            declarations.check_triples(self._stream.name, [(0, p, 0) for p in self._predicates])

    def value(self, value: RecordValue) -> TermId:
        """Return the integer of a value, or raise `ElementError`."""
        term_id = inlined_value(value)
        return self._encode(term_text(value)) if term_id is None else term_id
