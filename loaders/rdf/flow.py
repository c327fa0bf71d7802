"""Values from task to task: as rows of data frames of Spark, or lists of this process.

They are few and large (arrays of a chunk or range), so a row has a compressed piece of one. A step
is an Arrow function or an exchange by partition, under its name in Spark's plan.
"""

import gc
import pickle
import secrets
import struct
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

import pyarrow as pa

from loaders.jobs import arrow_schema, done_in_thread, rows_of, session_of
from loaders.progress import Report, spark_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")


class Message(NamedTuple):
    """A value, and the partition that it is for."""

    partition: int
    value: Any


class Gathered(NamedTuple):
    """All values sent to a partition, in no order."""

    partition: int
    values: list[Any]


class Flow(ABC, Generic[ValueT]):
    """Values that are processed lazily, and again if lost."""

    @abstractmethod
    def map(self, function: Callable[[ValueT], Iterable[OtherT]]) -> "Flow[OtherT]":
        """Apply a function that makes any number of values."""

    @abstractmethod
    def only(self, *kinds: type[OtherT]) -> "Flow[OtherT]":
        """Leave out values of other kinds, which are not even moved."""

    @abstractmethod
    def exchanged(self, partitions: int) -> "Flow[Gathered]":
        """Deliver messages: one `Gathered` for every partition."""

    @abstractmethod
    def beside(self, others: "Flow[Any]") -> "Flow[Any]":
        """Unite with others of the same kind."""

    @abstractmethod
    def kept(self) -> "Flow[ValueT]":
        """Compute the values once; keep them while the `Flows` live."""

    @abstractmethod
    def collect(self, description: str) -> list[ValueT]:
        """Return all values in sequence."""

    @abstractmethod
    def each(self, description: str) -> Iterator[ValueT]:
        """Compute the values (in one process when they are read); iterate over them in sequence."""


