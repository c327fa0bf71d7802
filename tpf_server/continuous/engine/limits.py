"""What an engine allows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What an engine allows.

    Args:
        queries: registered at the same time.
        window_rows: entries that the windows of one query may hold; in CQELS-QL looked at every 64
            arrivals.
        backlog: emissions or answers that wait for a reader.
        join_rows: rows that the joins of a query in CQELS-QL may make, and it may emit, at once;
            each triple gives back a hundredth of it.
    """

    queries: int = 10_000
    window_rows: int = 10_000_000
    backlog: int = 1_000_000
    join_rows: int = 1_000_000
