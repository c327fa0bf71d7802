"""The durable log of a live store: what a batch did, and where batches are kept.

The log is the truth; every process holds an index that follows it by sequence number. A record
states effects, not requests: which versions came into being, in which numbered row and slot, and
which came to an end. So all processes hold the same rows under the same numbers, and following
the log needs no decision.

The log is a ring. A batch carries along the versions that are still wanted of the oldest batches,
which are then dropped; so the log stays in proportion to what is live, without pauses (log-
structured storage with a cleaner: Rosenblum and Ousterhout, 1992).
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from annotations.labels import FactKey
from tpf_server.errors import StoreError
from tpf_server.store.protocols import BatchReceipt

# How a live store keeps its facts.


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


NO_START = -(2**63)
"""The start of an expiring version, which has none: before every instant."""
FOREVER = 2**63 - 1
"""The end of what has not ended: after every instant and every sequence number."""
LOG_FORMAT = "2"
"""Changes with what a record says or how it is written."""


class Version(NamedTuple):
    """One version of a fact: what it says, and from when until when (microseconds)."""

    row: int
    slot: int
    subject: str
    predicate: str
    object: str
    graph: str
    start: int
    end: int
    token: int
    """The first 64 bits of the token of the names that are minted for the fact, signed."""


class Carried(NamedTuple):
    """A version taken along from the oldest batches, with the sequence numbers of its life."""

    version: Version
    added: int
    removed: int


class Floor(NamedTuple):
    """What retention has let go of: snapshots below these are refused."""

    sequence: int = 0
    """The oldest sequence number that a snapshot may have."""
    expired: int = NO_START
    """The latest end of an expiring version that has been retired."""
    history: int = NO_START
    """The latest end of an interval that has been retired."""


@dataclass(frozen=True, slots=True)
class Record:
    """One batch, as the log keeps it.

    Args:
        sequence: its number; numbers rise by one.
        published: when, in microseconds.
        added: new versions, in the order in which they were planned.
        removed: rows that were replaced, or ended (then a version with the new end is in `added`).
        retired: rows that nobody may see any more; their numbers are free again.
        carried: versions of batches that were dropped from the ring.
        floor: what retention has let go of, this batch included.
        gone: what the removed rows said that no added version goes on to say, where batches are
            kept as events.
    """

    sequence: int
    published: int
    added: Sequence[Version] = ()
    removed: Sequence[int] = ()
    retired: Sequence[int] = ()
    carried: Sequence[Carried] = ()
    floor: Floor = field(default=Floor())
    gone: Sequence[Version] = ()

    @property
    def entries(self) -> int:
        """How many versions this record holds."""
        return len(self.added) + len(self.carried)


def encode(record: Record) -> bytes:
    """A record as bytes: JSON with the terms listed once, compressed."""
    terms: dict[str, int] = {}

    def row(version: Version) -> list[int]:
        start = version.start if version.start != NO_START else None
        numbers = [terms.setdefault(term, len(terms)) for term in version[2:6]]
        return [version.row, version.slot, *numbers, start, version.end, version.token]  # type: ignore[list-item]

    body: dict[str, object] = {
        "added": [row(version) for version in record.added],
        "carried": [[row(one.version), one.added, one.removed] for one in record.carried],
        "removed": record.removed,
        "retired": record.retired,
        "floor": record.floor,
    }
    if record.gone:
        body["gone"] = [row(version) for version in record.gone]
    body["terms"] = list(terms)
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)


def decode(sequence: int, published: int, payload: bytes) -> Record:
    """The record that `encode` wrote.

    Raises:
        StoreError: the bytes are damaged.
    """
    try:
        body = json.loads(zlib.decompress(payload))
        terms = body["terms"]

        def version(numbers: list[int | None]) -> Version:
            row, slot, s, p, o, g, start, end, token = numbers
            start = NO_START if start is None else start
            return Version(row, slot, terms[s], terms[p], terms[o], terms[g], start, end, token)  # type: ignore[arg-type]

        return Record(
            sequence,
            published,
            [version(numbers) for numbers in body["added"]],
            body["removed"],
            body["retired"],
            [Carried(version(row), added, removed) for row, added, removed in body["carried"]],
            Floor(*body["floor"]),
            [version(numbers) for numbers in body.get("gone", ())],
        )
    except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreError(f"batch {sequence} of the live store is damaged: {error}") from error


GAPS: Final = "gaps"
"""The setting that says where numbers were left out: ``4-7,9-12``, where 7 follows 4, and 12 9."""


class Contents(NamedTuple):
    """All that a log says, as its tables hold it: settings by name, batches, receipts."""

    settings: dict[str, str]
    batches: list[tuple[int, int, int, bytes]]
    receipts: list[tuple[str, int, int, int, int]]


def continued(
    contents: Contents, newest: int, published: int
) -> tuple[dict[str, str], Record | None]:
    """The settings of a log that gets others' contents, and the empty record that it goes on with.

    Its number leaves one out, so that whoever follows the log reads it anew.

    Args:
        contents: what the log is to hold.
        newest: the highest number that was given before.
        published: now, in microseconds.

    Returns:
        no record where no number was ever given.

    Raises:
        StoreError: the newest record of the contents is damaged.
    """
    before, floor = 0, Floor()
    if contents.batches:
        before, at, _, payload = contents.batches[-1]
        floor = decode(before, at, payload).floor
    newest = max(newest, before)
    if not newest:
        return contents.settings, None
    gaps = [contents.settings[GAPS]] if GAPS in contents.settings else []
    gaps.append(f"{before}-{newest + 2}")
    return contents.settings | {GAPS: ",".join(gaps)}, Record(newest + 2, published, floor=floor)


def left_out(settings: Mapping[str, str], first: int) -> int:
    """How many numbers were left out behind a number."""
    pairs = [gap.split("-") for gap in settings.get(GAPS, "").split(",") if gap]
    return sum(int(after) - int(before) - 1 for before, after in pairs if int(before) >= first)


class Log(Protocol):
    """Where the batches of one dataset are kept, for all processes. Thread-safe.

    Raises:
        StoreError: by every method: it cannot be read or written.
    """

    def setting(self, name: str, value: str) -> str:
        """The value that was set when the log was made; sets it to `value` if it is new."""

    def changed(self) -> bool:
        """Whether there may be records that this object has not read; cheap."""

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        """The records with a greater number than `after` that are there now, in order.

        They are decoded one by one, so that a whole log is read in little memory.
        """

    def oldest(self) -> int:
        """The number of the oldest batch that is there; 0: there is none. Cheap."""

    def writing(self) -> AbstractContextManager[None]:
        """A transaction that excludes all other writers; durable when it is left.

        `receipt`, `append`, `read`, `entries` and `drop` belong to it while it is open.
        """

    def receipt(self, batch_id: str) -> BatchReceipt | None:
        """What was said of the batch with this identifier."""

    def append(self, record: Record, receipt: BatchReceipt, batch_id: str | None) -> None:
        """Add a record and keep the receipt under the identifier."""

    def check_writing(self) -> None:
        """Write something durably that nobody reads.

        Raises:
            StoreError: it cannot be written.
        """

    def entries(self) -> int:
        """How many versions the log holds, live or not."""

    def drop(self, until: int, forgotten: int) -> None:
        """Drop records up to a number, and identifiers of batches published before an instant."""

    def contents(self) -> Contents:
        """All that the log says."""

    def save(self, file: Path) -> None:
        """Write the whole log to a new file of SQLite, while others go on to publish."""

    def replace(self, contents: Contents, published: int) -> int:
        """Put other contents in the place of this log's, whose numbers are not used again.

        Returns:
            the number of the newest batch; 0 where there is none.
        """

    def close(self) -> None:
        """Let go of files and connections."""
