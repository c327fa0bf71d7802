"""The claims of the papers (``claims.csv``), mostly ratios: their machines differ from ours.

000 is CQELS, 001 the DEBS 2015 challenge, 002 the thesis on CQELS, 003 C-SPARQL, 004 query
streamers.
"""

import csv
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import resources

from experiments.harness.items import Check, Claim


def _claims() -> Iterator[Claim]:
    with (
        resources.files("experiments.harness").joinpath("claims.csv").open(encoding="utf-8") as file
    ):
        for row in csv.DictReader(file):
            least, most = (float(row[name]) if row[name] else None for name in _BOUNDS)
            texts = {name: text for name, text in row.items() if name not in _BOUNDS}
            yield Claim(**texts, at_least=least, at_most=most)


_BOUNDS = ("at_least", "at_most")
CLAIMS = tuple(_claims())
"""All of them, in the order of the experiments."""


def checks(experiment: str, measured: Mapping[str, Callable[[], float | None]]) -> Iterator[Check]:
    """Pair the claims of an experiment with measured values; ``None``: not measured."""
    for claim in CLAIMS:
        if claim.experiment == experiment:
            yield Check(claim, measured[claim.name]())


def unmeasured(experiments: Collection[str]) -> list[Check]:
    """Return these experiments' claims as not measured."""
    return [Check(claim, None) for claim in CLAIMS if claim.experiment in experiments]
