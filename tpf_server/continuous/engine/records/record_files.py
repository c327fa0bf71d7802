"""Streams in files: lines of elements, or records as columns of Arrow (see `record_reading`)."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from annotations.terms import Term
from tpf_server.continuous.engine.elements.elements import Element, read_file
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.engine.records.record_reading import (
    RecordColumns,
    columns_of_batch,
    elements_of_batch,
    opened_batches,
)

_SUFFIX: Final = ".arrow"


def holds_records(path: Path) -> bool:
    """Whether a file of a stream is one of Arrow."""
    return path.suffix == _SUFFIX


def absolute_name(iri: str) -> Term:
    """The term of an IRI that is not relative."""
    return Term(f"<{iri}>")


@contextmanager
def opened_records(
    path: Path, name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[list[Term], Iterator[RecordColumns]]]:
    """The predicates of a file of records, and these, batch by batch.

    Args:
        path: of the file.
        name: makes a predicate of the name of a column.

    Raises:
        ElementError: it is no such file, a column is of a type or a name that has no terms, or
            whoever reads it finds one; says the file, and after the first batch which one, as
            records are counted in their batch.
        OSError: it cannot be read.
    """
    with _opened(path, name) as (predicates, batches):
        yield predicates, (columns_of_batch(batch) for _, batch in batches)


@contextmanager
def _opened(
    path: Path, name: Callable[[str], Term]
) -> Iterator[tuple[list[Term], Iterator[tuple[str, pa.RecordBatch]]]]:
    """The same, as batches with what errors call them."""
    with (
        pa.memory_map(str(path)) if path.stat().st_size else pa.BufferReader(b"") as file,
        opened_batches(file, str(path), name) as opened,
    ):
        yield opened


def read_stream(
    stream: str, path: Path, name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """The elements of a file, each with its timestamp and its stream; see `read_file`.

    An error stands in the place of a malformed record, too.

    Args:
        stream: what the stream is called.
        path: of the file.
        name: see `opened_records`.

    Raises:
        ElementError: a file of Arrow that is none or is damaged, or a column that is of another
            type.
        OSError: the file cannot be read.
    """
    if not holds_records(path):
        yield from read_file(stream, path)
        return
    before = last = 0
    with _opened(path, name) as (predicates, batches):
        for place, batch in batches:
            for row, item in enumerate(elements_of_batch(batch, predicates, before), 1):
                if isinstance(item, ElementError):
                    yield last, stream, ElementError(f"{place}: record {row}: {item}")
                else:
                    last = item.at
                    yield last, stream, item
            before += batch.num_rows


def merged_streams(
    files: Iterable[tuple[str, Path]], name: Callable[[str], Term] = absolute_name
) -> Iterator[tuple[int, str, Element | ElementError]]:
    """The elements of several streams, each with its file, in the order of their timestamps.

    Args:
        files: the name of each stream, and its file.
        name: see `opened_records`.

    Raises:
        ElementError: see `read_stream`.
        OSError: a file cannot be read.
    """
    return heapq.merge(*(read_stream(*each, name) for each in files), key=lambda each: each[0])
