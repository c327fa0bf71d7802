"""A file of Arrow that the results of one query are written to while it runs."""

from typing import Any, BinaryIO, Final

import pyarrow as pa

from tpf_server.continuous.engine.running_query import RunningQuery

_PORTION: Final = 1_000


class ArrowFile:
    """Writes a stream of IPC.

    Args:
        file: where it goes; who opened it closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: pa.RecordBatchStreamWriter | None = None

    def drain(self, query: RunningQuery[Any], *, everything: bool = False) -> None:
        """Write what waits, as soon as that is not little; always of the same query.

        Args:
            query: a query without a callback.
            everything: it may be little, or nothing; there will be no more.

        Raises:
            ContinuousError: the query was stopped.
        """
        if len(query.waiting) < _PORTION and not everything:
            return
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, query.columns.schema)
        for batch in query.results("arrow"):
            self._writer.write_batch(batch)
        if everything:
            self._writer.close()
