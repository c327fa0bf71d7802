"""A run on a cluster survives any death without loss or repetition."""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.csparql_program import GO, PREDICATE, QUERY, STREAM, WAITING, engine
from tests.support.csparql_spark import SHORT_LIVED, Element, by_instant, native
from tests.support.spark_cluster import PROJECT, SparkCluster
from tests.support.webhdfs import serving_files
from tpf_server.continuous.spark.execution import ResultFiles, punctuate
from tpf_server.spark.folders import LocalFolder

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ELEMENTS: list[Element] = [
    (
        STREAM,
        at,
        (
            f"<http://e/{'abc'[at % 3]}>",
            PREDICATE,
            f'"{at}"^^<http://www.w3.org/2001/XMLSchema#integer>',
        ),
    )
    for at in range(1, 31)
]
END = 36


def prepare(directory: Path) -> None:
    stream = directory / "stream"
    stream.mkdir(parents=True)
    for number in range(3):
        lines = [
            f"{at}\t" + "\t".join(triple) + "\n"
            for _, at, triple in ELEMENTS[10 * number : 10 * number + 10]
        ]
        (stream / f"{number}.tsv").write_text("".join(lines))
    punctuate(stream, END)


def started(
    cluster: SparkCluster, url: str, directory: Path, lives: int
) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "tests.support.csparql_program",
        url,
        str(directory),
        str(lives),
    ]
    return subprocess.Popen(
        cluster.command(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        cwd=PROJECT, env=cluster.environment | {"JAVA_TOOL_OPTIONS": SHORT_LIVED},
    )  # fmt: skip


def ended(job: "subprocess.Popen[str]") -> str:
    """Return its final output."""
    try:
        _, said = job.communicate(timeout=400)
    finally:
        job.kill()
        job.wait()
    found = said.rpartition("failed: ")[2]
    assert job.returncode == (found != said), said[-3000:]
    return found if job.returncode else ""


def check(directory: Path) -> None:
    expected = native(engine(), QUERY, ELEMENTS, END)
    results = ResultFiles(LocalFolder(directory / "out"), stream=True)
    answers = list(results.read())
    assert [answer.at for answer in answers] == [answer.at for answer in expected]
    assert by_instant(answers) == by_instant(expected)
    # The stream that was made has each of these triples once.
    lines = [
        line
        for path in sorted((directory / "out" / "elements").glob("*.tsv"))
        for line in path.read_text().splitlines()
        if "\t" in line
    ]
    assert sorted(lines) == sorted(
        "\t".join([str(answer.at), *map(str, row)]) for answer in expected for row in answer.rows
    )


def test_driver_and_executors_killed_where_files_have_urls_only(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Streams, windows, checkpoint and results are at a URL."""
    files = tmp_path / "files"
    prepare(files)
    with serving_files(spark_cluster, files) as url:
        said = ended(started(spark_cluster, url, tmp_path, 4))
        assert said.startswith("the Java that Spark runs in has ended")
        assert said.count("\n") == 1
        before = list(ResultFiles(LocalFolder(files / "out")).read())
        assert 0 < len(before) < END // 3
        job = started(spark_cluster, url, tmp_path, 0)
        try:
            # It goes on where the other ended; the windows are in a store of an executor again.
            end = time.monotonic() + 400
            while not (tmp_path / WAITING).exists():
                assert job.poll() is None, job.communicate()[1][-3000:]
                assert time.monotonic() < end, "no answer"
                time.sleep(0.05)
            executors = spark_cluster.executors()
            assert executors
            for executor in executors:
                with suppress(psutil.NoSuchProcess):
                    executor.kill()
            (tmp_path / GO).touch()
        finally:
            said = ended(job)
        assert said == ""
    check(files)
