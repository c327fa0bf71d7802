"""What a continuous query tells of one evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from annotations.terms import Variable
from tpf_client.errors import SourceError
from tpf_client.sparql.algebra import Row
from tpf_client.streaming.validity import Span


@dataclass(frozen=True, slots=True)
class Tick:
    """One evaluation, in terms.

    Args:
        at: its instant, on the server's clock.
        variables: what the rows are made of.
        added: rows that were not there before, repeated by multiplicity.
        spans: when each of those holds.
        removed: rows that are gone.
        answer: gives the whole answer, in order where the query has one, as it is at the newest
            tick: decoding it takes time that changes do not.
        timed_answer: gives the same, with when each row holds.
        valid_until: the instant at which the first fact that was looked at expires.
        error: why this evaluation failed; then nothing changed, and it will be tried again.
        warnings: what is wrong in the data; each is said once.
        dynamic: whether anything that was looked at can change.
        wakes_at: when the next evaluation is to take place, on the server's clock; ``None``: never.
        late: rows of the answer that are there by grace alone.
    """

    at: datetime
    variables: tuple[Variable, ...]
    added: list[Row]
    spans: list[Span]
    removed: list[Row]
    answer: Callable[[], list[Row]]
    timed_answer: Callable[[], list[tuple[Row, Span]]]
    valid_until: datetime | None
    error: SourceError | None = None
    warnings: tuple[str, ...] = ()
    dynamic: bool = True
    wakes_at: datetime | None = None
    late: Sequence[Row] = ()
