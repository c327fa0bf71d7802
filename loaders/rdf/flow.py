"""Values from task to task: through Spark's shuffle, or lists of this process.

They are few and large, so Java copies bytes and sees no rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from loaders.jobs import made_by_workers, one_by_one
from loaders.progress import Report, spark_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

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
    def each(self) -> Iterator[ValueT]:
        """Iterate over the values in sequence."""


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
        work = self._context.parallelize(items, slices)
        return _SparkFlow(work, self._context, self.report, self._kept)

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

    def exchanged(self, partitions: int) -> Flow[Gathered]:
        def gathered() -> Iterator[Gathered]:
            results: list[list[Any]] = [[] for _ in range(partitions)]
            for message in self._values():
                assert isinstance(message, Message)
                results[message.partition].append(message.value)
            return map(Gathered, range(partitions), results)

        return _LocalFlow(gathered, self._report)

    def beside(self, others: Flow[Any]) -> Flow[Any]:
        return _LocalFlow(lambda: (v for of in (self, others) for v in of.each()), self._report)

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

    def each(self) -> Iterator[ValueT]:
        return self._values()


class _SparkFlow(Flow[ValueT]):
    def __init__(self, work: Any, context: "SparkContext", report: Report, kept: ExitStack) -> None:
        self._work = work  # an RDD
        self._context = context
        self._report = report
        self._kept = kept

    def _with(self, work: Any) -> "_SparkFlow[Any]":
        return _SparkFlow(work, self._context, self._report, self._kept)

    def map(self, function: Callable[[ValueT], Iterable[OtherT]]) -> Flow[OtherT]:
        return self._with(self._work.flatMap(function))

    def exchanged(self, partitions: int) -> Flow[Gathered]:
        sent = self._work.partitionBy(partitions, _itself)
        return self._with(sent.mapPartitionsWithIndex(_gathered))

    def beside(self, others: Flow[Any]) -> Flow[Any]:
        assert isinstance(others, _SparkFlow)
        return self._with(self._context.union([self._work, others._work]))

    def kept(self) -> Flow[ValueT]:
        from pyspark import StorageLevel

        self._kept.callback(self._work.unpersist)
        return self._with(self._work.persist(StorageLevel.DISK_ONLY))

    def collect(self, description: str) -> list[ValueT]:
        with spark_tasks(self._context, self._report, description):
            return made_by_workers(self._context, self._work)

    def each(self) -> Iterator[ValueT]:
        return one_by_one(self._context, self._work)


def _itself(partition: int) -> int:
    return partition


def _gathered(partition: int, messages: Iterable[tuple[int, Any]]) -> Iterator[Gathered]:
    yield Gathered(partition, [value for _, value in messages])
