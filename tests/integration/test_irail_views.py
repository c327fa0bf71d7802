"""Every view shows exactly the valid facts of the recorded day.

More than two hours of it; with IRAIL_WHOLE_DAY set, all.
"""

import os
from pathlib import Path

import pytest

from annotations.labels import Fact, Labelling
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from tests.support.irail import Day, day, needs_recording, play
from tests.support.oracle import Publications
from tests.support.served import BASE, Served

__all__ = ["day"]
pytestmark = needs_recording

BATCHES = None if "IRAIL_WHOLE_DAY" in os.environ else 80
"""How many polls are played."""


@pytest.mark.parametrize("labelling", ["expiration", "interval"])
def test_every_view_says_the_facts_that_hold(
    day: Day, labelling: Labelling, tmp_path: Path
) -> None:
    settings = {"page_size": 1000}
    with Served(tmp_path, day.static, settings=settings, start=day.batches[0].at) as served:
        model = Publications(day.static)
        batches = day.batches[:BATCHES]
        play(batches, served, labelling, model)
        for instant in [batch.at for batch in batches][:: len(batches) // 2]:
            served.clock.advance_to(instant)
            expected = {fact for fact in model.facts() if fact.valid_at(instant)}
            for method in METHODS:
                assert _shown(served, method) == expected


def _shown(served: Served, method: Method) -> set[Fact]:
    url = f"trains/{method.name}"
    naming = Naming(f"{BASE}trains/facts/", BASE + url)
    return set(method.decode(served.fragment(url), naming))
