"""Sessions of Spark for few and large rows; results and errors of its workers."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, TypeVar

from loaders.errors import (
    InputError,
    LoaderError,
    OutputError,
    ReplayError,
    ServerUnreachableError,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

ResultT = TypeVar("ResultT")


_OPTIONS: Final = {
    # A value may have megabytes: a task is to hold some of them, not thousands.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    # Java only carries rows from task to task: there is nothing to compile or to adapt.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def session_of(context: "SparkContext") -> "SparkSession":
    """Return a new session of a running Spark."""
    from pyspark.sql import SparkSession

    session = SparkSession(context).newSession()
    for name, value in _OPTIONS.items():
        session.conf.set(name, value)
    return session


def step(function: Callable[..., ResultT], *given: object) -> Callable[..., ResultT]:
    """Give a function its first arguments; Spark's pages show it under its name."""
    return update_wrapper(partial(function, *given), function, ("__name__",), ())


def rows_of(batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of Arrow batches, one by one."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def arrow_schema(columns: str) -> Any:
    """Return the Arrow schema of columns as Spark names them: ``name string, at bigint``."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary(),
    }  # fmt: skip
    pairs = (column.split() for column in columns.split(", "))
    return pa.schema([(name, kinds[kind]) for name, kind in pairs])


def done_in_thread(context: "SparkContext", work: Callable[[], ResultT]) -> ResultT:
    """Return a function's result; Ctrl-C interrupts no call to Java."""
    with _worker_errors(), ThreadPoolExecutor(1, "spark-job") as pool:
        job = pool.submit(work)
        try:
            return job.result()
        except KeyboardInterrupt:
            context.cancelAllJobs()
            raise


@contextlib.contextmanager
def _worker_errors() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if match := _WORKER_ERROR.search(str(error)):
            raise _KINDS[match[1]](match[2]) from None
        raise


_KINDS: Final[dict[str, type[LoaderError]]] = {
    "InputError": InputError,
    "OutputError": OutputError,
    "PublishRefusedError": ReplayError,
    "ServerUnreachableError": ServerUnreachableError,
}
_WORKER_ERROR = re.compile(rf"loaders\.errors\.({'|'.join(_KINDS)}): (.+)")
