"""Which state of a live store tells what held at an instant, and which can still be read."""

from bisect import bisect_right
from collections.abc import Iterable

from annotations.instants import format_instant, from_micros
from annotations.methods.base import FactPattern
from tpf_server.errors import PastUnknown, SnapshotExpired
from tpf_server.store.live.index import FactIndex, RetainedBatch
from tpf_server.store.protocols import Snapshot


def batch_of(index: FactIndex, sequence: int) -> RetainedBatch | None:
    """A retained batch; ``None`` for the state before the first."""
    batches = index.batches
    place = bisect_right(batches, sequence, key=lambda one: one.sequence) - 1
    return batches[place] if place >= 0 else None


def check_retained(index: FactIndex, snapshot: Snapshot, pattern: FactPattern | None) -> None:
    """See to it that a snapshot can be read.

    Raises:
        SnapshotExpired: it cannot, or it never was.
    """
    instant, sequence = snapshot
    if sequence > index.last or sequence < 0:
        raise SnapshotExpired(f"there is no state {sequence} of the live store")
    floor = index.floor
    if sequence < floor.sequence:
        raise SnapshotExpired(f"state {sequence} of the live store is no longer retained")
    if instant < floor.history:
        raise SnapshotExpired(f"facts of {from_micros(instant)} are no longer retained")
    if instant < floor.expired and (pattern is None or pattern.labelling != "interval"):
        # An instant before its own batch asks for history, which expiring facts have not.
        batch = batch_of(index, sequence)
        if batch is not None and instant >= batch.published:
            raise SnapshotExpired(f"facts of {from_micros(instant)} are no longer retained")


def past_state(
    index: FactIndex, patterns: Iterable[FactPattern], at: int, known: int | None
) -> Snapshot:
    """See `LiveStore.past`; instants are in microseconds."""
    if known is not None:
        return _known_state(index, patterns, at, known)
    changes = [
        index.expiring_since(pattern.predicate)
        for pattern in patterns
        if pattern.labelling != "interval"
    ]
    changed = [change for change in changes if change is not None]
    if not changed or at >= max(*changed, index.floor.expired):
        return Snapshot(at, index.last)
    state = next((one for one in reversed(index.batches) if one.published <= at), None)
    earliest = max(index.batches[0].published, index.floor.expired)
    if state is not None and at >= earliest:
        return Snapshot(at, state.sequence)
    first = from_micros(earliest)
    raise PastUnknown(
        f"what held at {format_instant(from_micros(at))} is not known: an expiration does not tell "
        f"since when a fact holds; ask for {format_instant(first)} or later",
        first,
    )


def _known_state(
    index: FactIndex, patterns: Iterable[FactPattern], at: int, known: int
) -> Snapshot:
    """What a former state told of an instant."""
    state = next((one for one in reversed(index.batches) if one.published <= known), None)
    if state is None and index.floor.sequence:
        earliest = index.batches[0].published
        raise PastUnknown(
            f"what was known at {format_instant(from_micros(known))} is not kept; "
            f"ask for {format_instant(from_micros(earliest))} or later"
        )
    snapshot = Snapshot(at, 0 if state is None else state.sequence)
    for pattern in patterns:
        changed = index.expiring_since(pattern.predicate)
        if pattern.labelling == "interval" or changed is None:
            continue
        if at < index.floor.expired or at < min(known, changed):
            raise PastUnknown(
                f"what held at {format_instant(from_micros(at))} is not known: an expiration "
                "does not tell since when a fact holds, and is not kept for long when it ended"
            )
    return snapshot
