"""Results and errors of Spark's workers."""

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from loaders.errors import InputError, OutputError

if TYPE_CHECKING:
    from pyspark import SparkContext

ResultT = TypeVar("ResultT")


def made_by_workers(context: "SparkContext", work: Any) -> list[Any]:
    """Collect a distributed collection (an RDD)."""
    return list(done_in_thread(context, work.collect))


def one_by_one(context: "SparkContext", work: Any) -> Iterator[Any]:
    """Iterate over a distributed collection."""
    count, step = work.getNumPartitions(), 4 * context.defaultParallelism
    for start in range(0, count, step):
        some = list(range(start, min(start + step, count)))
        yield from done_in_thread(context, partial(context.runJob, work, iter, some))


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
            kind = InputError if match[1] == "InputError" else OutputError
            raise kind(match[2]) from None
        raise


_WORKER_ERROR = re.compile(r"loaders\.errors\.(InputError|OutputError): (.+)")
