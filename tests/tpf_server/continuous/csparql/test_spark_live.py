"""Streams that go on: files that arrive, results that leave, by the clock of Spark.

Nothing here says how soon something happens, only what has happened in the end.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.csparql_program import PREDICATE, QUERY, STREAM
from tests.support.csparql_program import engine as static_engine
from tests.support.csparql_spark import Element, by_instant, native, settings
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.spark.execution import SparkExecution, punctuate

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PATIENCE = 120
"""Seconds; nobody waits for so long where all is well."""


def element(at: int) -> Element:
    value = f'"{at}"^^<http://www.w3.org/2001/XMLSchema#integer>'
    return STREAM, at, (f"<http://e/{'abc'[at % 3]}>", PREDICATE, value)


def arrive(directory: Path, name: str, *lines: str) -> None:
    """A file comes as a whole."""
    new = directory / f".{name}"
    new.write_text("".join(f"{line}\n" for line in lines))
    new.replace(directory / name)


def line(each: Element) -> str:
    return f"{each[1]}\t" + "\t".join(each[2])


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.05)


def test_files_that_arrive_by_the_clock(spark: Any, tmp_path: Path) -> None:
    settings(spark)
    stream = tmp_path / "stream"
    stream.mkdir()

    def execution() -> SparkExecution:
        return SparkExecution(
            spark, QUERY, static_engine().static, {STREAM: stream}, tmp_path / "out",
            strict=False,
        )  # fmt: skip

    def answered(at: int) -> bool:
        answers = list(live.results.read())
        return bool(answers) and answers[-1].at >= at

    live = execution()
    run = live.start("100 milliseconds")
    try:
        arrive(stream, "1.tsv", *(line(element(at)) for at in range(1, 8)), "no line", "9")
        until(lambda: answered(9))
        # While it runs: more, and something that 9 has not seen but 12 does; much is too late.
        arrive(stream, "2.tsv", line(element(10)), line(element(8)), line(element(1)), "12")
        until(lambda: answered(12))
        until(lambda: run.progress().late > 0)
        assert run.active
        progress = run.progress()
        assert (progress.lines, progress.malformed) == (13, 1)
    finally:
        run.stop()
    before = list(live.results.read())
    live = execution()
    run = live.start("100 milliseconds")
    try:
        arrive(stream, "3.tsv", *(line(element(at)) for at in (13, 14)), "15")
        until(lambda: answered(15))
        assert not run.wait(1)
    finally:
        run.stop()
    after = list(live.results.read())
    assert after[: len(before)] == before
    assert [answer.at for answer in after] == [3, 6, 9, 12, 15]
    expected = native(static_engine(), QUERY, [element(at) for at in (1, 2, 3, 4, 5, 6, 7)], 9)
    assert by_instant(before[:3]) == by_instant(expected)
    # 12 has (6, 12]: what came late for 9 included.
    late = native(static_engine(), QUERY, [element(at) for at in (7, 8, 10, 13, 14)], 15)
    assert by_instant(after[3:]) == by_instant(late[-2:])


def test_a_stream_that_a_run_makes_is_read_by_another(spark: Any, tmp_path: Path) -> None:
    settings(spark)
    elements = [element(at) for at in range(1, 10)]
    stream = tmp_path / "stream"
    stream.mkdir()
    arrive(stream, "1.tsv", *map(line, elements))
    punctuate(stream, 12)
    execution = SparkExecution(
        spark, QUERY, static_engine().static, {STREAM: stream}, tmp_path / "out"
    )
    execution.replay()
    # Another query reads what the first one made; it knows up to where everything has come.
    reading = (
        "PREFIX : <http://e/> SELECT ?z (SUM(?n) AS ?sum) "
        "FROM STREAM <http://localhost/totals> [RANGE 6ms STEP 3ms] "
        "WHERE { ?z :total ?n } GROUP BY ?z"
    )
    second = SparkExecution(
        spark, reading, CsparqlEngine().static,
        {"http://localhost/totals": tmp_path / "out" / "elements"}, tmp_path / "second",
    )  # fmt: skip
    second.replay()
    both = static_engine()
    first = both.register(QUERY)
    reader = both.register(reading)
    for name, at, triple in elements:
        both.push(name, triple, at)
    both.advance(12)
    assert by_instant(list(execution.results.read())) == by_instant(list(first))
    assert by_instant(list(second.results.read())) == by_instant(list(reader))
