"""What the fragments need of a store: one narrow protocol for static data, one for live data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from typing import NamedTuple, Protocol, TypeAlias

from annotations.labels import Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, QuadPattern, Term

_new_tuple = tuple.__new__


class QuadColumns(NamedTuple):
    """Quads by column: their subjects, and so on, one for one.

    Most pages are written column by column, without an object for a quad.
    """

    subjects: list[Term]
    predicates: list[Term]
    objects: list[Term]
    graphs: list[Term]

    @property
    def quads(self) -> list[Quad]:
        """The quads."""
        # What `Quad._make` does, without a Python frame per quad.
        return list(map(_new_tuple, repeat(Quad), zip(*self, strict=True)))


def quad_columns(quads: Iterable[Quad]) -> QuadColumns:
    """The columns of quads."""
    results = [list(terms) for terms in zip(*quads, strict=True)]
    return QuadColumns(*results) if results else QuadColumns([], [], [], [])


class StaticStore(Protocol):
    """Quads that do not change while the store is open. Thread-safe.

    Raises:
        StoreClosedError: by every method: the store has been closed.
    """

    version: str
    """Changes whenever the content may have changed: part of every ETag."""
    modified: datetime
    """When the content was written."""
    prefixes: Mapping[str, str]
    """Prefix to namespace, for display and abbreviation."""
    has_blank_nodes: bool
    """Whether a term may be or hold a blank node; if not, nobody needs to look for them."""

    def count(self, pattern: QuadPattern) -> int:
        """Return the exact number of matches; repeated variables must be equal.

        A pattern whose graph is a variable matches every graph, the default graph included.
        """

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> Sequence[Quad]:
        """Return up to `limit` matches from position `offset` in an order that never changes."""

    def columns(self, pattern: QuadPattern, offset: int, limit: int) -> QuadColumns:
        """The same by column; the lists are the caller's."""

    def position(self, pattern: QuadPattern, quad: Quad) -> int:
        """Return the position of a match, in the order of `quads`."""

    def held(self, quads: Sequence[Quad]) -> Sequence[Quad]:
        """Return those of these quads that are in the store."""

    def graphs(self) -> Sequence[Term]:
        """The names of the named graphs."""

    def close(self) -> None:
        """Let go of the files."""


class Snapshot(NamedTuple):
    """A state for readers: the facts of all batches up to `sequence`, as valid at `instant`."""

    instant: int
    """Microseconds since 1970-01-01T00:00:00Z."""
    sequence: int
    """Number of the last batch that counts."""


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A durable batch: its number, and what it did."""

    sequence: int
    added: int
    replaced: int
    repeated: bool = False
    """Whether this batch identifier had been published before, so that nothing was done."""


class Standing(NamedTuple):
    """A version that nothing has replaced or ended."""

    row: int
    """Its number; a version that comes later may have the number of one that is gone."""
    quad: Quad
    start: int
    """From when it holds, in microseconds since 1970; below every instant where nothing says so."""
    end: int
    """Until when."""


class Follower(Protocol):
    """Receives changes of versions. It must not call the store."""

    def begin(self, versions: Sequence[Standing]) -> None:
        """These stand, and no others."""

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        """Receive versions that stand no more, by their rows, and new ones."""


class BatchRun(NamedTuple):
    """The batches with the numbers from ``number * size + 1`` on.

    Args:
        number: of the run.
        first: number of its first batch.
        last: number of its last batch.
        begin: when the first was published, in microseconds.
        end: when the last was.
    """

    number: int
    first: int
    last: int
    begin: int
    end: int


class FactEvent(NamedTuple):
    """What a batch did to one fact.

    Args:
        sequence: number of the batch.
        place: position in its batch, from 0: first what goes, then what comes.
        published: when, in microseconds.
        fact: a fact that is new or newly labelled, or gone, with the label it had.
        gone: it is gone.
    """

    sequence: int
    place: int
    published: int
    fact: Fact
    gone: bool


Told: TypeAlias = Callable[[int, frozenset[Term] | None], object]
"""Gets the number of a batch, and the predicates of the facts that came or went with it, if any;
``None``: of what came before, anything may have changed."""


class LiveStore(Protocol):
    """Labelled facts. Thread-safe; what one process publishes every process sees at once.

    Raises:
        SnapshotExpired: by methods with a snapshot: it is older than what the store retains.
        StoreError: by every method: the store cannot be read or written.
    """

    def snapshot(self, instant: datetime) -> Snapshot:
        """The newest acknowledged state, at this instant."""

    def past(
        self,
        patterns: Iterable[FactPattern],
        instant: datetime,
        known: datetime | None = None,
    ) -> Snapshot:
        """Return the state of an instant; the newest one, or as it was `known` at another instant.

        Raises:
            PastUnknown: facts expire, so it is unknown.
        """

    def current(self, now: datetime) -> Snapshot:
        """Return the newest acknowledged state that can be read, now."""

    def modified(self, snapshot: Snapshot) -> datetime | None:
        """Return when the newest batch of the snapshot was published; ``None``: there is none."""

    def published_after(self, snapshot: Snapshot) -> datetime | None:
        """Return when the batch after the snapshot was published; ``None``: there is none."""

    def updates(self, now: datetime) -> Sequence[int]:
        """Return the number of changed facts in each minute of the last hour."""

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """Return the exact number of matching facts that are valid in the snapshot."""

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """Return up to `limit` matching facts, valid in the snapshot, in a fixed order."""

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest later instant at which a label of a match ends or starts."""

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest end of the labels of the valid matching facts."""

    def publish(
        self,
        facts: Sequence[Fact],
        now: datetime,
        batch_id: str | None = None,
        withdrawn: Sequence[Fact] = (),
    ) -> BatchReceipt:
        """Withdraw facts and add labelled ones, all or none; durable on return.

        A fact replaces the expiring fact of the same key; it ends the interval of the same key that
        is open at its start. A withdrawn quad does not hold within its interval or, without one,
        from now on. A batch with a known identifier is acknowledged again and does nothing.

        Raises:
            PublishError: a fact without a label, a label that has ended, overlapping labels.
        """

    def check_writing(self) -> None:
        """Check that a batch could be published, or raise `StoreError`."""

    def retire(self, now: datetime) -> bool:
        """Retire versions that no snapshot shows any more, where no batch came for long to do it.

        Called with every request: cheap where there is nothing to do, bounded work otherwise.
        """

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Report the standing versions, then every change; return a function that ends it."""

    def listen(self, told: "Told") -> Callable[[], None]:
        """Report every batch, of any process; return a function that ends it.

        A batch of another process is noticed at the next call of this store. `told` is called from
        any thread, and must not call the store.
        """

    def spans(self, size: int, after: int = 0, until: int | None = None) -> Sequence[BatchRun]:
        """Return the batches kept as events, from `after` + 1 up to `until`, in runs of `size`."""

    def events(self, after: int, until: int, offset: int, limit: int) -> Sequence[FactEvent]:
        """Return a page of events of the batches with numbers above `after` up to `until`.

        It costs in proportion to the page, and to two batches.
        """

    def watch(
        self, predicates: Callable[[Term], bool], seen: Callable[[Sequence[Quad]], None]
    ) -> Callable[[], None]:
        """Call `seen` with the quads of present and of new facts; return a function that ends it.

        It may be called with a quad more than once, and from any thread; it must not call the
        store.
        """

    def close(self) -> None:
        """Let go of the files and connections."""
