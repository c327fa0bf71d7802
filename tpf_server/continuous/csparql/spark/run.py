"""A run on Spark: what it does, how far it is, and how it ends."""

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tpf_server.continuous.engine.errors import ContinuousError
from tpf_spark.errors import SparkError
from tpf_spark.session import java_answers

_REASON = re.compile(r"(malformed line|ContinuousError|SparkError): [^\n]*")
_OWN = re.compile("^(?:ContinuousError|SparkError): ")


@contextlib.contextmanager
def asking_java() -> Iterator[None]:
    """What is asked within cannot be, where Java has ended.

    Raises:
        ContinuousError: it has.
    """
    try:
        with java_answers():
            yield
    except SparkError as error:
        raise ContinuousError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has done so far.

    Args:
        batches: how many micro-batches ended.
        lines: how many lines were read.
        late: how many entries of windows came after their instant was closed.
        malformed: how many lines were left out.
    """

    batches: int = 0
    lines: int = 0
    late: int = 0
    malformed: int = 0

    def after(self, batch: Any) -> "Progress":
        """With what Spark reports of one more micro-batch."""
        late = sum(int(state["numRowsDroppedByWatermark"]) for state in batch["stateOperators"])
        malformed = sum(int(each["malformed"] or 0) for each in batch["observedMetrics"].values())
        return Progress(
            self.batches + 1,
            self.lines + int(batch["numInputRows"] or 0),
            self.late + late,
            self.malformed + malformed,
        )


class SparkRun:
    """A query that runs on Spark, and beside it the one that copies malformed lines, if there is.

    Args:
        queries: the query itself comes first.
    """

    def __init__(self, queries: Sequence[StreamingQuery]) -> None:
        self._queries = tuple(queries)
        self._progress = Progress()
        self._seen = ""
        # Whoever asks, and the thread of the micro-batches.
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        """Whether it still runs."""
        with asking_java():
            return self._queries[0].isActive

    @property
    def known(self) -> Progress:
        """What it had done when it was asked last; Spark, which may be gone, is not asked now."""
        return self._progress

    def progress(self) -> Progress:
        """What it has done so far; micro-batches that end after `stop` are not counted.

        Spark remembers the last hundred micro-batches only; so somebody must ask that often, which
        the execution does.
        """
        with self._lock, asking_java():
            for each in self._queries[0].recentProgress:
                # A trigger that finds nothing to do reports the micro-batch that would come next.
                ended = "addBatch" in each["durationMs"]
                if ended and each["timestamp"] > self._seen:
                    self._seen = each["timestamp"]
                    self._progress = self._progress.after(each)
            return self._progress

    def wait(self, seconds: int | None = None) -> bool:
        """Wait until it ends, at most so many seconds (at least one); whether it has ended.

        Raises:
            ContinuousError: it failed; what was answered before is kept.
        """
        try:
            with asking_java():
                if seconds is None:
                    for each in self._queries:
                        each.awaitTermination()
                    return True
                return all(bool(each.awaitTermination(seconds)) for each in self._queries)
        except StreamingQueryException as error:
            self.stop()
            found = _REASON.search(str(error))
            reason = str(error).strip().splitlines()[0] if found is None else found.group()
            raise ContinuousError(f"the run on Spark failed: {_OWN.sub('', reason)}") from error

    def stop(self) -> None:
        """End it; a later run with the same directory goes on from here."""
        with asking_java():
            for each in self._queries:
                each.stop()
