"""Runs on Spark that die, and runs on a cluster."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.csparql_program import PREDICATE, QUERY, STREAM, engine
from tests.support.csparql_spark import SHORT_LIVED, Element, by_instant, native
from tests.support.spark_cluster import standalone_cluster
from tpf_server.continuous.csparql.spark.execution import punctuate
from tpf_server.continuous.csparql.spark.results import ResultFiles

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


def started(master: str, directory: Path, lives: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.csparql_program", master, directory, str(lives)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[4], env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED},
    )  # fmt: skip


def ended(job: "subprocess.Popen[str]") -> int:
    try:
        _, said = job.communicate(timeout=400)
    finally:
        job.kill()
        job.wait()
    assert job.returncode in (0, 9), said[-3000:]
    return job.returncode


def check(directory: Path) -> None:
    expected = native(engine(), QUERY, ELEMENTS, END)
    results = ResultFiles(directory / "out", stream=True)
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


def test_a_run_that_dies_goes_on_without_loss_or_repetition(tmp_path: Path) -> None:
    prepare(tmp_path)
    pytest.importorskip("pyspark")
    assert ended(started("local[2]", tmp_path, 4)) == 9
    before = list(ResultFiles(tmp_path / "out").read())
    assert 0 < len(before) < END // 3
    assert ended(started("local[2]", tmp_path, 0)) == 0
    check(tmp_path)


def test_a_cluster_whose_executor_is_killed(tmp_path: Path) -> None:
    prepare(tmp_path)
    # Streams and the checkpoint are files that all nodes see.
    with standalone_cluster(tmp_path / "cluster", shared=True) as cluster:
        job = started(cluster.master_url, tmp_path, 0)
        try:
            # Some micro-batches are done, and some are to come.
            end = time.monotonic() + 400
            while not list(ResultFiles(tmp_path / "out", stream=True).read()):
                assert job.poll() is None, job.communicate()[1][-3000:]
                assert time.monotonic() < end, "no answer"
                time.sleep(0.05)
            for executor in cluster.executors()[:1]:
                executor.kill()
        finally:
            status = ended(job)
        assert status == 0
    check(tmp_path)
