"""How a live store keeps its facts."""

from dataclasses import dataclass
from datetime import timedelta

from annotations.labels import FactKey


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How a live store keeps its facts.

    Args:
        key: what makes two facts versions of the same fact; fixed when the store is made.
        retention: how long a snapshot stays readable after it was taken.
        history: how long intervals are kept after they ended; ``None`` keeps them for ever.
        accept_past: whether intervals that have ended may be published, to load history.
        remember_batches: how long the identifier of a batch is known.
        keep_events: how long whole batches are kept, as a stream of events; ``None``: not at all.
    """

    key: FactKey = "subject-predicate"
    retention: timedelta = timedelta(minutes=5)
    history: timedelta | None = None
    accept_past: bool = False
    remember_batches: timedelta = timedelta(days=7)
    keep_events: timedelta | None = None