class Flows:
    """Makes flows; a context manager that releases kept values."""

    def __init__(self, context: "SparkContext | None", report: Report) -> None:
        self._context = context
        self.report = report
        self._kept = ExitStack()

    @property
    def cores(self) -> int:
        """Return how many tasks run at the same time."""
        return 1 if self._context is None else int(self._context.defaultParallelism)

    def of(self, items: Sequence[ValueT]) -> Flow[ValueT]:
        """Make a flow of items; very many share tasks."""
        if self._context is None or not items:
            return self.here(items)
        slices = min(len(items), 64 * self.cores)
        numbers = session_of(self._context).range(0, len(items), 1, slices)
        return _SparkFlow(numbers, self.report, self._kept, _Steps(partial(_chosen, items)))

    def here(self, items: Sequence[ValueT]) -> Flow[ValueT]:
        """These items, worked on in this process."""
        return _LocalFlow(lambda: iter(items), self.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()


class _LocalFlow(Flow[ValueT]):
    def __init__(self, values: Callable[[], Iterator[ValueT]], report: Report) -> None:
        self._values = values
        self._report = report

    def map(self, function: Callable[[ValueT], Iterable[OtherT]]) -> Flow[OtherT]:
        return _LocalFlow(
            lambda: (other for value in self._values() for other in function(value)), self._report
        )

    def only(self, *kinds: type[OtherT]) -> Flow[OtherT]:
        return _LocalFlow(
            lambda: (value for value in self._values() if isinstance(value, kinds)), self._report
        )

    def exchanged(self, partitions: int) -> Flow[Gathered]:
        def gathered() -> Iterator[Gathered]:
            results: list[list[Any]] = [[] for _ in range(partitions)]
            for message in self._values():
                assert isinstance(message, Message)
                results[message.partition].append(message.value)
            return map(Gathered, range(partitions), results)

        return _LocalFlow(gathered, self._report)

    def beside(self, others: Flow[Any]) -> Flow[Any]:
        assert isinstance(others, _LocalFlow)
        return _LocalFlow(lambda: chain(self._values(), others._values()), self._report)

    def kept(self) -> Flow[ValueT]:
        results: list[ValueT] = []

        def values() -> Iterator[ValueT]:
            if not results:
                results.extend(self._values())
            return iter(results)

        return _LocalFlow(values, self._report)

    def collect(self, description: str) -> list[ValueT]:
        self._report.stage(description)
        return list(self._values())

    def each(self, description: str) -> Iterator[ValueT]:
        self._report.stage(description)
        return self._values()


ROW_BYTES: Final = 1 << 20
"""The most bytes of a value in a row."""
# Java copies what it moves several times, and hands bytes to Python one by one.
_CODEC: Final = pa.Codec("zstd", compression_level=1)

_COLUMNS: Final = (
    "partition int, kind string, value bigint, pieces int, piece int, size int, content binary"
)
_SCHEMA: Final = arrow_schema(_COLUMNS)


class _SparkFlow(Flow[ValueT]):
    """Rows of a frame, and the functions that a task applies to them one after the other."""

    def __init__(
        self, rows: "DataFrame", report: Report, kept: ExitStack, steps: "_Steps | None" = None
    ) -> None:
        self._rows = rows
        self._context = rows.sparkSession.sparkContext
        self._report = report
        self._kept = kept
        self._steps = steps

    @property
    def _frame(self) -> "DataFrame":
        return self._rows if self._steps is None else self._rows.mapInArrow(self._steps, _COLUMNS)

    def _with(self, frame: "DataFrame", steps: "_Steps | None" = None) -> "_SparkFlow[Any]":
        return _SparkFlow(frame, self._report, self._kept, steps)

    def map(self, function: Callable[[ValueT], Iterable[OtherT]]) -> Flow[OtherT]:
        return self._with(self._rows, (self._steps or _Steps(_each)).then(function))

    def only(self, *kinds: type[OtherT]) -> Flow[OtherT]:
        names = ", ".join(f"'{each.__name__}'" for each in kinds)
        return self._with(self._frame.where(f"kind IN ({names})"))

    def exchanged(self, partitions: int) -> Flow[Gathered]:
        from pyspark.sql.functions import col

        # A message without a value for each partition, because there may be no others.
        numbers = self._rows.sparkSession.range(0, partitions, 1, 1)
        every = numbers.selectExpr(
            "int(id) partition",
            "'' kind",
            "0L value",
            "0 pieces",
            "0 piece",
            "0 size",
            "X'' content",
        )
        sent = self._frame.unionAll(every).repartitionById(partitions, col("partition"))
        return self._with(sent, _Steps(_gathered))

    def beside(self, others: Flow[Any]) -> Flow[Any]:
        assert isinstance(others, _SparkFlow)
        return self._with(self._frame.unionAll(others._frame))

    def kept(self) -> Flow[ValueT]:
        from pyspark import StorageLevel

        frame = self._frame.persist(StorageLevel.DISK_ONLY)
        self._kept.callback(frame.unpersist)
        return self._with(frame)

    def collect(self, description: str) -> list[ValueT]:
        with spark_tasks(self._context, self._report, description):
            return list(self._values_of(self._frame))

    def each(self, description: str) -> Iterator[ValueT]:
        kept = self.kept()
        assert isinstance(kept, _SparkFlow)
        sizes = kept._frame.selectExpr("spark_partition_id() number", "length(content) size")
        with spark_tasks(self._context, self._report, description):
            rows = [*rows_of(done_in_thread(self._context, sizes.toArrow).to_batches())]
        numbers = "spark_partition_id() BETWEEN {} AND {}"
        jobs = (kept._frame.where(numbers.format(*each)) for each in _jobs(rows))
        return chain.from_iterable(map(self._values_of, jobs))

    def _values_of(self, frame: "DataFrame") -> Iterator[ValueT]:
        table = done_in_thread(self._context, frame.toArrow)
        return (value for _, value in joined(_rows(table.to_batches())))


JOB_BYTES: Final = 64 << 20
"""What a job returns to Java and this process at once, unless a partition has more."""
_MOST_JOBS: Final = 32
# Each job looks at all partitions, so of very many bytes it returns more.


def _jobs(rows: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Divide partitions among jobs by the sizes of rows: yield the first and last of each."""
    most = max(JOB_BYTES, sum(size for _, size in rows) // _MOST_JOBS)
    first = last = held = 0
    for number, sizes in groupby(rows, itemgetter(0)):
        size = sum(size for _, size in sizes)
        if held + size > most and held:
            yield first, last
            first, held = number, 0
        last = number
        held += size
    if held:
        yield first, last


class _Steps:
    """Functions from value to values, in one worker; they stand in Spark's plan by name."""

    def __init__(
        self,
        read: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]],
        functions: tuple[Callable[[Any], Iterable[Any]], ...] = (),
    ) -> None:
        self._read = read
        self._functions = functions
        named = [each.func if isinstance(each, partial) else each for each in functions]
        names = [each.__name__ for each in named]
        self.__name__ = "_then_".join(names or ["rows"])

    def then(self, function: Callable[[Any], Iterable[Any]]) -> "_Steps":
        return _Steps(self._read, (*self._functions, function))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _freeze_modules()
        values = self._read(batches)
        for function in self._functions:
            values = chain.from_iterable(map(function, values))
        for each in values:
            yield from pieces_of(*each) if isinstance(each, Message) else pieces_of(0, each)


