"""Facts of a feed in parts equal those of one process, line for line."""

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import given

from annotations.clock import SystemClock
from annotations.labels import key_of
from annotations.methods import METHODS, method_named
from loaders.distributed import facts as module
from loaders.distributed.facts import (
    publish_history_spark,
    write_facts_spark,
    write_parts_spark,
    write_streams,
)
from loaders.distributed.shipping import FileWriter, feed_parts
from loaders.dynamic import history, naming_of, write_labelled
from loaders.errors import InputError, ReplayError
from loaders.outputs import line_of
from loaders.progress import SILENT
from loaders.publisher import Publisher
from loaders.rdf import flow
from loaders.rdf.flow import Flow, Flows, Gathered
from loaders.sources.base import Feed, FeedBatch, FeedSpan, LatestReadings, Reading
from loaders.sources.citybench import CityBench
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_rt import Realtime
from loaders.sources.irail import Irail
from loaders.sources.polling import RecordedMessages
from tests.loaders.facts_server import facts_endpoint
from tests.loaders.recordings import entry, write_directory
from tests.loaders.test_history import BEGIN, MINUTE, fact_of, feeds
from tests.loaders.test_places import disk as disk
from tests.support.file_servers import put
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.spark_cluster import PROJECT, SparkCluster
from tpf_server.store.static.file_systems import RemoteFolder

pytestmark = pytest.mark.timeout(900)
NAMING = naming_of("http://h/x")
FIRST = 1417772214687


class Spoken(Feed):
    """A feed out of a list of batches."""

    name = "spoken"

    def __init__(self, said: Sequence[FeedBatch]) -> None:
        self._said = said

    def batches(self, start: datetime | None, until: datetime | None) -> list[FeedBatch]:
        return [
            batch
            for batch in self._said
            if (start is None or start <= batch.at) and (until is None or batch.at < until)
        ]


class Sensors(LatestReadings):
    """Streams whose latest readings are a feed."""

    name = "sensors"
    last_holds = MINUTE

    def __init__(self, said: list[list[Reading]]) -> None:
        self._said = said

    def streams(self) -> list[str]:
        return [str(number) for number, _ in enumerate(self._said)]

    def readings(
        self, stream: str, start: datetime | None, until: datetime | None
    ) -> Iterator[Reading]:
        for reading in self._said[int(stream)]:
            if (start is None or start <= reading.at) and (until is None or reading.at < until):
                yield reading

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        raise AssertionError("of streams nobody asks")


@st.composite
def sensors(draw: st.DrawFn) -> Sensors:
    said = []
    for number in range(draw(st.integers(1, 4))):
        minutes = sorted(draw(st.lists(st.integers(0, 12), max_size=6)))
        subject = 10 * number
        readings = []
        for minute in minutes:
            values = draw(st.dictionaries(st.integers(0, 2), st.integers(0, 1), max_size=3))
            quads = tuple(fact_of(subject + key, value) for key, value in values.items())
            readings.append(Reading(BEGIN + minute * MINUTE, quads))
        said.append(readings)
    return Sensors(said)


def in_this_process(feed: Feed, shares: int, count: int, chunk: int) -> list[str]:
    """Run the tasks of a feed in any order, and have the driver write their texts."""
    chance = random.Random(f"{shares} {count} {chunk}")

    class Unordered(Flows):
        def of(self, items: Sequence[Any]) -> Flow[Any]:
            return super().of(chance.sample(items, len(items)))

    def gathered(partition: int, values: list[Any]) -> Gathered:
        return Gathered(partition, chance.sample(values, len(values)))

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(module, "_CHUNK", chunk)
        patch.setattr(module, "_PER_CORE", shares)
        patch.setattr(module, "Flows", Unordered)
        patch.setattr(flow, "Gathered", gathered)
        patch.setattr(
            module, "feed_parts", lambda f, start, until, _: feed_parts(f, start, until, count)
        )
        patch.setattr(module, "FileWriter", cluster_writer)
        target = Path(folder, "facts.nq")
        write_facts_spark(feed, target, METHODS[0], NAMING, None, (None, None), SILENT)
        return target.read_text().splitlines()


class Cluster:
    """A context whose workers see no file of the driver."""

    master = "spark://far.test:7077"


def cluster_writer(_: Any, folder: Path) -> FileWriter:
    return FileWriter(Cluster(), folder)  # type: ignore[arg-type]


def test_files_without_lines_are_written_by_the_driver_too(tmp_path: Path) -> None:
    writer = cluster_writer(None, tmp_path)
    with Flows(None, SILENT) as flows:
        pieces = flows.of(["a.tsv", "b.tsv"]).map(lambda name: writer.put(name, ()))
        assert writer.take(pieces, "") == {"a.tsv": 0, "b.tsv": 0}
    assert [(tmp_path / name).read_text() for name in ("a.tsv", "b.tsv")] == ["", ""]


def lines(feed: Feed) -> list[str]:
    """Return the lines of one process."""
    return [
        line_of(quad)
        for fact in history(feed.batches(None, None))
        for quad in METHODS[0].encode(fact, NAMING)
    ]


