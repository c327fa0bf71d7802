"""The programs in `examples` run unchanged against a real server."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from annotations.labels import Expiration
from annotations.namespaces import integer
from annotations.terms import Quad, iri
from tests.support.running_server import RunningServer

Run: TypeAlias = Callable[..., list[str]]
EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = f"""
[datasets.trains]
source = "{EXAMPLES / "trains.ttl"}"
live = true
[datasets.feed]
source = "{EXAMPLES / "trains.ttl"}"
live = true
[datasets.past]
live = true
accept_past = true
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("examples"), CONFIG) as running:
        # As `publish_feed.py` does it, but for an hour.
        delays = [
            Quad(
                iri(f"http://example.org/departures/{train}"),
                iri("http://example.org/train#delay"),
                integer(delay),
            )
            for train, delay in (("IC1828", 60), ("IC528", 0), ("S51", 0))
        ]
        running.publish("trains", delays, Expiration(datetime.now(UTC) + timedelta(hours=1)))
        yield running


@pytest.fixture
def run(printed: Callable[..., str]) -> Run:
    """The lines that an example prints."""
    return lambda name, *given: printed(EXAMPLES / name, *given).splitlines()


def test_query(server: RunningServer, run: Run) -> None:
    signs = [line.split()[0] for line in run("query.py", server.origin + "trains")]
    assert signs == ["Brugge", "Eeklo", "Oostende"]


def test_publish_and_watch(server: RunningServer, run: Run) -> None:
    (line,) = run("publish_feed.py", server.origin + "feed", "1")
    assert re.fullmatch(r"batch \d+: \{.*\}", line)
    lines = run("watch.py", server.origin + "feed", "1")
    assert len(lines) == 3
    assert all(re.fullmatch(r"\+ \w+ \d+ until .*\+00:00", line) for line in lines)


def test_watch_async(server: RunningServer, run: Run) -> None:
    lines = run("watch_async.py", server.origin + "trains", "1")
    assert sorted(lines) == ["delays: 3 added, 0 removed", "late: 1 added, 0 removed"]


def test_embedded(run: Run) -> None:
    assert run("embedded.py") == ["/data/trains?page=2", "200 OK my application"]


def test_to_pandas(server: RunningServer, run: Run) -> None:
    *_, mean = run("to_pandas.py", server.origin + "trains")
    assert mean == "mean delay: 20.0"


def test_rdflib_graph(server: RunningServer, run: Run) -> None:
    *trains, found = run("rdflib_graph.py", server.origin + "trains")
    assert len(trains) == 3
    assert found == "to Brugge: True"


def test_history(server: RunningServer, run: Run) -> None:
    lines = run("history.py", server.origin + "past")
    assert lines == ["at 10:00 from platform 8", "at 10:10 from platform 11"]


def test_gtfs_feed(run: Run) -> None:
    assert run("gtfs_feed.py")[-1] == "7 departures"


def test_cqels_query(run: Run) -> None:
    lines = run("cqels_query.py")
    assert lines == ["2000 ('<urn:bob>', '<urn:alice>')"]


def test_csparql_query(run: Run) -> None:
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    one, two = (f'"{n}"{integer}' for n in (1, 2))
    assert run("csparql_query.py") == [
        f"5 ('<urn:north>', '{one}') ('<urn:south>', '{one}')",
        f"10 ('<urn:north>', '{two}') ('<urn:south>', '{one}')",
        f"15 ('<urn:north>', '{one}')",
    ]


def test_notebook(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPF_DATASET", server.origin + "trains")
    known: dict[str, object] = {}
    for cell in json.loads((EXAMPLES / "watch.ipynb").read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), known)
    assert len(known["update"].added) == 3  # type: ignore[attr-defined]


def test_all_are_run_and_described() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"}}
    page, tests = (EXAMPLES / "README.md").read_text("utf-8"), Path(__file__).read_text("utf-8")
    assert len(names) >= 10
    assert {name for name in names if name not in page or name not in tests} == set()
