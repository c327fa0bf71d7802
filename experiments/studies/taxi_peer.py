"""What ``taxi`` is compared with: Pathway counts the trips of each route in the same window."""

import csv
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from experiments.errors import MeasurementError
from experiments.harness import peers
from experiments.workloads.taxi_recomputation import Route

PATHWAY: Final = "Pathway"
COMMITS: Final = {PATHWAY: 1, f"{PATHWAY}, 1,000 trips a commit": 1000}
"""How many trips have their answer at once, by way."""
_PROGRAM: Final = Path(__file__).with_name("native") / "pathway_routes.py"
_LONGEST_SECONDS: Final = 3600


class PeerCounts(NamedTuple):
    """What a peer counted, and what that took from parsed trips to the last change.

    Args:
        version: of the peer.
        seconds: of time.
        cpu_seconds: of all its threads.
        counts: trips by route in the last window.
    """

    version: str
    seconds: float
    cpu_seconds: float
    counts: Counter[Route]


def counted_by_pathway(path: Path, minutes: int, commit: int, folder: Path) -> PeerCounts:
    """Have Pathway count the trips of routes, with one worker and without its monitoring.

    Args:
        path: a file of trips, as the challenge has them.
        minutes: the length of the window.
        commit: trips that have their answer at once.
        folder: where the changes of counts are written.

    Raises:
        UnavailableError: there is no Pathway.
        MeasurementError: it failed.
    """
    changes = folder / "changes.csv"
    settings = {name: text for name, text in os.environ.items() if not name.startswith("PATHWAY_")}
    done = subprocess.run(  # noqa: S603
        [
            peers.python_with("pathway"), str(_PROGRAM),
            str(path), str(minutes), str(commit), str(changes),
        ],
        env=settings | {"PATHWAY_THREADS": "1"}, capture_output=True, text=True,
        timeout=_LONGEST_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise MeasurementError(f"Pathway failed: {done.stderr.strip()[-400:]}")
    said = json.loads(done.stdout)
    last: Counter[Route] = Counter()
    for _, counts in changed_counts(changes):
        last = counts
    return PeerCounts(said["version"], said["seconds"], said["cpu_seconds"], last)


def changed_counts(path: Path) -> Iterator[tuple[int, Counter[Route]]]:
    """The counts of routes after each commit that changed some, with its number from 0.

    The counts are the same object each time.
    """
    counts: Counter[Route] = Counter()
    with path.open(encoding="ascii", newline="") as file:
        for instant, changes in groupby(csv.DictReader(file), lambda row: int(row["time"])):
            for row in changes:
                route = (
                    int(row["east"]),
                    int(row["south"]),
                    int(row["to_east"]),
                    int(row["to_south"]),
                )
                counts[route] += int(row["diff"]) * int(row["trips"])
                if not counts[route]:
                    del counts[route]
            yield instant // 2 - 1, counts
