"""A simulation of n clients whose answers are renewed all at once: what waits, and how long.

Every client is served by one instance, first come, first served. In each period it comes at the
renewal plus a random delay, and takes a random time of exponential distribution with the mean that
was measured. The instance itself takes the renewal first. Nothing of the formula is used.
"""

from dataclasses import dataclass

import numpy as np

from experiments.studies.cost_formula import Line


@dataclass(frozen=True, slots=True)
class Waits:
    """What the simulation saw.

    Args:
        busy: percent of a core that instances were busy, in the mean.
        busiest: the same of the busiest one.
        median: seconds from the arrival of a client to the end of its service.
        late: the 99th percentile of that.
    """

    busy: float
    busiest: float
    median: float
    late: float


def simulated(
    load: Line, clients: int, instances: int, period: float, spread: float, periods: int, seed: int
) -> Waits:
    """Simulate some periods.

    Args:
        load: percent of a core; `fixed` for an instance, the rest for each client.
        clients: how many.
        instances: over which clients are spread at random.
        period: seconds between two renewals.
        spread: seconds over which clients come after a renewal.
        periods: how many are simulated, after one that is not counted.
        seed: where chance comes from.
    """
    chance = np.random.default_rng(seed)
    place = chance.integers(0, instances, clients)
    each = load.per_client / 100 * period
    own = load.fixed / 100 * period
    waits = []
    busy = np.zeros(instances)
    free = np.zeros(instances)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(instances + 1))
    for number in range(periods + 1):
        begin = number * period
        arrivals = begin + chance.uniform(0, spread, clients)
        services = chance.exponential(each, clients)
        for instance in range(instances):
            mine = order[bounds[instance] : bounds[instance + 1]]
            mine = mine[np.argsort(arrivals[mine])]
            came = np.concatenate(([begin], arrivals[mine]))
            came[0] = max(begin, free[instance])  # the renewal waits for what is left
            took = np.concatenate(([own], services[mine]))
            done = np.cumsum(took)
            # Each begins when it has come and the one before it is done.
            ends = done + np.maximum.accumulate(came - (done - took))
            free[instance] = ends[-1]
            if number:
                busy[instance] += took.sum()
                waits.append(ends[1:] - came[1:])
    every = np.concatenate(waits)
    shares = 100 * busy / (periods * period)
    return Waits(
        float(shares.mean()),
        float(shares.max()),
        float(np.median(every)),
        float(np.percentile(every, 99)),
    )
