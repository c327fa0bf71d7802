"""A file of Arrow that the results of one query are written to while it runs."""

from typing import Any, BinaryIO, Final

import pyarrow as pa

from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.running_query import RunningQuery

_PORTION: Final = 1_000
_ROWS: Final = 1 << 16
"""So many emissions, or about so many rows, are one record batch."""


class ArrowFile:
    """Writes a stream of IPC; one query has `take` as its callback.

    Args:
        file: where it goes; who opened it closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._query: RunningQuery[Any] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._taken: list[Any] = []
        self._rows = self._written = 0

    def begin(self, query: RunningQuery[Any]) -> None:
        """Say which query it is, before elements come.

        Raises:
            OSError: the file cannot be written.
        """
        self._query = query
        self._writer = pa.ipc.new_stream(self._file, query.columns.schema)

    def take(self, emitted: Any) -> None:
        """The query emits; it is written as soon as that is not little.

        Raises:
            OSError: the file cannot be written.
        """
        self._taken.append(emitted)
        self._rows += len(emitted.rows)
        if len(self._taken) >= _PORTION or self._rows >= _ROWS:
            self._write()

    def check(self) -> None:
        """See that the query runs; otherwise what it emitted before is written.

        Raises:
            ContinuousError: it was stopped; also where the file cannot be written.
        """
        if self._query is not None and self._query.error is not None:
            self._write()
            raise self._query.error

    def finish(self) -> None:
        """Write the rest; there will be no more.

        Raises:
            ContinuousError: the query was stopped.
            OSError: the file cannot be written.
        """
        self._write()
        self.check()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        if self._query is None or self._writer is None or not self._taken:
            return
        taken, self._taken, self._rows = self._taken, [], 0
        some: list[Emission] = []
        for number, each in enumerate(taken, self._written + 1):
            some.append(self._query.emission(each, number))
        self._written += len(taken)
        self._writer.write_batch(self._query.columns.batch(some))
