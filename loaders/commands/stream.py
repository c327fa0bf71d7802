"""``tpf-load stream``: arriving files and messages to a server, each exactly once."""

import enum
import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from annotations.clock import SystemClock
from annotations.seconds import seconds_from
from annotations.wording import counted
from loaders.commands import options
from loaders.commands.publishing import (
    LabelFlag,
    LabelOption,
    TokenFile,
    TokenOption,
    Url,
    dataset_url,
    given_token,
    stopped_by_signals,
)
from loaders.errors import InputError, LoaderError, ServerUnreachableError, SettingError
from loaders.places import input_place
from loaders.publisher import Publisher, is_stream
from tpf_server.spark.folders import is_url
from tpf_server.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from loaders.stream.event_source import EventFollower
    from loaders.stream.mqtt import Subscriber
    from loaders.stream.spool import Spool

_MQTT = "mqtt://"
_KAFKA = "kafka://"
_EVENTS = "sse+"


class PublishFrom(enum.StrEnum):
    """Who publishes what has been parsed."""

    AUTO = "auto"
    EXECUTORS = "executors"
    DRIVER = "driver"


def stream(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Directory (or URL: hdfs://…) of arriving files, mqtt://HOST, kafka://HOST:PORT, "
            "or sse+http://….",
        ),
    ],
    url: Url,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="DIR", help="Remembers what was sent; or a URL.")
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="The topic of MQTT or Kafka; of events: only of this name."),
    ] = None,
    suffix: Annotated[
        str, typer.Option("--suffix", help="Format of messages: nq, nt, ttl, trig, csv ….")
    ] = "nq",
    mapping: Annotated[
        str | None, typer.Option("--mapping", metavar="FILE", help="CSVW metadata: it is CSV.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="IRI", help="Base of relative IRIs.")
    ] = None,
    holds: Annotated[
        float | None,
        typer.Option(
            "--holds",
            parser=seconds_from(0),
            metavar="S",
            help="Seconds that facts hold; without: RDF that is annotated.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="COLUMN", help="From when the facts of a row hold."),
    ] = None,
    label: LabelFlag = LabelOption.EXPIRATION,
    token: TokenOption = None,
    token_file: TokenFile = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", parser=seconds_from(0.01), metavar="S", help="Seconds between two looks."
        ),
    ] = 1.0,
    per_batch: Annotated[
        int, typer.Option("--per-batch", min=1, metavar="N", help="Records of a micro-batch.")
    ] = 100,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there has been sent.")
    ] = False,
    publish_from: Annotated[
        PublishFrom,
        typer.Option(
            "--publish-from",
            help="Who publishes; auto: the executors, where they reach the server.",
        ),
    ] = PublishFrom.AUTO,
    master: options.Master = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Files, MQTT, Kafka or events to a server, as they arrive, with Spark Structured Streaming."""
    from loaders.stream.job import StreamSettings, arriving_files, messages_of, run_stream
    from loaders.stream.posting import unreached
    from loaders.stream.records import CsvRecords, RdfRecords, RecordMapping

    dataset = dataset_url(url)
    if is_stream(dataset):
        raise SettingError("documents are published to datasets, not to streams")
    home = checkpoint if is_url(checkpoint) else Path(checkpoint).resolve()
    settings = StreamSettings(home, interval, per_batch, once)
    span = None if holds is None else timedelta(seconds=holds)
    if span is not None and span <= timedelta(0):
        raise SettingError("--holds must be positive")
    records: RecordMapping
    if mapping is None:
        records = RdfRecords(span, label.labelling)
    else:
        if span is None:
            raise SettingError("rows of CSV carry no label: give --holds")
        try:
            described = input_place(mapping)
            metadata = json.loads(described.read_bytes())
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise InputError(str(error), mapping) from None
        records = CsvRecords(metadata, str(described), dataset, span, at, label.labelling, base)
    if source.startswith((_MQTT, _KAFKA)) and topic is None:
        raise SettingError("give the --topic")
    received = source.startswith((_MQTT, _EVENTS))
    if received and not isinstance(home, Path):
        raise SettingError(f"what is received goes to this machine's disk: not to {checkpoint}")
    if not (received or is_url(source) or Path(source).is_dir()):
        raise InputError("no such directory", source)
    clock = SystemClock()
    spark = SparkSettings.from_environment(os.environ, master=master, memory=memory)
    with ExitStack() as stack:
        publisher = Publisher(dataset, clock, given_token(token, token_file))
        stack.callback(publisher.close)
        stopped = stack.enter_context(stopped_by_signals())
        session = stack.enter_context(
            spark_session(spark, os.environ, "tpf-load stream", harmless=(LoaderError,))
        )
        if publish_from is not PublishFrom.DRIVER:
            reason = unreached(session, dataset)
            if reason is not None and publish_from is PublishFrom.EXECUTORS:
                raise ServerUnreachableError(f"executors do not reach {dataset}: {reason}")
            if reason is not None:
                _tell(f"executors do not reach {dataset} ({reason}): the driver publishes")
            settings = replace(settings, from_executors=reason is None)
        done: Callable[[int, Sequence[str]], None] | None = None
        check: Callable[[], None] = _nothing
        if source.startswith(_KAFKA):
            assert topic is not None
            frame = messages_of(session, source.removeprefix(_KAFKA), topic, settings)
        elif isinstance(home, Path) and received:
            from loaders.stream.spool import Spool

            spool = Spool(home, "csv" if mapping else suffix, clock)
            receiver = _receiver(source, topic, spool, home)
            stack.enter_context(receiver)
            check = receiver.check
            frame = arriving_files(session, spool.directory, settings)
            done = spool.batch_done
        else:
            arriving = source if is_url(source) else Path(source).resolve()
            frame = arriving_files(session, arriving, settings)
        summary = run_stream(
            frame, records, publisher, settings, stopped,
            lambda problem: _tell(f"left out: {problem}"), done, check,
        )  # fmt: skip
    if not quiet:
        left_out = f", {summary.left_out} left out" if summary.left_out else ""
        told = f"{counted(summary.facts, 'fact')} in {counted(summary.records, 'record')}{left_out}"
        typer.echo(told, err=True)
    if summary.left_out and not summary.records:
        raise InputError("nothing but malformed or refused records", source)


def _receiver(
    source: str, topic: str | None, spool: "Spool", home: Path
) -> "Subscriber | EventFollower":
    """Who lands in the spool what comes; as a block."""
    if source.startswith(_EVENTS):
        from loaders.stream.event_source import EventFollower

        return EventFollower(source, topic, spool, home, _tell)
    from loaders.stream.mqtt import Subscriber

    assert topic is not None
    return Subscriber(source, topic, spool, f"tpf-load-{home.name}", _tell)


def _tell(what: str) -> None:
    typer.echo(f"tpf-load: {what}", err=True)


def _nothing() -> None:
    """Nobody has to be asked."""
