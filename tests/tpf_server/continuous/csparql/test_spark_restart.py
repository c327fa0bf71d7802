"""Runs on Spark that die, and runs on a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loaders.test_cluster import master  # noqa: F401 - a fixture
from tests.support.csparql_program import PREDICATE, QUERY, STREAM, engine
from tests.support.csparql_spark import SHORT_LIVED, Element, by_instant, native
from tpf_server.continuous.csparql.spark.execution import punctuate
from tpf_server.continuous.csparql.spark.results import ResultFiles

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

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


def run(master: str, directory: Path, lives: int) -> int:  # noqa: F811
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.csparql_program", master, directory, str(lives)],
        capture_output=True, text=True, timeout=200, check=False, cwd=Path(__file__).parents[4],
        env=os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED},
    )  # fmt: skip
    assert done.returncode in (0, 9), done.stderr[-3000:]
    return done.returncode


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
    assert run("local[2]", tmp_path, 4) == 9
    before = list(ResultFiles(tmp_path / "out").read())
    assert 0 < len(before) < END // 3
    assert run("local[2]", tmp_path, 0) == 0
    check(tmp_path)


def test_a_cluster(master: str, tmp_path: Path) -> None:  # noqa: F811
    prepare(tmp_path)
    assert run(master, tmp_path, 0) == 0
    check(tmp_path)
