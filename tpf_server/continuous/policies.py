"""How a service of continuous queries treats time, elements and readers.

See ``docs/continuous-queries.md`` for each with what it means in the languages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tpf_server.continuous.rspql.rspql_query import WINDOW_CLOSE, ReportPolicy, TickPolicy

StreamTimePolicy: TypeAlias = Literal["clock", "elements"]


@dataclass(frozen=True, slots=True)
class Policies:
    """How the service treats time, elements and readers.

    Args:
        time: what moves the time of streams: ``elements`` only, or the ``clock`` too, so that
            windows close and queries are evaluated although nothing comes.
        delay: milliseconds by which stream time stays behind the clock: how long elements may be
            under way.
        lateness: milliseconds that elements wait, to be put in the order of their timestamps.
        ahead: milliseconds that an element may be ahead of the clock, where that counts: one that
            is years ahead would make every later one late.
        whole_batches: refuse a batch with a malformed element whole, instead of that element alone.
        backlog: emissions that are kept of each query.
        rows: rows that these may have together.
        memory: bytes that the emissions of all queries may take, about.
        followers: how many readers may follow results at the same time.
        followers_per_address: how many of them one address may have; 0: all.
        report: when queries in RSP-QL answer that do not say it.
        tick: where it is looked for these instants, likewise.
        services: URLs at whose servers SERVICE may ask.
        streams: URLs whose servers have streams that queries may read and make, with their tokens.
    """

    time: StreamTimePolicy = "clock"
    delay: int = 500
    lateness: int = 0
    ahead: int = 60_000
    whole_batches: bool = True
    backlog: int = 10_000
    rows: int = 100_000
    memory: int = 2**28
    followers: int = 256
    followers_per_address: int = 0
    report: ReportPolicy = WINDOW_CLOSE
    tick: TickPolicy = "time"
    services: tuple[str, ...] = ()
    streams: Mapping[str, str] = field(default_factory=dict)
