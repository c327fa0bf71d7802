"""The claims of paper 004 about servers and clients, and what was found."""

from collections.abc import Iterator, Mapping
from functools import partial
from statistics import fmean

from experiments.harness.claims import checks
from experiments.harness.items import Check
from experiments.harness.results import Results
from experiments.studies.board_answer import sums_by_size
from experiments.studies.board_modes import CQELS_MODE, CSPARQL_MODE, STREAMER

_ENGINES = (CQELS_MODE.name, CSPARQL_MODE.name)


def claims(totals: Results, size: str | None) -> Iterator[Check]:
    """What was found.

    Args:
        totals: a row for each mode and number of queries.
        size: the number of queries that is told of; ``None``: there is none.
    """
    ours = partial(totals.mean, mode=STREAMER.name, queries=size or "")
    return checks(
        "server-vs-client",
        {
            "server": partial(ours, "server_percent"),
            "engines": partial(_times, totals),
            "growth": partial(_growth, totals),
            "start": lambda: _ratio(ours("client_percent"), ours("client_first_percent")),
            "idle": partial(_idle, totals, size or ""),
        },
    )


def _cpu(totals: Results, mode: str) -> Mapping[float, float]:
    return sums_by_size(totals, mode, ("server_percent",))


def _times(totals: Results) -> float | None:
    """How many times as much CPU an engine takes, in the mean over engines and sizes."""
    ours = _cpu(totals, STREAMER.name)
    ratios = [
        other / ours[size]
        for mode in _ENGINES
        for size, other in _cpu(totals, mode).items()
        if ours.get(size)
    ]
    return fmean(ratios) if ratios else None


def _growth(totals: Results) -> float | None:
    ours, *others = (_slope(_cpu(totals, mode)) for mode in (STREAMER.name, *_ENGINES))
    known = [slope for slope in others if slope is not None]
    return _ratio(ours, min(known, default=None))


def _slope(by_size: Mapping[float, float]) -> float | None:
    """What a client adds, between the fewest and the most."""
    if len(by_size) < 2:
        return None
    few, many = min(by_size), max(by_size)
    return (by_size[many] - by_size[few]) / (many - few)


def _idle(totals: Results, size: str) -> float | None:
    ours = totals.mean("clients_percent", mode=STREAMER.name, queries=size)
    theirs = [totals.mean("clients_percent", mode=mode, queries=size) for mode in _ENGINES]
    return _ratio(max((cpu for cpu in theirs if cpu is not None), default=None), ours)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other
