"""Streams in files: lines of elements, or records as columns of Arrow (see `record_reading`)."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from annotations.terms import Term
from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.elements.elements import Element, read_file
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.engine.records.record_reading import (
    RecordColumns,
    columns_of_batch,
    elements_of_batch,
    opened_batches,
)
from tpf_server.continuous.engine.running_query import RunningQuery
from tpf_server.continuous.engine.static.static_data import StaticGraphs, StoreGraph
from tpf_server.store.static.checking import is_store
from tpf_server.store.static.columnar import open_store

# A file of Arrow that the results of one query are written to while it runs.

_PORTION: Final = 1_000
_ROWS: Final = 1 << 16
"""So many emissions, or about so many rows, are one record batch."""


class ArrowFile:
    """Write the emissions of one query as a stream of IPC; `take` is its callback."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._query: RunningQuery[Any] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._taken: list[Any] = []
        self._rows = self._written = 0

    def begin(self, query: RunningQuery[Any]) -> None:
        """Set the query, before elements come."""
        self._query = query
        self._writer = pa.ipc.new_stream(self._file, query.columns.schema)

    def take(self, emitted: Any) -> None:
        """Take an emission; write as soon as there are many."""
        self._taken.append(emitted)
        self._rows += len(emitted.rows)
        if len(self._taken) >= _PORTION or self._rows >= _ROWS:
            self._write()

    def check(self) -> None:
        """Check that the query runs; else write its earlier emissions, and raise its error."""
        if self._query is not None and self._query.error is not None:
            self._write()
            raise self._query.error

    def finish(self) -> None:
        """Write the rest, and raise the error of a stopped query."""
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


# Static data of an engine from files: RDF, or stores that a loader wrote.


def load(engine: StaticGraphs, static: Iterable[Path], graphs: Iterable[tuple[str, Path]]) -> None:
    """Load static data into an engine.

    Args:
        engine: the engine.
        static: files of the default graph, or stores: with their named graphs.
        graphs: IRI and file of each named graph; of a store its default graph.
    """
    for name, path in [*((None, path) for path in static), *graphs]:
        if path.is_dir() and is_store(path):
            store = open_store(path)
            engine.attach(StoreGraph(store), name)
            for graph in store.graphs() if name is None else ():
                engine.attach(StoreGraph(store, graph), graph)
        else:
            engine.load(path, name)


_SUFFIX: Final = ".arrow"


def holds_records(path: Path) -> bool:
    """True if a file of a stream is one of Arrow."""
    return path.suffix == _SUFFIX


def _absolute_name(iri: str) -> Term:
    return Term(f"<{iri}>")


@contextmanager
def opened_records(
    path: Path, name: Callable[[str], Term] = _absolute_name
) -> Iterator[tuple[list[Term], Iterator[RecordColumns]]]:
    """Return the predicates of a file of records, and these, batch by batch.

    `name` makes a predicate of the name of a column. An `ElementError` names the file and, after
    the first one, the batch, in which records are counted.
    """
    with _opened(path, name) as (predicates, batches):
        yield predicates, (columns_of_batch(batch) for _, batch in batches)


@contextmanager
def _opened(
    path: Path, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    with (
        pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as file,
        opened_batches(file, str(path), name) as opened,
    ):
        yield opened


def read_stream(
    stream: str, path: Path, name: Callable[[str], Term] = _absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """Return the elements of a file, each with its timestamp and its stream; see `read_file`.

    A malformed record is an error in its place; one of a wrong type is raised.
    """
    if not holds_records(path):
        yield from read_file(stream, path)
        return
    before = last = 0
    with _opened(path, name) as (predicates, batches):
        for name_in_errors, batch in batches:
            for row, item in enumerate(elements_of_batch(batch, predicates, before), 1):
                if isinstance(item, ElementError):
                    yield last, stream, ElementError(f"{name_in_errors}: record {row}: {item}")
                else:
                    last = item.at
                    yield last, stream, item
            before += batch.num_rows


def merged_streams(
    files: Iterable[tuple[str, Path]], name: Callable[[str], Term] = _absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """Merge the elements of several streams by timestamp, each with its file."""
    return heapq.merge(*(read_stream(*each, name) for each in files), key=lambda each: each[0])