@given(feeds(), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_a_feed_by_spans_of_time(
    batches: list[FeedBatch], shares: int, count: int, chunk: int
) -> None:
    feed = Spoken(batches)
    assert in_this_process(feed, shares, count, chunk) == lines(feed)


@given(sensors(), st.integers(1, 4), st.integers(1, 4))
def test_the_latest_readings_by_streams(feed: Sensors, shares: int, chunk: int) -> None:
    assert in_this_process(feed, shares, 1, chunk) == lines(feed)


def long_day(path: Path, polls: int, departures: int = 3) -> Path:
    """A recorded day with growing delays and changing departures."""
    return write_directory(
        path,
        {
            FIRST + 60_000 * poll: [
                entry(f"d{(poll // 7 + number) % 40}", str(60 * ((poll + number) // 3)))
                for number in range(departures)
            ]
            for poll in range(polls)
        },
    )


def sources(root: str) -> Iterator[Feed]:
    yield Irail(f"{root}/long")
    yield CityBench(f"{root}/city")
    yield RecordedMessages(f"{root}/rt", Realtime(Gtfs(f"{root}/feed.zip")))


@pytest.mark.spark
def test_spark_writes_the_files_of_one_process_also_of_what_is_at_urls(
    spark: Any, tmp_path: Path, disk: Path, remote: ObjectStore
) -> None:
    method = method_named("singleton-property")
    long_day(disk / "long", 30)
    root = put(disk, remote)
    for feed, there in zip(sources(str(disk)), sources(root), strict=True):
        one, other = tmp_path / f"{feed.name}.nq", tmp_path / f"{feed.name}-spark.nq"
        count = write_labelled(history(feed.batches(None, None)), one, method, NAMING)
        assert count
        # What this process has fetched is no help to others.
        remote.requests.clear()
        found = write_facts_spark(there, other, method, NAMING, spark, (None, None), SILENT)
        assert found == count
        assert other.read_bytes() == one.read_bytes()
        assert any(asked == "GET" for asked, _ in remote.requests)
        if feed.name == "gtfs-rt":
            continue
        told = write_streams(feed, tmp_path / "one" / feed.name)
        by_spark = tmp_path / "spark" / feed.name
        assert write_streams(feed, by_spark, spark) == told
        assert texts(by_spark) == texts(tmp_path / "one" / feed.name)
    day = Irail(f"{root}/long")
    there_too = RemoteFolder(f"s3://{BUCKET}/out", remote.environment)
    parts = write_parts_spark(day, there_too, method, NAMING, spark, (None, None), SILENT)
    assert there_too.files() == list(parts)
    whole = (tmp_path / "irail.nq").read_bytes()
    assert b"".join(there_too.read(name) for name in parts) == whole
    # What is malformed is told as in one process, and nothing takes the place of what was there.
    day = Irail(disk / "long")
    sorted((disk / "long" / "data").iterdir())[17].write_text("{")
    target = tmp_path / "irail.nq"
    with pytest.raises(InputError) as local:
        list(day.batches(None, None))
    with pytest.raises(InputError) as distributed:
        write_facts_spark(day, target, method, NAMING, spark, (None, None), SILENT)
    assert str(distributed.value) == str(local.value)
    assert target.read_bytes() == whole


@pytest.mark.spark
def test_workers_publish_each_fact_once_and_its_versions_in_order(
    spark: Any, tmp_path: Path
) -> None:
    feed = Irail(long_day(tmp_path / "day", 30))
    with facts_endpoint() as endpoint:
        endpoint.facts.faults[:] = ["lost", 503]
        publisher = Publisher(endpoint.url, SystemClock(), "secret")
        span = (None, None)
        count = publish_history_spark(feed, publisher, spark, span, SILENT)
        endpoint.facts.faults[:] = [403] * 100
        with pytest.raises(ReplayError, match="refused a batch: 403"):
            publish_history_spark(feed, publisher, spark, span, SILENT)
        publisher.close()
    lines = [line for posted in endpoint.facts.accepted for line in posted.lines]
    position = {line: number for number, line in enumerate(lines)}
    versions: dict[tuple[str, ...], list[int]] = {}
    wanted = 0
    for fact in history(feed.batches(None, None)):
        encoded = method_named("rdf-1.2").encode(fact, naming_of(publisher.url))
        own = [position.pop(line_of(quad)) for quad in encoded]
        versions.setdefault(key_of(fact.quad), []).append(own[0])
        wanted += 1
    assert (count, position) == (wanted, {})
    assert len({posted.batch.rpartition("-")[0] for posted in endpoint.facts.accepted}) > 1
    assert max(map(len, versions.values())) > 1
    assert all(each == sorted(each) for each in versions.values())


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.spark
def test_an_executor_that_is_killed_on_a_cluster(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    day = long_day(tmp_path / "day", 300, 30)
    outputs = ["--facts", tmp_path / "facts.nq"]
    command = [
        sys.executable, "-m", "tpf_client.commands", "tpf-load", "irail", day, "--engine", "spark",
    ]  # fmt: skip
    load = subprocess.Popen(
        spark_cluster.command([*map(str, (*command, "--quiet", *outputs))]),
        env=spark_cluster.environment, cwd=PROJECT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        killed = spark_cluster.working_executor(load)
        with suppress(psutil.NoSuchProcess):
            killed.kill()
        _, said = load.communicate(timeout=600)
    finally:
        load.kill()
        load.wait()
    assert (load.returncode, said) == (0, "")
    facts = history(Irail(day).batches(None, None))
    method = method_named("named-graph")
    write_labelled(facts, tmp_path / "one.nq", method, naming_of(EXAMPLE_URL))
    assert (tmp_path / "facts.nq").read_bytes() == (tmp_path / "one.nq").read_bytes()


EXAMPLE_URL = "http://example.org/irail"
