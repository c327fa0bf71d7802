"""What it takes to keep the answers of n clients up to date: a formula, and nothing else.

An *instance* is one worker process on one core. With n clients on k instances

    load of an instance    fixed + per_client · n / k           percent of a core
    it may be at most      100 · min(utilisation, deadline / period)
    so                     k = ⌈per_client · n / (allowed − fixed)⌉
    memory                 k · memory_fixed + memory_per_client · n
    traffic                bytes_per_client · n
    machines               the most of k / cores, memory / memory of a machine, traffic / network
    cost per month         machines · price + traffic · price

`fixed` is what an instance does without any client: it takes what is published. The load comes at
once, when facts are renewed: so what a renewal causes has to be done within the deadline, and an
instance that is busier than deadline / period cannot do that.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

SECONDS_PER_MONTH = 365.25 / 12 * 86_400


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed + per_client · n``; neither is negative."""

    fixed: float
    per_client: float

    def at(self, clients: float) -> float:
        """Its value for so many clients."""
        return self.fixed + self.per_client * clients


def fitted(points: Mapping[float, float]) -> Line:
    """The line with the least sum of squared relative errors.

    Args:
        points: values, none of them negative, by numbers of clients.

    Raises:
        ValueError: there are fewer than two numbers of clients.
    """
    if len(points) < 2:
        raise ValueError("a line needs two numbers of clients")
    weighted = [(n, y, 1 / max(y, 1e-9) ** 2) for n, y in points.items()]
    total = sum(w for _, _, w in weighted)
    mean_n = sum(w * n for n, _, w in weighted) / total
    mean_y = sum(w * y for _, y, w in weighted) / total
    spread = sum(w * (n - mean_n) ** 2 for n, _, w in weighted)
    slope = sum(w * (n - mean_n) * (y - mean_y) for n, y, w in weighted) / spread
    if slope < 0:
        return Line(mean_y, 0.0)
    if mean_y - slope * mean_n < 0:
        # Through the origin.
        slope = sum(w * n * y for n, y, w in weighted) / sum(w * n * n for n, _, w in weighted)
        return Line(0.0, slope)
    return Line(mean_y - slope * mean_n, slope)


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured of a mode.

    Args:
        server: CPU of the server, percent of a core.
        cache: CPU of the cache in front, percent of a core; ``None`` without one.
        clients: CPU of all clients, percent of a core.
        traffic: bytes per second to all clients.
        memory: MiB of the server's process.
        period: seconds in which the facts were renewed.
    """

    server: Line
    cache: Line | None
    clients: Line
    traffic: Line
    memory: Line
    period: float


@dataclass(frozen=True, slots=True)
class Prices:
    """What is rented, and for how much.

    Args:
        utilisation: to which share a core is used, in the mean, at most.
        deadline: seconds within which everybody has the answer after a renewal.
        machine_cores: of a machine.
        machine_memory: GiB of a machine.
        machine_network: Gbit/s of a machine.
        machine_price: of a machine for a month.
        traffic_price: of a gigabyte (10^9 bytes) that leaves.
    """

    utilisation: float
    deadline: float
    machine_cores: int
    machine_memory: float
    machine_network: float
    machine_price: float
    traffic_price: float

    def allowed(self, period: float) -> float:
        """Percent of a core that an instance may use in the mean."""
        return 100 * min(self.utilisation, self.deadline / period)


@dataclass(frozen=True, slots=True)
class Size:
    """What it takes.

    Args:
        instances: of the server.
        caches: instances of the cache.
        memory: GiB.
        machines: for both.
        client_cores: cores that are busy at the clients, all together.
        gigabytes: that leave in a month.
        cost: per month, in the currency of the prices.
        limit: what the number of machines follows from: cores, memory or network.
    """

    instances: int
    caches: int
    memory: float
    machines: int
    client_cores: float
    gigabytes: float
    cost: float
    limit: str


def instances(line: Line, clients: float, allowed: float) -> int:
    """How many instances of this load so many clients need.

    Raises:
        ValueError: an instance has no room left for a single client.
    """
    room = allowed - line.fixed
    if room <= 0:
        raise ValueError("what is published takes all that an instance may use")
    return max(1, math.ceil(line.per_client * clients / room))


def size(costs: Costs, prices: Prices, clients: float) -> Size:
    """What so many clients take.

    A cache asks the server for what it does not have, whoever its clients are: each cache is taken
    to cause what the one that was measured did.

    Raises:
        ValueError: an instance has no room left for a single client.
    """
    allowed = prices.allowed(costs.period)
    if costs.cache is None:
        caches, needed = 0, instances(costs.server, clients, allowed)
    else:
        caches = instances(costs.cache, clients, allowed)
        load = costs.server.fixed * caches + costs.server.per_client * clients
        needed = max(1, math.ceil(load / allowed))
    memory = (needed * costs.memory.fixed + costs.memory.per_client * clients) / 1024
    traffic = costs.traffic.at(clients)
    by_limit = {
        "cores": math.ceil((needed + caches) / prices.machine_cores),
        "memory": math.ceil(memory / prices.machine_memory),
        "network": math.ceil(8 * traffic / (1e9 * prices.machine_network)),
    }
    limit = max(by_limit, key=lambda name: by_limit[name])
    machines = max(1, by_limit[limit])
    gigabytes = traffic * SECONDS_PER_MONTH / 1e9
    cost = machines * prices.machine_price + gigabytes * prices.traffic_price
    cores = costs.clients.at(clients) / 100
    return Size(needed, caches, memory, machines, cores, gigabytes, cost, limit)


@dataclass(frozen=True, slots=True)
class LineComparison:
    """Where one line is below another.

    Args:
        below: whether it is below for large n.
        crossing: the n > 0 at which that changes; ``None``: nowhere.
    """

    below: bool
    crossing: float | None


def compared_lines(one: Line, other: Line) -> LineComparison:
    """Where `one` is below `other`."""
    slope = other.per_client - one.per_client
    start = other.fixed - one.fixed
    below = slope > 0 or (slope == 0 and start > 0)
    crossing = -start / slope if slope else None
    return LineComparison(below, crossing if crossing is not None and crossing > 0 else None)
