"""``server-vs-client``: the board, and small runs with real processes."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from experiments.errors import MachineLimitError, MeasurementError, UnavailableError, UntriedError
from experiments.harness import peers
from experiments.harness.processes import Usage
from experiments.harness.report import write_report
from experiments.harness.results import Results
from experiments.studies.boards import (
    CACHED,
    CQELS_MODE,
    CSPARQL_MODE,
    SPARK_MODE,
    STREAMER,
    MachineLimits,
    Mode,
    _failure,
    _Usages,
    engine_settings,
)
from experiments.studies.server_vs_client import ServerVsClient, Sizes
from experiments.workloads.board import board, number_of, renewal
from tests.experiments.harness.test_runner import run
from tests.experiments.studies.test_annotation_methods import liveboards
from tests.support.reports import Reported, raw_row

__all__ = ["liveboards"]
SMALL: dict[str, Any] = {
    "queries": [3], "cached_queries": [3], "shared_queries": [3], "engine_queries": [3],
    "periodic_queries": [3], "method_queries": [2], "departures": 4, "processes": 2, "period": 1.2,
    "first_seconds": 0.4, "periods": 2, "grace": 2.0, "lead": 0.4, "jitter": 0.1, "step": 0.2,
}  # fmt: skip


def measured(folder: Path, *modes: Mode) -> Results:
    tables = {"server-vs-client": {**SMALL, "modes": [mode.name for mode in modes]}}
    results = run(folder, ServerVsClient(), repetitions=1, tables=tables)
    assert results.failures == {}
    assert results.complete
    return results


def test_the_board_and_queries_with_different_constants() -> None:
    found = board(4)
    assert len(found.departures) == 4
    assert len(found.static) == 12
    quads = [*found.static, *renewal(found.departures, 37)]
    assert len(quads) == 12 + 8
    store = pyoxigraph.Store()
    text = "".join(f"{q.subject} {q.predicate} {q.object} .\n" for q in quads)
    store.load(text.encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
    windows = found.windows(50, 1)
    assert found.windows(50, 1) == windows
    assert len(set(windows)) == 50
    for window in windows:
        rows: Any = store.query(window.query())
        delays = [str(row["delay"]) for row in rows]
        assert len(delays) == window.departures > 0
        assert {number_of(delay) for delay in delays} == {37}


def test_a_measurement_whose_readers_are_refused_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(mode: Mode, queries: int) -> str:
        return engine_settings(mode, queries).replace("s_per_address = 0", "s_per_address = 1")

    monkeypatch.setattr("experiments.studies.boards.engine_settings", few)
    once = {"processes": 1, "periods": 1, "grace": 0.1, "modes": [CQELS_MODE.name]}
    tables = {"server-vs-client": SMALL | once}
    results = run(tmp_path, ServerVsClient(), repetitions=1, tables=tables)
    (reason,) = results.failures.values()
    assert "clients do not get their results: 503" in reason


@pytest.mark.timeout(900)
def test_renewals_reach_every_answer(tmp_path: Path) -> None:
    modes = (STREAMER, CQELS_MODE, CSPARQL_MODE)
    results = measured(tmp_path, *modes)
    report = write_report(tmp_path, [ServerVsClient()]).read_text()
    for mode in modes:
        found = results.where(mode=mode.name)
        (total,) = found.where(kind="total").rows
        assert 0 < float(total["completeness"]) <= 1  # a machine that is busy may be late
        assert float(total["latency_p50_ms"]) > 0
        assert float(total["server_percent"]) > 0
        assert float(total["start_client_cpu_s"]) > 0
        assert int(total["bytes"]) > 0
        assert float(total["look_sent"]) > 0 or mode.engine
        assert int(total["updates"]) >= 3
        assert total["failed"] == "0"
        # Whoever reads results asks once; query streamers ask again.
        assert (int(total["requests"]) > 0) == (not mode.engine)
        assert len(found.where(kind="second").rows) >= 1
        assert mode.name in report


@pytest.mark.peers
def test_a_cache_in_front(tmp_path: Path) -> None:
    try:
        peers.nginx()
    except UnavailableError as error:
        pytest.skip(str(error))
    results = measured(tmp_path, CACHED)
    assert results.numbers("cache_percent", kind="total")[0] > 0


def test_without_java_spark_is_left_out_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "nowhere"))
    tables = {"server-vs-client": {**SMALL, "modes": [SPARK_MODE.name]}}
    results = run(tmp_path / "results", ServerVsClient(), tables=tables)
    reason = f"not here: no Java in {tmp_path / 'nowhere'} (there is no bin/java that runs)"
    assert results.left_out == {"board, on Spark": reason}
    assert results.rows == []


def test_the_modes_of_a_full_run() -> None:
    planned = list(Sizes().planned())
    for mode in (STREAMER, CQELS_MODE, CSPARQL_MODE):
        sizes = [queries for each, queries in planned if each is mode]
        # What the report speaks of, and at least two that the cost model fits a line to.
        assert {10, 100, 200} <= set(sizes)
    assert any(each is SPARK_MODE for each, _ in planned)
    rewriting = [mode for mode, _ in planned if mode.method]
    assert len(rewriting) == 5
    everything = replace(Sizes(), cached_methods=True).planned()
    assert sum(mode.cache for mode, _ in everything if mode.method) == 5


def test_more_than_was_too_much_for_the_machine_is_not_tried() -> None:
    limits = MachineLimits()
    with limits.of("a", 10):
        pass
    with pytest.raises(MachineLimitError, match="busy"), limits.of("a", 50):
        raise MachineLimitError("busy")
    with pytest.raises(UntriedError, match="50 queries were too many"), limits.of("a", 100):
        raise AssertionError
    with limits.of("b", 100), limits.of("a", 10):
        pass


def test_the_machine_is_the_limit_where_server_clients_and_feed_filled_it_once() -> None:
    def used(server: float, clients: float, feed: float, wall: float) -> _Usages:
        return Usage(server, wall), None, [Usage(clients, wall)], Usage(feed, wall)

    nothing, little = used(0, 0, 0, 0), used(0.2, 0.2, 0.2, 1)
    assert _failure(nothing, little) is MeasurementError
    assert _failure(nothing, used(0.2, 1e3, 0.2, 1)) is MachineLimitError
    assert _failure(nothing, used(0.2, 0.2, 1e3, 1)) is MachineLimitError
    assert _failure(nothing, used(0, 1e3, 0, 1), used(0, 1e3, 0, 1e6)) is MachineLimitError
    assert _failure(nothing, used(0, 0, 0, 1e6), used(0, 1e3, 0, 1e6 + 1)) is MachineLimitError
    # A client's process has one core, whatever the others do.
    assert _failure(nothing, used(0, 0.7, 0, 1)) is MeasurementError
    assert _failure(nothing, used(0, 0.8, 0, 1)) is MachineLimitError


def total(mode: Mode, queries: int, server: float, **values: Any) -> dict[str, str]:
    given = {
        "source": "irail", "kind": "total", "mode": mode.name, "queries": queries,
        "server_percent": server, "client_percent": 3, "clients_percent": 30,
        "start_client_cpu_s": 1, "failed": 0, "latency_p50_ms": 100, "completeness": 1,
        "bytes": 84_000, "seconds": 20,
    }  # fmt: skip
    return raw_row(ServerVsClient, **(given | values))


def said(rows: list[dict[str, str]]) -> str:
    random.Random(0).shuffle(rows)
    return "\n".join(Reported(ServerVsClient(), rows).texts)


def test_verdicts_on_the_papers_claims_follow_the_data() -> None:
    def verdicts(*rows: dict[str, str]) -> dict[str, str]:
        return Reported(ServerVsClient(), rows).verdicts

    idle: dict[str, Any] = {"clients_percent": 1}
    names = ("server", "engines", "growth", "start", "idle")
    start: dict[str, Any] = {"client_first_percent": 30}
    agreed = verdicts(
        total(STREAMER, 10, 1.0, **start), total(STREAMER, 200, 2.0, **start),
        total(CQELS_MODE, 10, 9.0, **idle), total(CQELS_MODE, 200, 60.0, **idle),
    )  # fmt: skip
    assert agreed == dict.fromkeys(names, "agrees")
    busy: dict[str, Any] = {"client_first_percent": 3}
    differing = verdicts(
        total(STREAMER, 10, 1.0, **busy), total(STREAMER, 200, 60.0, **busy),
        total(CQELS_MODE, 10, 1.0), total(CQELS_MODE, 200, 2.0),
    )  # fmt: skip
    assert differing == dict.fromkeys(names, "differs")
    assert verdicts() == dict.fromkeys(names, "not measured here")


def test_points_at_which_the_machine_was_the_limit_are_marked() -> None:
    rows = [total(mode, n, 5.0, cores=2) for mode in (STREAMER, CQELS_MODE) for n in (100, 200)]
    rows[1]["clients_percent"] = "190"
    figures = Reported(ServerVsClient(), rows).figures.values()
    (figure,) = (each for each in figures if each.answer)
    assert figure.name == "server-cpu"
    assert {
        mode: [point.limited for point in points] for mode, points in figure.series.items()
    } == {STREAMER.name: [False, True], CQELS_MODE.name: [False, False]}


def answered(rows: list[dict[str, str]]) -> list[str]:
    return Reported(ServerVsClient(), rows).answers


def test_opposite_data_turn_the_answers_round() -> None:
    cheap: dict[str, Any] = {"clients_percent": 2, "latency_p50_ms": 16}
    dear: dict[str, Any] = {"clients_percent": 80, "latency_p50_ms": 3799}
    sizes = (10, 200)

    def rows(ours: tuple[float, dict[str, Any]], theirs: tuple[float, dict[str, Any]]) -> Any:
        of = {STREAMER: ours, CQELS_MODE: theirs}
        return [total(mode, n, cpu, **more) for mode, (cpu, more) in of.items() for n in sizes]

    assert answered(rows((4.85, dear), (6.5, cheap))) == [
        "To keep the answers of 200 clients up to date, a server of fragments works 2.91 s of "
        "every minute on one core (4.85 %).",
        "A server that evaluates the same queries itself works 3.9 s in CQELS mode (1.34 times) "
        "of every minute.",
        "The clients do the work instead: each one works 240 ms of every minute and receives "
        "1.26 kB; to read results takes it 6 ms in CQELS mode.",
        "In the median, a client of fragments sees a change 3.8 s after its publication, 16 ms in "
        "CQELS mode.",
        "To save the server's CPU, choose fragments; to save CPU of server and clients together, "
        "choose CQELS mode; for a short delay, choose CQELS mode.",
    ]
    opposite = answered(rows((6.5, cheap), (4.85, dear)))
    assert "works 2.91 s in CQELS mode (0.746 times)" in opposite[1]
    assert "each one works 6 ms" in opposite[2]
    assert opposite[3].endswith("sees a change 16 ms after its publication, 3.8 s in CQELS mode.")
    assert opposite[4] == (
        "To save the server's CPU, choose CQELS mode; to save CPU of server and clients together, "
        "choose fragments; for a short delay, choose fragments."
    )


def test_the_answer_says_where_the_choice_turns_and_leaves_out_what_is_not_there() -> None:
    rows = [total(STREAMER, 10, 5.0), total(STREAMER, 50, 5.0), total(CQELS_MODE, 10, 1.0)]
    rows += [total(CQELS_MODE, 50, 9.0), total(CSPARQL_MODE, 50, 90.0)]
    _, server, client, delay, choice = answered(rows)
    assert "5.4 s in CQELS mode (1.8 times) and 54 s in C-SPARQL mode (18 times)" in server
    assert "C-SPARQL" in client
    assert "C-SPARQL" in delay
    assert "CSPARQL" not in choice
    (*_, choice) = answered(rows[:-1])
    assert "server's CPU, choose CQELS mode for 10 and fragments for 50 clients;" in choice
    assert answered(rows[:1]) == answered([]) == []


@pytest.mark.parametrize("behind", [{"clients_percent": "190"}, {"completeness": "0.9"}])
def test_what_is_said_is_of_sizes_at_which_answers_were_kept_up_to_date(
    behind: dict[str, str],
) -> None:
    rows = [total(STREAMER, n, n / 100, cores=2) for n in (100, 200)]
    rows += [total(CQELS_MODE, n, n / 10, cores=2) for n in (100, 200)]
    assert answered(rows)[0].startswith("To keep the answers of 200 clients")
    lower = "lower with fragments than in CQELS mode at"
    assert f"{lower} 100 and 200 queries: 1 to 2 % of a core" in said([*rows])
    assert Reported(ServerVsClient(), rows).verdicts["engines"] == "agrees"
    rows[1] |= behind
    assert answered(rows)[0].startswith("To keep the answers of 100 clients")
    assert f"{lower} 100 queries: 1 % of a core" in said([*rows])
    for row in rows:
        row |= behind
    reported = Reported(ServerVsClient(), rows)
    assert reported.texts == ["No measurement kept the answers up to date."]
    assert {each.met for each in reported.targets} == {None}
    assert set(reported.verdicts.values()) == {"not measured here"}
