"""``tpf-load stream``: arriving files and messages to a server, each exactly once."""

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from annotations.clock import SystemClock
from annotations.labels import Labelling
from annotations.wording import counted
from loaders.commands.options import grouped, warn
from loaders.commands.publishing import dataset_url, given_token, stopped_by_signals
from loaders.errors import InputError, LoaderError, ServerUnreachableError, SettingError
from loaders.places import input_place, json_in
from loaders.publisher import Publisher, is_stream
from tpf_server.spark.folders import is_url
from tpf_server.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from loaders.stream.event_source import Receiver
    from loaders.stream.spool import Spool

_MQTT = "mqtt://"
_KAFKA = "kafka://"
_EVENTS = "sse+"


@dataclass(frozen=True, slots=True)
class Streaming:
    """The arriving data, and the dataset to publish to."""

    source: str
    url: str
    checkpoint: str
    topic: str | None = None
    suffix: str = "nq"
    mapping: str | None = None
    base: str | None = None
    holds: float | None = None
    at: str | None = None
    label: Labelling = "expiration"
    token: str | None = None
    token_file: Path | None = None
    interval: float = 1.0
    per_batch: int = 100
    once: bool = False
    publish_from: Literal["auto", "executors", "driver"] = "auto"
    master: str | None = None
    memory: str | None = None
    quiet: bool = False


@grouped
def stream(given: Streaming) -> None:
    """Files, MQTT, Kafka or events to a server, as they arrive, with Spark Structured Streaming."""
    from loaders.stream.job import (
        StreamJobSettings,
        StreamProgress,
        arriving_files,
        messages_of,
        run_stream,
    )
    from loaders.stream.posting import unreached
    from loaders.stream.records import CsvRecords, RdfRecords, RecordMapping

    dataset = dataset_url(given.url)
    if is_stream(dataset):
        raise SettingError("documents are published to datasets, not to streams")
    home = given.checkpoint if is_url(given.checkpoint) else Path(given.checkpoint).resolve()
    settings = StreamJobSettings(home, given.interval, given.per_batch, given.once)
    span = None if given.holds is None else timedelta(seconds=given.holds)
    if span is not None and span <= timedelta(0):
        raise SettingError("--holds must be positive")
    records: RecordMapping
    if given.mapping is None:
        records = RdfRecords(span, given.label, given.suffix)
    else:
        if span is None:
            raise SettingError("rows of CSV carry no label: give --holds")
        described = input_place(given.mapping)
        records = CsvRecords(
            json_in(described), str(described), dataset, span, given.at, given.label,
            given.base,
        )  # fmt: skip
    if given.source.startswith((_MQTT, _KAFKA)) and given.topic is None:
        raise SettingError("give the --topic")
    received = given.source.startswith((_MQTT, _EVENTS))
    if received and not isinstance(home, Path):
        raise SettingError(
            f"what is received goes to this machine's disk: not to {given.checkpoint}"
        )
    if not (received or is_url(given.source) or Path(given.source).is_dir()):
        raise InputError("no such directory", given.source)
    clock = SystemClock()
    spark = SparkSettings.from_environment(os.environ, master=given.master, memory=given.memory)
    with ExitStack() as stack:
        publisher = Publisher(dataset, clock, given_token(given.token, given.token_file))
        stack.callback(publisher.close)
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(
            spark_session(spark, os.environ, "tpf-load stream", harmless=(LoaderError,))
        )
        if given.publish_from != "driver":
            reason = unreached(session, dataset)
            if reason is not None and given.publish_from == "executors":
                raise ServerUnreachableError(f"executors do not reach {dataset}: {reason}")
            if reason is not None:
                warn(f"executors do not reach {dataset} ({reason}): the driver publishes")
            settings = replace(settings, from_executors=reason is None)
        progress = StreamProgress(lambda problem: warn(f"left out: {problem}"))
        if given.source.startswith(_KAFKA):
            assert given.topic is not None
            frame = messages_of(session, given.source.removeprefix(_KAFKA), given.topic, settings)
        elif isinstance(home, Path) and received:
            from loaders.stream.spool import Spool

            spool = Spool(home, "csv" if given.mapping else given.suffix, clock)
            receiver = _receiver(given.source, given.topic, spool, home)
            stack.enter_context(receiver)
            frame = arriving_files(session, spool.directory, settings)
            progress = progress._replace(done=spool.batch_done, check=receiver.check)
        else:
            arriving = given.source if is_url(given.source) else Path(given.source).resolve()
            frame = arriving_files(session, arriving, settings)
        summary = run_stream(frame, records, publisher, settings, stopped, progress)
    if not given.quiet:
        left_out = f", {summary.left_out} left out" if summary.left_out else ""
        message = (
            f"{counted(summary.facts, 'fact')} in {counted(summary.records, 'record')}{left_out}"
        )
        typer.echo(message, err=True)
    if summary.left_out and not summary.records:
        raise InputError("nothing but malformed or refused records", given.source)


def _receiver(source: str, topic: str | None, spool: "Spool", home: Path) -> "Receiver":
    from loaders.stream.event_source import EventFollower, Subscriber

    if source.startswith(_EVENTS):
        return EventFollower(source, topic, spool, home, warn)
    assert topic is not None
    return Subscriber(source, topic, spool, f"tpf-load-{home.name}", warn)
