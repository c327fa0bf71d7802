"""Pathway counts the trips of routes as Q1 of the DEBS 2015 challenge has them."""

from pathlib import Path

import pytest

from experiments.studies.taxi import (
    COMMITS,
    PATHWAY,
    TaxiQueries,
    changed_counts,
    counted_by_pathway,
)
from experiments.workloads.taxi import trips
from experiments.workloads.taxi_files import Route, route_counts, write_trips
from tests.experiments.harness.test_runner import run
from tests.support import peers

pytestmark = [pytest.mark.peers, peers.PATHWAY.skip]


@pytest.mark.parametrize("commit", [1, 7])
def test_after_each_commit_its_counts_are_those_of_the_window(tmp_path: Path, commit: int) -> None:
    some = list(trips(200, 3))
    write_trips(some, tmp_path / "trips.csv")
    last = counted_by_pathway(tmp_path / "trips.csv", 2, commit, tmp_path)
    assert last.counts == route_counts(some, 2)
    seen = {number: dict(counts) for number, counts in changed_counts(tmp_path / "changes.csv")}
    assert len(seen) > 10
    now: dict[Route, int] = {}
    for number, first in enumerate(range(0, len(some), commit)):
        now = seen.get(number, now)
        assert now == route_counts(some[: first + commit], 2)


def test_the_experiment_measures_it_beside_the_engine(tmp_path: Path) -> None:
    small = {"trips": 300, "minutes": [2], "recorded": 1, "anew": 5}
    results = run(tmp_path, TaxiQueries(), repetitions=1, tables={"taxi": small})
    assert results.failures == {}
    assert PATHWAY not in results.left_out
    for way in COMMITS:
        (found,) = results.where(way=way).rows
        assert (found["same"], found["trips"]) == ("1", "300")
        assert float(found["factor"]) > 0
