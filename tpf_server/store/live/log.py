"""The durable log of a live store, which the index of every process follows.

A record has the effects of a batch, with numbered rows and slots. Batches carry along versions of
the oldest ones, which are dropped (Rosenblum and Ousterhout, 1992).
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
    """Settings of a live store.

    Args:
        key: of versions of the same fact; fixed when the store is made.
        history: how long ended intervals are kept; ``None``: for ever.
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
    """A version of a fact, with start and end in microseconds."""

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
    """A version carried along from the oldest batches, with its sequence numbers."""

    version: Version
    added: int
    removed: int


class Floor(NamedTuple):
    """The retention limits: older snapshots are refused."""

    sequence: int = 0
    """The oldest sequence number that a snapshot may have."""
    expired: int = NO_START
    """The latest end of an expiring version that has been retired."""
    history: int = NO_START
    """The latest end of an interval that has been retired."""


@dataclass(frozen=True, slots=True)
class Record:
    """One batch in the log.

    Args:
        removed: rows that were replaced, or ended (then `added` has a version with the new end).
        retired: rows that no snapshot shows; their numbers are free again.
        gone: facts of removed rows without a continuation, where events are kept.
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
        return len(self.added) + len(self.carried)


def encode(record: Record) -> bytes:
    """Return a record as compressed JSON that lists each term once."""
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
    """Return the record that `encode` wrote; refuse damaged bytes."""
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
    """The tables of a log: settings by name, batches, receipts."""

    settings: dict[str, str]
    batches: list[tuple[int, int, int, bytes]]
    receipts: list[tuple[str, int, int, int, int]]


def continued(
    contents: Contents, newest: int, published: int
) -> tuple[dict[str, str], Record | None]:
    """Return the settings of a log with other contents, and the empty record behind these."""
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
    """Count the numbers left out behind a number."""
    pairs = [gap.split("-") for gap in settings.get(GAPS, "").split(",") if gap]
    return sum(int(after) - int(before) - 1 for before, after in pairs if int(before) >= first)


class Log(Protocol):
    """The batches of one dataset, for all processes. Thread-safe."""

    def setting(self, name: str, value: str) -> str:
        """Return the value of a setting; set it to `value` if it is new."""

    def changed(self) -> bool:
        """True where there may be unread records; cheap."""

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        """Return the records with numbers above `after`, in order, decoded one by one."""

    def oldest(self) -> int:
        """Return the number of the oldest batch, or 0. Cheap."""

    def writing(self) -> AbstractContextManager[None]:
        """Open a transaction that excludes other writers; durable at its end."""

    def receipt(self, batch_id: str) -> BatchReceipt | None:
        """Return the receipt of a batch identifier."""

    def append(self, record: Record, receipt: BatchReceipt, batch_id: str | None) -> None:
        """Add a record, and its receipt under the identifier."""

    def check_writing(self) -> None:
        """Write something durably that is never read, or raise `StoreError`."""

    def entries(self) -> int:
        """Count the versions in the log, live or not."""

    def drop(self, until: int, forgotten: int) -> None:
        """Drop records up to a number, and identifiers of batches published before an instant."""

    def contents(self) -> Contents:
        """Return the whole log."""

    def save(self, file: Path) -> None:
        """Write the log to a new SQLite file, while publishing goes on."""

    def replace(self, contents: Contents, published: int) -> int:
        """Replace the contents; return the number of the newest batch, or 0."""

    def close(self) -> None:
        """Release files and connections."""
