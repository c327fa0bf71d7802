"""``server-vs-client``: the board, and small runs with real servers, feeds and clients."""

import random
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest

from experiments import peers
from experiments.errors import UnavailableError
from experiments.experiment import Finding, Target
from experiments.report import write_report
from experiments.results import Results
from experiments.server_vs_client import CACHED, CQELS, STREAMER, ServerVsClient
from experiments.workloads.board import board, number_of, renewal
from tests.experiments.test_annotation_methods import liveboards
from tests.experiments.test_runner import run

__all__ = ["liveboards"]
SMALL: dict[str, Any] = {
    "departures": 4, "processes": 2, "period": 0.8, "seconds": 2.5, "first_seconds": 1.0,
    "lead": 0.25, "jitter": 0.1,
}  # fmt: skip


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


@pytest.mark.parametrize("mode", [STREAMER, CQELS])
def test_renewals_reach_every_answer(tmp_path: Path, mode: str) -> None:
    sizes = {
        **SMALL, "modes": [mode], "queries": [3], "cqels_queries": [3],
    }  # fmt: skip
    results = run(tmp_path, ServerVsClient(), tables={"server-vs-client": sizes})
    assert results.failures == {}
    assert results.complete
    (total,) = results.where(kind="total").rows
    assert 0 < float(total["completeness"]) <= 1  # a machine that is busy may be late
    assert float(total["latency_p50_ms"]) > 0
    assert float(total["server_percent"]) > 0
    assert int(total["updates"]) >= 3
    assert total["failed"] == "0"
    assert (int(total["requests"]) > 0) == (mode != CQELS)
    assert len(results.where(kind="second").rows) >= 2
    assert mode in write_report(tmp_path, [ServerVsClient()]).read_text()


@pytest.mark.peers
def test_a_cache_in_front(tmp_path: Path) -> None:
    try:
        peers.nginx()
    except UnavailableError as error:
        pytest.skip(str(error))
    sizes = {**SMALL, "modes": [CACHED], "queries": [3]}
    results = run(tmp_path, ServerVsClient(), tables={"server-vs-client": sizes})
    assert results.failures == {}
    assert results.numbers("cache_percent", kind="total")[0] >= 0


def total(mode: str, queries: int, server: float, **values: Any) -> dict[str, str]:
    columns = (*ServerVsClient.keys, *ServerVsClient.values)
    row = {
        **dict.fromkeys(columns, ""), "source": "irail", "kind": "total", "mode": mode,
        "queries": queries, "server_percent": server, "client_percent": 3, "failed": 0,
        "latency_p50_ms": 100, "completeness": 1, **values,
    }  # fmt: skip
    return {name: str(value) for name, value in row.items()}


def said(rows: list[dict[str, str]]) -> str:
    random.Random(0).shuffle(rows)
    items = list(ServerVsClient().report(Results(rows, {}, {})))
    return "\n".join(item.text for item in items if isinstance(item, Finding))


def test_the_first_lines_follow_the_data() -> None:
    rows = [
        total(STREAMER, 10, 2.0), total(STREAMER, 200, 3.0), total(STREAMER, 500, 5.0),
        total(CQELS, 10, 1.0), total(CQELS, 200, 30.0),
    ]  # fmt: skip
    text = said(rows)
    assert "With 200 queries, CQELS mode takes 30.0 % of a core on the server" in text
    assert "the query streamer 3.0 % (10.0 times as much with CQELS mode)" in text
    assert "at 200 of the measured numbers of queries, and not lower at 10." in text
    text = said([total(STREAMER, 10, 2.0), total(CQELS, 10, 1.0)])
    assert "With 10 queries" in text
    assert "(0.5 times as much with CQELS mode)" in text
    assert "at none of the measured" in text
    assert said([total(STREAMER, 10, 2.0)]) == ""
    assert "at least 80.0 % of the expected rows" in said(
        [total(STREAMER, 10, 2.0, completeness=0.8)]
    )
    items = list(ServerVsClient().report(Results(rows, {}, {})))
    targets = [item for item in items if isinstance(item, Target)]
    assert [target.met for target in targets] == [False, None]
