"""Facts and streams as files, read back by method and server."""

from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.methods import METHODS
from annotations.methods.method import Method
from loaders.distributed.facts import write_streams
from loaders.dynamic import (
    history,
    naming_of,
    write_labelled,
)
from loaders.errors import OutputError
from loaders.sources.irail import Irail
from loaders.sources.taxi import Taxi
from tests.loaders.recordings import entry, write_directory
from tests.loaders.sources.test_taxi import EXAMPLE, LATER
from tests.loaders.test_history import MINUTE
from tests.support.oracle import quad_of
from tests.support.served import BASE, NOON, TOKEN, Served


def recorded_board(tmp_path: Path) -> Irail:
    base = int(NOON.timestamp() * 1000)
    polls = {
        base: [entry("a", "0"), entry("b", "60", "2")],
        base + 60_000: [entry("a", "120"), entry("b", "60", "2")],
        base + 120_000: [entry("a", "cancel", ""), entry("b", "60", "3")],
    }
    return Irail(write_directory(tmp_path / "day", polls))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_server_takes_the_file_of_facts(tmp_path: Path, method: Method) -> None:
    feed = recorded_board(tmp_path)
    target = tmp_path / "out" / "facts.nq"
    naming = naming_of(BASE + "trains")
    wanted = sorted(history(feed.batches(None, None)))
    assert write_labelled(iter(wanted), target, method, naming) == len(wanted) == 7
    quads = [quad_of(quad) for quad in ox.parse(path=target, format=ox.RdfFormat.N_QUADS)]
    assert sorted(method.decode(quads, naming)) == wanted
    with Served(tmp_path) as served:
        response = served.session.post(
            f"{BASE}trains/facts",
            data=target.read_bytes(),
            headers={"Content-Type": "application/n-quads", "Authorization": f"Bearer {TOKEN}"},
        )
        assert response.ok, response.text
        for minute in range(4):
            served.clock.advance_to(NOON + minute * MINUTE)
            now = served.clock.now()
            page = served.page("trains/plain")
            assert sorted(page.data) == sorted(f.quad for f in wanted if f.valid_at(now))


def test_streams_are_lines_of_timestamped_triples(tmp_path: Path) -> None:
    trips = tmp_path / "trips.csv"
    trips.write_text(EXAMPLE + LATER)
    assert write_streams(Taxi(trips), tmp_path / "streams") == 28
    lines = (tmp_path / "streams" / "trips.tsv").read_text().splitlines()
    first = lines[1].split("\t")
    assert first == [
        "1356998520000",
        "<http://example.org/taxi/trips/1>",
        "<http://example.org/taxi#taxi>",
        '"07290D3599E7A0D62097A346EFCC1FB5"',
    ]
    assert [int(line.split("\t")[0]) for line in lines] == [1356998520000] * 14 + [
        1356998580000
    ] * 14


def test_a_failed_file_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "facts.nq"
    target.write_text("old")
    bad = recorded_board(tmp_path)
    bad.batches = lambda start, until: (each for each in [1 / 0])  # type: ignore[method-assign, misc]
    with pytest.raises(ZeroDivisionError):
        write_labelled(history(bad.batches(None, None)), target, METHODS[0], naming_of(BASE))
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["day", "facts.nq"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_streams(bad, tmp_path / "file" / "streams")