@cache
def _freeze_modules() -> None:
    # PySpark collects garbage after each task, which looks through all modules for 50 ms.
    gc.freeze()


def _chosen(items: Sequence[Any], batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    return (items[number] for (number,) in rows_of(batches))


def _each(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    return (value for _, value in joined(_rows(batches)))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[Gathered]:
    partitions: defaultdict[int, list[Any]] = defaultdict(list)
    for partition, value in joined(_rows(batches)):
        partitions[partition] += [] if value is None else [value]
    return map(Gathered, partitions, partitions.values())


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        *columns, contents = batch.columns
        columns = [column.to_pylist() for column in columns]
        yield from zip(*columns, (each.as_buffer() for each in contents), strict=True)


def joined(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, Any]]:
    """Yield partitions and values of rows, whose pieces come in any order."""
    begun: defaultdict[int, dict[int, Any]] = defaultdict(dict)
    for partition, _, value, pieces, piece, size, content in rows:
        if not pieces:
            yield partition, None
            continue
        begun[value][piece] = content if len(content) == size else _CODEC.decompress(content, size)
        if len(begun[value]) == pieces:
            contents = begun.pop(value)
            whole = b"".join(contents[number] for number in range(pieces))
            # Only our own tasks and driver write them.
            yield partition, pickle.loads(whole)  # noqa: S301
    assert not begun, "pieces of values are missing"


def pieces_of(partition: int, value: object) -> Iterator[pa.RecordBatch]:
    """Yield a value as rows of at most `ROW_BYTES`."""
    content = memoryview(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    starts = range(0, len(content), ROW_BYTES)
    same = partition, type(value).__name__, secrets.randbits(63), len(starts)
    for piece, start in enumerate(starts):
        part = content[start : start + ROW_BYTES]
        # What does not get shorter stays as it is.
        shorter = min(part, _CODEC.compress(part, asbytes=True), key=len)
        row = (*same, piece, len(part), shorter)
        # `pa.array` would import pandas in each worker: half a second.
        columns = map(_one_value, row, _SCHEMA.types)
        yield pa.record_batch(list(columns), schema=_SCHEMA)


def _one_value(value: int | str | bytes, kind: pa.DataType) -> pa.Array:
    if isinstance(value, int):
        content = value.to_bytes(kind.bit_width // 8, sys.byteorder)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(content)])
    content = value.encode() if isinstance(value, str) else value
    ends = pa.py_buffer(struct.pack("ii", 0, len(content)))
    return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(content)])
