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

    Most pages are written column by column, and need no object for a quad.
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
    found = [list(terms) for terms in zip(*quads, strict=True)]
    return QuadColumns(*found) if found else QuadColumns([], [], [], [])


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
        """The exact number of quads that match; repeated variables are honoured.

        A pattern whose graph is a variable matches every graph, the default graph included.
        """

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> Sequence[Quad]:
        """Up to `limit` matches from position `offset` in an order that never changes."""

    def columns(self, pattern: QuadPattern, offset: int, limit: int) -> QuadColumns:
        """The same by column; the lists are the caller's."""

    def position(self, pattern: QuadPattern, quad: Quad) -> int:
        """Where a quad that matches stands among the matches, in the order of `quads`."""

    def held(self, quads: Sequence[Quad]) -> Sequence[Quad]:
        """Those of these quads that are in the store: for many at once."""

    def graphs(self) -> Sequence[Term]:
        """The names of the named graphs."""

    def close(self) -> None:
        """Let go of the files."""


class Snapshot(NamedTuple):
    """What a reader sees: the facts of all batches up to `sequence`, as valid at `instant`.

    Both are integers, so that a page link can carry them.
    """

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
    """A version of a fact that stands: nothing has replaced or ended it."""

    row: int
    """Its number; a version that comes later may have the number of one that is gone."""
    quad: Quad
    start: int
    """From when it holds, in microseconds since 1970; below every instant where nothing says so."""
    end: int
    """Until when."""


class Follower(Protocol):
    """Whoever is told of versions. It must not call the store that tells."""

    def begin(self, versions: Sequence[Standing]) -> None:
        """These stand, and no others."""

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        """Versions stand no more, by their rows, and others do."""


class BatchRun(NamedTuple):
    """A run of batches: of the numbers from ``number * size + 1`` on, those that are there.

    Args:
        number: of the run.
        first: the number of its first batch.
        last: that of its last one.
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
        sequence: the number of the batch.
        place: of the event in its batch, from 0: first what goes, then what comes.
        published: when, in microseconds.
        fact: a fact that came, or has another label; or one that is gone, with the label it had.
        gone: whether it is not said any more.
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
        SnapshotExpired: whoever is given a snapshot: it is older than what the store retains.
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
        """The state that tells what held at an instant, as far as these facts go.

        It is the newest one, or that of an instant at which others were `known`.

        Raises:
            PastUnknown: nobody knows, because they expire.
        """

    def current(self, now: datetime) -> Snapshot:
        """The newest acknowledged state, now: one that can be read in any case."""

    def modified(self, snapshot: Snapshot) -> datetime | None:
        """When the newest batch of the snapshot was published; ``None`` where there is none."""

    def published_after(self, snapshot: Snapshot) -> datetime | None:
        """When the batch after those of the snapshot was published; ``None``: it has the newest."""

    def updates(self, now: datetime) -> Sequence[int]:
        """How many facts came, changed or went in each minute of the last hour, as is known."""

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """The exact number of matching facts that are valid in the snapshot."""

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """Up to `limit` matching facts, valid in the snapshot, in an order that it keeps."""

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """The earliest instant after the snapshot's at which a label of a match ends or starts."""

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """The earliest end of the labels of the matching facts that are valid in the snapshot."""

    def publish(
        self,
        facts: Sequence[Fact],
        now: datetime,
        batch_id: str | None = None,
        withdrawn: Sequence[Fact] = (),
    ) -> BatchReceipt:
        """Withdraw facts and add labelled ones, all or none; returns when that is durable.

        A fact replaces the expiring fact of the same key; it ends the interval of the same key
        that is still open at its start. A withdrawn quad is no longer said to hold, within its
        interval or, without one, from now on. A batch with an identifier that was published before
        is acknowledged again and does nothing.

        Raises:
            PublishError: a fact without a label, a label that has ended, overlapping labels.
        """

    def check_writing(self) -> None:
        """See to it that a batch could be published.

        Raises:
            StoreError: it could not.
        """

    def retire(self, now: datetime) -> bool:
        """Let go of what nobody may see any more, where no batch came for so long to do it.

        Called with every request: cheap where there is nothing to do, bounded work otherwise.
        """

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Tell somebody of the versions that stand, and of every change of that.

        Returns:
            what to call when it is to be told no more.
        """

    def listen(self, told: "Told") -> Callable[[], None]:
        """Tell of every batch, whichever process published it.

        A batch of another process is noticed when this store is asked next. `told` is called from
        any thread, and must not call the store.

        Returns:
            what to call when it is to be told no more.
        """

    def spans(self, size: int, after: int = 0, until: int | None = None) -> Sequence[BatchRun]:
        """The batches that are kept as events, from the one after `after` on, up to `until`.

        In runs of `size` numbers, the same wherever one begins.
        """

    def events(self, after: int, until: int, offset: int, limit: int) -> Sequence[FactEvent]:
        """A page of what the batches with numbers above `after` up to `until` did.

        Of the batches that are kept; it costs in proportion to the page, and to two batches.
        """

    def watch(
        self, predicates: Callable[[Term], bool], seen: Callable[[Sequence[Quad]], None]
    ) -> Callable[[], None]:
        """Call `seen` with the quads of the facts that are there, and of those that come.

        It may be called with a quad more than once, and from any thread; it must not call the
        store.

        Args:
            predicates: only facts with these predicates are of interest.
            seen: what to call, with many quads at once.

        Returns:
            what to call when `seen` is not to be called any more.
        """

    def close(self) -> None:
        """Let go of the files and connections."""
