"""Streams that go on: files that arrive, results that leave, by the clock of Spark.

Nothing here says how soon something happens, only what has happened in the end.
"""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import responses

from annotations.terms import Term
from tests.support.continuous_site import ROOT, Site
from tests.support.csparql_program import PREDICATE, QUERY, STREAM
from tests.support.csparql_program import engine as static_engine
from tests.support.csparql_spark import Element, by_instant, native, settings
from tests.support.eventually import eventually
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.execution import SparkExecution, SparkRun, punctuate
from tpf_server.continuous.spark.server_stream import ServerStream

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

READER = (
    """SELECT ?z ?n { STREAM <http://localhost/totals> [RANGE 3ms] { ?z <http://e/total> ?n } }"""
)


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


def following() -> Site:
    """A server whose stream of totals is read by a query."""
    site = Site(policies={"time": "elements"}, body=100_000)
    assert site.register(READER, name="followed").status_code == 201
    return site


def events(site: Site) -> list[tuple[str, str, str]]:
    emissions = site.emissions("followed")
    return sorted(
        (each["at"], row["z"], row["n"]) for each in emissions for row in each.get("added", ())
    )


def test_files_that_arrive_by_the_clock(spark: Any, tmp_path: Path) -> None:
    settings(spark)
    stream = tmp_path / "stream"
    stream.mkdir()
    server = following()
    sink = ServerStream(f"{ROOT}/streams/totals", "secret", session=server.session)
    rejects = tmp_path / "rejects"

    def execution() -> SparkExecution:
        return SparkExecution(
            spark, QUERY, static_engine().static, {STREAM: stream}, tmp_path / "out",
            rejects=rejects, sink=sink,
        )  # fmt: skip

    def answered(at: int) -> bool:
        run.wait(0)  # raises what it failed with
        answers = list(live.results.read())
        return bool(answers) and answers[-1].at >= at

    live = execution()
    run = live.start(0.1)
    try:
        arrive(stream, "1.tsv", *(line(element(at)) for at in range(1, 8)), "no line", "9")
        eventually(lambda: answered(9))
        # While it runs: more, and something that 9 has not seen but 12 does; much is too late.
        arrive(stream, "2.tsv", line(element(10)), line(element(8)), line(element(1)), "12")
        eventually(lambda: answered(12))
        eventually(lambda: run.progress().late > 0)
        assert run.active
        progress = run.progress()
        assert (progress.lines, progress.malformed) == (13, 1)
        eventually(lambda: any(each.read_text() == "no line\n" for each in rejects.glob("*.txt")))
    finally:
        run.stop()
    before = list(live.results.read())
    live = execution()
    run = live.start(0.1)
    try:
        arrive(stream, "3.tsv", *(line(element(at)) for at in (13, 14)), "15")
        eventually(lambda: answered(15))
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
    # The server has all of it once, whether or not `stop` made a micro-batch come again; and those
    # who follow see it.
    assert events(server) == sorted(
        (f"1970-01-01T00:00:00.{answer.at:03d}Z", str(row[0]), str(row[2]))
        for answer in after
        for row in answer.rows
    )


def test_a_stream_that_a_run_makes_is_read_by_another_and_pushed_once(
    spark: Any, tmp_path: Path
) -> None:
    settings(spark)
    elements = [element(at) for at in range(1, 10)]
    stream = tmp_path / "stream"
    stream.mkdir()
    arrive(stream, "1.tsv", *map(line, elements))
    punctuate(stream, 12)
    server = following()
    sink = ServerStream(f"{ROOT}/streams/totals", "secret", session=server.session)

    class PullsThePlug(ServerStream):
        def write(self, batch: str, answers: Any) -> None:
            super().write(batch, answers)
            raise ContinuousError("the plug was pulled")

    dying = PullsThePlug(f"{ROOT}/streams/totals", "secret", session=server.session)
    with pytest.raises(ContinuousError, match="the plug was pulled"):
        SparkExecution(
            spark, QUERY, static_engine().static, {STREAM: stream}, tmp_path / "out", sink=dying
        ).replay()
    pushed = events(server)
    assert pushed
    # The server took the batch, but Spark does not know: it comes again, and is not taken again.
    execution = SparkExecution(
        spark, QUERY, static_engine().static, {STREAM: stream}, tmp_path / "out", sink=sink
    )
    execution.replay()
    assert sink.repeated == 1
    assert events(server) == pushed
    # Another query reads what the first one made; it knows up to where everything has come.
    reading = (
        "PREFIX : <http://e/> SELECT ?z (SUM(?n) AS ?sum) "
        "FROM STREAM <http://localhost/totals> [RANGE 6ms STEP 3ms] "
        "WHERE { ?z :total ?n } GROUP BY ?z"
    )
    second = SparkExecution(
        spark, reading, Engine().static,
        {"http://localhost/totals": tmp_path / "out" / "elements"}, tmp_path / "second",
    )  # fmt: skip
    second.replay()
    both = static_engine()
    first = both.register_csparql(QUERY)
    reader = both.register_csparql(reading)
    for name, at, triple in elements:
        both.push(name, triple, at)
    both.advance(12)
    assert by_instant(list(execution.results.read())) == by_instant(list(first))
    assert by_instant(list(second.results.read())) == by_instant(list(reader))


@pytest.mark.parametrize("error", [None, ContinuousError("malformed")])
def test_a_run_that_ends_frees_what_spark_keeps_for_it(error: Exception | None) -> None:
    closed: list[bool] = []

    def step() -> bool:
        if error is not None:
            raise error
        return False

    run = SparkRun(step, Mock(close=lambda: closed.append(True)), 0.01)
    run.stop()
    assert closed == [True]


@pytest.mark.parametrize("status", [200, 301, 401])
def test_what_is_no_receipt_takes_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    (tmp_path / "netrc").write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    url, elsewhere = f"{ROOT}/streams/x", {"Location": "http://near.test/"}
    answer = PeriodicAnswer("q", 1, "CONSTRUCT", (), ((Term("<urn:a>"),) * 3,))
    with responses.RequestsMock() as mock:
        mock.post(url, body="a page", status=status, headers=elsewhere)
        with pytest.raises(ContinuousError, match=f"refused batch b: {status} a page"):
            ServerStream(url, "secret").write("b", [answer])
        assert mock.calls[0].request.headers["Authorization"] == "Bearer secret"


def test_a_select_is_no_stream(tmp_path: Path) -> None:
    session: Any = None
    with pytest.raises(ContinuousError, match="SELECT gives no triples"):
        SparkExecution(
            session,
            "SELECT * FROM STREAM <http://e/s> [RANGE 1s TUMBLING] WHERE { ?s ?p ?o }",
            Engine().static, {"http://e/s": tmp_path}, tmp_path,
            sink=ServerStream(f"{ROOT}/streams/x"),
        )  # fmt: skip
