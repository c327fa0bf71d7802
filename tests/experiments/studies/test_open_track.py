"""``open-track``: a small run with real servers and clients."""

import http.server
import lzma
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyoxigraph
import pytest

from experiments.errors import UnavailableError
from experiments.harness import peers
from experiments.harness.items import Run
from experiments.harness.processes import LOOPBACK, Process, Usage, started
from experiments.harness.report import write_report
from experiments.harness.servers import OURS, REFERENCE
from experiments.studies import open_track
from experiments.studies.open_track import (
    COMUNICA,
    IN_PROCESS,
    LARGE,
    OURS_PLAIN,
    OXIGRAPH,
    PAIRS,
    RESTRICTED,
    OpenTrack,
    ProxiedServer,
    Sizes,
    SolutionBag,
    answer_of_oxigraph,
    answers_rightly,
    read_benchmark,
)
from tests.experiments.harness.test_runner import run
from tests.support.reports import Reported, raw_row
from tests.support.threaded import in_thread

EX = "http://example.org/"
QUERIES = {
    "01-1": f"SELECT ?a ?l WHERE {{ ?a <{EX}knows> ?b . ?b <{EX}label> ?l }} ORDER BY ?l LIMIT 3",
    "01-2": f"SELECT ?a ?l WHERE {{ <{EX}p1> <{EX}knows> ?a . ?a <{EX}label> ?l }}",
    "02-1": f"CONSTRUCT {{ ?a <{EX}of> ?l }} WHERE {{ ?a <{EX}label> ?l ; <{EX}knows> <{EX}p2> }}",
    "06-1": "SELECT * WHERE { ?nobody ?asks ?this }",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Both benchmarks, small."""
    lines = [
        f'<{EX}p{n}> <{EX}label> "person {n}" .\n<{EX}p{n}> <{EX}knows> <{EX}p{(n * 7) % 40}> .\n'
        for n in range(40)
    ]
    for name, data in (("bsbm", "bsbm-1000.nt.xz"), ("watdiv", "watdiv-10.nt.xz")):
        (tmp_path / name / "queries").mkdir(parents=True)
        (tmp_path / name / data).write_bytes(
            lzma.compress("".join(lines).replace("> <", ">\t<").encode())
        )
        for query, text in QUERIES.items():
            (tmp_path / name / f"queries/{query}.rq").write_text(text)
    return tmp_path


def small(folder: Path, **sizes: object) -> dict[str, dict[str, object]]:
    own = {"data": str(folder), "benchmarks": ["BSBM", "WatDiv"], "instances": 3, "crowds": [1, 4]}
    return {"open-track": {**own, **sizes}}


def test_our_client_and_oxigraph_answer_everything_rightly(folder: Path, tmp_path: Path) -> None:
    tables = small(folder, benchmarks=["WatDiv"], clients=[OURS, OXIGRAPH])
    results = run(tmp_path / "results", OpenTrack(), repetitions=1, tables=tables)
    assert results.complete
    assert set(results.numbers("right")) == {1.0}
    assert set(results.numbers("timeouts")) == {0.0}
    assert len(results.where(client=OXIGRAPH).rows) == 3
    for server in (OURS_PLAIN, RESTRICTED):
        single = results.where(client=OURS, server=server, crowd=1)
        assert [row["query"] for row in single.rows] == ["01", "01", "02"]
        assert all(count > 0 for count in single.numbers("requests"))
        assert results.numbers("results", client=OURS, server=server, crowd=4) == [4.0]
    text = write_report(tmp_path / "results", [OpenTrack()]).read_text()
    assert f"0 of {len(results.rows)} measurements have an answer that differs" in text


@pytest.mark.peers
def test_comunica_and_the_reference_server(folder: Path, tmp_path: Path) -> None:
    try:
        peers.package("@comunica/query-sparql")
        peers.new_node()
        peers.package("@ldf/server")
    except UnavailableError as error:
        pytest.skip(str(error))
    tables = small(folder, benchmarks=["BSBM"], latencies=[0], instances=1)
    results = run(tmp_path / "results", OpenTrack(), repetitions=1, tables=tables)
    assert results.complete
    assert results.failures == {}
    assert len(results.rows) == 3 * len(PAIRS) - 1
    assert set(results.numbers("right")) == {1.0}
    assert results.numbers("results", client=COMUNICA, server=REFERENCE, crowd=4) == [4.0]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the servers that began, which take a second for each page."""
    names: list[str] = []

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(1)
            with suppress(OSError):  # nobody waits any more
                self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    @contextmanager
    def slow(name: str, *_: object) -> Iterator[ProxiedServer]:
        names.append(name)
        server: Any = SimpleNamespace(process=SimpleNamespace(usage=lambda: Usage(0.0, 0.0)))
        proxy: Any = SimpleNamespace(ask=lambda *_: {})
        with in_thread(pages := http.server.ThreadingHTTPServer((LOOPBACK, 0), Slow)):
            url = f"http://{LOOPBACK}:{pages.server_address[1]}/data"
            yield ProxiedServer(server, proxy, url)

    monkeypatch.setattr(open_track, "proxied_server", slow)
    return names


def test_what_takes_too_long_is_a_timeout_and_ends(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    monkeypatch.setattr(open_track, "PAIRS", ((OURS, OURS_PLAIN),))
    monkeypatch.setattr(open_track, "_WARM_SECONDS", 0.3)
    for name in ("01-2", "02-1", "06-1"):
        (folder / f"bsbm/queries/{name}.rq").unlink()
    tables = small(
        folder, benchmarks=["BSBM"], instances=1, latencies=[0], crowds=[1], seconds=0.3,
        clients=[OURS],
    )  # fmt: skip
    results = run(tmp_path / "results", OpenTrack(), repetitions=1, tables=tables)
    assert results.complete
    assert results.numbers("timeouts") == [1.0]
    assert begun == [OURS_PLAIN]


def test_a_client_that_ends_fails_and_nothing_is_set_up_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    def ending(name: str) -> AbstractContextManager[Process]:
        return started(name, [sys.executable, "-c", "input(); raise SystemExit(3)"])

    monkeypatch.setattr(open_track, "query_client", ending)
    tables = small(folder, benchmarks=["BSBM"], latencies=[0], instances=1, clients=[OURS])
    results = run(tmp_path / "results", OpenTrack(), repetitions=1, tables=tables)
    assert results.complete
    for server in (OURS_PLAIN, RESTRICTED):
        assert results.numbers("failed", server=server) == [1.0, 1.0, 4.0]
    assert all("ended with status 3" in row["why"] for row in results.rows)
    assert not results.numbers("seconds")
    assert len(begun) == len(set(begun))


def test_oxigraph_is_ended_after_the_time() -> None:
    store = pyoxigraph.Store()
    iris = [pyoxigraph.NamedNode(f"{EX}{n}") for n in range(100)]
    store.extend(
        pyoxigraph.Quad(a, b, c) for a, b, c in zip(iris, iris[1:], iris[2:], strict=False)
    )
    everything = " . ".join(f"?a{n} ?b{n} ?c{n}" for n in range(9))
    late = answer_of_oxigraph(store, f"SELECT (COUNT(*) AS ?n) {{ {everything} }}", 0.2)
    assert "rows" not in late
    assert late["seconds"] == 0.2
    assert answer_of_oxigraph(store, "ASK { ?s ?p ?o }", 60.0)["rows"] == [("true",)]
    assert "error" in answer_of_oxigraph(store, "no query", 60.0)


def test_what_takes_longest_is_asked_least(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPF_OPEN_TRACK", str(folder))
    for name in ("watdiv-100.nt", "watdiv-1000.nt"):
        (folder / "watdiv" / name).touch()
    (folder / "watdiv/queries/C3-1.rq").touch()
    sizes = Sizes(benchmarks=("WatDiv", *LARGE))
    usual, *larges = (
        [each.key for each in group.measurements]
        for group in OpenTrack().groups(sizes, Run(1, tmp_path, lambda _text: None))
    )
    for large in larges:
        assert {key["query"] for key in large} == {"01", "02"}
        assert {key["server"] for key in large} == {OURS_PLAIN, RESTRICTED, IN_PROCESS}
        assert {(key["latency_ms"], key["crowd"]) for key in large} == {(0, 1)}
    heavy = [key for key in usual if key["query"] == "C3"]
    assert {(key["latency_ms"], key["crowd"]) for key in heavy} == {(0, 1)}
    assert {(key["latency_ms"], key["crowd"]) for key in usual} == set(product((0, 50), (1, 8, 64)))
    assert not [key for key in usual if key["latency_ms"] and key["server"] == REFERENCE]


def test_data_that_are_absent_are_a_line(tmp_path: Path) -> None:
    results = run(tmp_path / "results", OpenTrack(), tables=small(tmp_path / "nowhere"))
    assert results.complete
    assert list(results.left_out) == ["BSBM", "WatDiv"]
    with pytest.raises(UnavailableError, match="TPF_OPEN_TRACK names a folder"):
        read_benchmark("BSBM", Sizes(data=str(tmp_path)))


def test_data_that_are_larger_than_the_memory_are_not_given_to_oxigraph(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_track, "_HELD", 1e12)
    tables = small(folder, benchmarks=["BSBM"], clients=[OXIGRAPH])
    results = run(tmp_path / "results", OpenTrack(), tables=tables)
    assert results.complete
    assert not results.rows
    assert len(results.failures) == 2
    assert all("too little memory" in reason for reason in results.failures.values())


def test_a_limit_leaves_the_choice_and_nothing_else() -> None:
    whole: SolutionBag = Counter({("a",): 2, ("b",): 1})
    query = "SELECT ?x WHERE { ?x ?p ?o } LIMIT 2 OFFSET 1"
    for letters, right in (("aa", True), ("ab", True), ("bb", False), ("a", False)):
        assert answers_rightly(query, Counter((letter,) for letter in letters), whole) is right
    assert answers_rightly("SELECT * { }", whole, whole)
    assert answers_rightly("CONSTRUCT WHERE { }", Counter((letter,) for letter in "abbb"), whole)
    assert not answers_rightly("SELECT * { }", Counter((letter,) for letter in "aa"), whole)


def test_the_report_compares_what_answered_all() -> None:
    def row(client: str, server: str, query: str, seconds: float) -> dict[str, str]:
        values = {
            "benchmark": "BSBM", "latency_ms": 0, "crowd": 1, "client": client, "server": server,
            "query": query, "instance": 0, "seconds": seconds, "requests": 10, "right": 1,
        }  # fmt: skip
        return raw_row(OpenTrack, **values)

    rows = [row(OURS, OURS_PLAIN, "01", 1.0), row(COMUNICA, OURS_PLAIN, "01", 2.0)]
    rows += [row(OURS, OURS_PLAIN, "02", 1.0), row(COMUNICA, OURS_PLAIN, "02", 0.5)]
    report = Reported(OpenTrack(), rows)
    (finding,) = (text for text in report.texts if "takes" in text)
    assert "plain fragments: 0.8 over plain fragments (20 requests to 20)" in finding
    assert "slower than with Comunica on the same server: over plain fragments 02." in finding
    shares = [each.measured for each in report.targets]
    assert shares[:2] == [pytest.approx(0.8), None]
    heavy = row(COMUNICA, OURS_PLAIN, "C3", 60.0) | {"timeouts": "1"}
    slow = [*rows, row(OURS, OURS_PLAIN, "C3", 30.0), heavy]
    slow = [each | {"benchmark": "WatDiv"} for each in slow]
    texts = Reported(OpenTrack(), slow).texts
    assert "all queries but C3, our client takes" in texts[0]
    assert ": 0.8 over plain fragments (20 requests to 20)" in texts[0]
    assert f"{COMUNICA} on {OURS_PLAIN} more than 60 s." in texts[1]
    assert not [text for text in Reported(OpenTrack(), rows[:3]).texts if "takes" in text]
