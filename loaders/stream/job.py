"""The Structured Streaming job: records in micro-batches, mapped by the workers, to a server.

**Exactly once.** After a crash Spark repeats a micro-batch with the same number and records, and
the server ignores identifiers (query in the checkpoint, micro-batch, position) that it has. Labels
are functions of the records alone.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from annotations.errors import AnnotationError
from annotations.instants import from_micros
from loaders.errors import InputError, LoaderError, PublishRefusedError, ServerUnreachableError
from loaders.jobs import arrow_schema, step
from loaders.publisher import Publisher
from loaders.stream.posting import Outcome, ParsedRecord, outcomes, posted_records
from loaders.stream.records import Document, RecordMapping
from tpf_server.spark.folders import Folder, folder_of
from tpf_server.spark.java import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IDENTITY = "identity"
_SCHEMA = "name string, at bigint, record binary"


@dataclass(frozen=True, slots=True)
class StreamJobSettings:
    """The settings of a job.

    `checkpoint` keeps the progress; `per_batch` bounds memory; `once` ends when all present records
    were sent; `from_executors` lets an executor publish.
    """

    checkpoint: Path | str
    interval: float = 1.0
    per_batch: int = 100
    once: bool = False
    from_executors: bool = False


class StreamProgress(NamedTuple):
    """The callbacks of a job: for refused records, completed micro-batches, and every second."""

    left_out: Callable[[str], None]
    done: Callable[[int, Sequence[str]], None] = lambda _number, _names: None
    check: Callable[[], None] = lambda: None


@dataclass(slots=True)
class StreamSummary:
    """Counts of a job."""

    records: int = 0
    facts: int = 0
    left_out: int = 0


def arriving_files(
    session: "SparkSession", directory: Path | str, settings: StreamJobSettings
) -> "DataFrame":
    """Return the frame of files that executors see appear in a directory, by renaming."""
    from pyspark.errors import PySparkException

    reader = (
        session.readStream.format("text")
        .option("wholetext", "true")
        .option("maxFilesPerTrigger", str(settings.per_batch))
    )
    try:
        frame = reader.load(str(directory))
    except PySparkException as error:
        raise SparkError(f"{directory}: {str(error).strip().splitlines()[0]}") from error
    return frame.selectExpr(
        "_metadata.file_name AS name",
        "unix_micros(_metadata.file_modification_time) AS at",
        "CAST(value AS binary) AS text",
    )


def messages_of(
    session: "SparkSession", servers: str, topic: str, settings: StreamJobSettings
) -> "DataFrame":
    """Return the frame of a Kafka topic; needs Spark's Kafka source."""
    from pyspark.errors import AnalysisException

    reader = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.per_batch))
    )
    try:
        frame = reader.load()
    except AnalysisException as error:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{session.version}"
        raise SparkError(
            f"Spark has no source of Kafka: set TPF_SPARK_PACKAGES={package} "
            f"(fetched from Maven at the start)"
        ) from error
    return frame.selectExpr(
        "concat_ws('-', topic, partition, lpad(offset, 20, '0')) AS name",
        "unix_micros(timestamp) AS at",
        "value AS text",
    )


def run_stream(
    records: "DataFrame",
    mapping: RecordMapping,
    publisher: Publisher,
    settings: StreamJobSettings,
    stopped: Event,
    progress: StreamProgress,
) -> StreamSummary:
    """Publish records until stopped, or with `once`, until none are left.

    Raises:
        PublishRefusedError: the server refuses batches whatever their content.
        ServerUnreachableError: the server does not answer.
        SparkError: Spark gave up.
    """
    from pyspark.errors import PySparkException

    summary = StreamSummary()
    failures: list[LoaderError] = []
    checkpoint = folder_of(settings.checkpoint, records.sparkSession)
    identity = _identity(checkpoint)

    def publish(frame: "DataFrame", number: int) -> None:
        batch = f"{identity}-{number}"
        result: Iterable[Outcome]
        if settings.from_executors:
            post = step(posted_records, publisher.url, publisher.token, batch)
            in_order = frame.repartition(1).sortWithinPartitions("at", "name")
            rows = in_order.mapInArrow(post, "outcome binary").collect()
            result = [pickle.loads(row.outcome) for row in rows]  # noqa: S301 - of our workers
        else:
            rows = sorted(frame.collect(), key=lambda row: (row.at, row.name))
            records = (pickle.loads(row.record) for row in rows)  # noqa: S301 - of our workers
            result = outcomes(records, publisher, batch, stopped)
        names = []
        for outcome in result:
            names.append(outcome.name)
            if outcome.failure is not None:
                failures.append(
                    ServerUnreachableError(outcome.failure)
                    if outcome.status is None
                    else PublishRefusedError(outcome.status, outcome.failure)
                )
                raise failures[-1]
            if outcome.problem is not None:
                summary.left_out += 1
                progress.left_out(f"{outcome.name}: {outcome.problem}")
            else:
                summary.records += 1
                summary.facts += outcome.facts
        progress.done(number, names)

    writer = (
        records.mapInArrow(step(_mapped, mapping), _SCHEMA)
        .writeStream.option("checkpointLocation", checkpoint.inner("spark").url)
        .foreachBatch(publish)
    )
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(
            processingTime=f"{max(1, round(settings.interval * 1000))} milliseconds"
        )
    query = writer.start()
    try:
        while not query.awaitTermination(1):
            progress.check()
            if stopped.is_set():
                break
    except PySparkException as error:
        if stopped.is_set():
            return summary
        if failures:
            raise failures[-1] from None
        raise SparkError(str(error).strip().splitlines()[0]) from error
    finally:
        query.stop()
    return summary


def _identity(checkpoint: Folder) -> str:
    from secrets import token_hex

    if _IDENTITY not in checkpoint.names():
        checkpoint.write(_IDENTITY, [f"stream-{token_hex(12)}"])
    return checkpoint.read(_IDENTITY).decode()


def _mapped(mapping: RecordMapping, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    schema = arrow_schema(_SCHEMA)
    for batch in batches:
        rows = batch.to_pylist()
        records = [pickle.dumps(_parsed(mapping, **row)) for row in rows]
        names, instants = [row["name"] for row in rows], [row["at"] for row in rows]
        yield pa.record_batch([names, instants, records], schema=schema)


def _parsed(mapping: RecordMapping, name: str, at: int, text: bytes | None) -> ParsedRecord:
    if text is None:
        return ParsedRecord(name)  # a message of Kafka without a value
    try:
        return ParsedRecord(name, mapping.batch(Document(name, from_micros(at), text.decode())))
    except UnicodeDecodeError as error:
        return ParsedRecord(name, problem=f"not UTF-8: {error.reason}")
    except (InputError, AnnotationError, OverflowError) as error:
        # Beyond the year 9999 there is no instant, and of the last one no label.
        return ParsedRecord(name, problem=str(error))
