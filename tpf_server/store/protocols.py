"""Protocols of the stores: one narrow one for static data, one for live data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import repeat
from typing import Final, NamedTuple, Protocol, TypeAlias

from annotations.labels import Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, QuadPattern, Term

_new_tuple = tuple.__new__


class QuadColumns(NamedTuple):
    """Quads by column; pages are written column by column, without an object for a quad."""

    subjects: list[Term]
    predicates: list[Term]
    objects: list[Term]
    graphs: list[Term]

    @property
    def quads(self) -> list[Quad]:
        # What `Quad._make` does, without a Python frame per quad.
        return list(map(_new_tuple, repeat(Quad), zip(*self, strict=True)))


def quad_columns(quads: Iterable[Quad]) -> QuadColumns:
    """Return the columns of quads."""
    results = [list(terms) for terms in zip(*quads, strict=True)]
    return QuadColumns(*results) if results else QuadColumns([], [], [], [])


MOST_FREQUENT: Final = 100
"""Terms that `StaticStore.frequent` and `LiveStore.predicates` return at most."""


class StaticStore(Protocol):
    """Quads that do not change while the store is open. Thread-safe."""

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

        A variable for the graph matches the default graph, too.
        """

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> Sequence[Quad]:
        """Return up to `limit` matches from position `offset` in a fixed order."""

    def columns(self, pattern: QuadPattern, offset: int, limit: int) -> QuadColumns:
        """Return `quads` by column; the lists are the caller's."""

    def position(self, pattern: QuadPattern, quad: Quad) -> int:
        """Return the position of a match in the order of `quads`."""

    def held(self, quads: Sequence[Quad]) -> Sequence[Quad]:
        """Return the quads that are in the store."""

    def graphs(self) -> Sequence[Term]:
        """Return the named graphs."""

    def frequent(self, predicate: Term | None = None) -> Sequence[tuple[Term, int]]:
        """Return the predicates, or the objects of one, that most quads have, with their number."""

    def close(self) -> None:
        """Release the files."""


class Snapshot(NamedTuple):
    """The facts of all batches up to `sequence`, as valid at `instant`."""

    instant: int
    """Microseconds since 1970-01-01T00:00:00Z."""
    sequence: int
    """Number of the last batch that counts."""


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A durable batch: its number and effects."""

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
    """Receive changes of versions. It must not call the store."""

    def begin(self, versions: Sequence[Standing]) -> None:
        """Receive all standing versions."""

    def change(self, removed: Sequence[int], added: Sequence[Standing]) -> None:
        """Receive the rows of versions that stand no more, and new versions."""


class BatchRun(NamedTuple):
    """The batches with the numbers from ``number * size + 1`` on; instants in microseconds."""

    number: int
    first: int
    last: int
    begin: int
    end: int


class FactEvent(NamedTuple):
    """The effect of a batch on one fact.

    Args:
        place: position in its batch, from 0: first what goes, then what comes.
        fact: with its present or last label.
    """

    sequence: int
    place: int
    published: int
    fact: Fact
    gone: bool


BatchListener: TypeAlias = Callable[[int, frozenset[Term] | None], object]
"""Gets the number of a batch, and the predicates of the facts that came or went with it, if any;
``None``: of what came before, anything may have changed."""


class LiveStore(Protocol):
    """Labelled facts. Thread-safe; every process sees a published batch at once."""

    def snapshot(self, instant: datetime) -> Snapshot:
        """Return the newest acknowledged state, at this instant."""

    def past(
        self,
        patterns: Iterable[FactPattern],
        instant: datetime,
        known: datetime | None = None,
    ) -> Snapshot:
        """Return the state at an instant as it is known now, or was known at another one."""

    def current(self, now: datetime) -> Snapshot:
        """Return the newest acknowledged state that can be read, now."""

    def modified(self, snapshot: Snapshot) -> datetime | None:
        """Return when the newest batch of the snapshot was published."""

    def published_after(self, snapshot: Snapshot) -> datetime | None:
        """Return when the batch after the snapshot was published."""

    def updates(self, now: datetime) -> Sequence[int]:
        """Return the number of changed facts in each minute of the last hour."""

    def predicates(self, snapshot: Snapshot) -> Sequence[tuple[Term, int, int]]:
        """Return the predicates that most facts have, with the number of valid ones."""

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """Return the exact number of matches valid in the snapshot."""

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """Return up to `limit` matches valid in the snapshot, in a fixed order."""

    def history(self, pattern: FactPattern, snapshot: Snapshot, most: int) -> Sequence[Fact]:
        """Return the last versions with intervals that had begun; most of them, and of each key."""

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest later instant at which a label of a match ends or starts."""

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest end of the labels of the valid matches."""

    def publish(
        self,
        facts: Sequence[Fact],
        now: datetime,
        batch_id: str | None = None,
        withdrawn: Sequence[Fact] = (),
    ) -> BatchReceipt:
        """Withdraw facts and add labelled ones, all or none; durable on return (see `batch`).

        A batch with a known identifier is acknowledged again and does nothing.
        """

    def check_writing(self) -> None:
        """Check that a batch could be published, or raise `StoreError`."""

    def retire(self, now: datetime) -> bool:
        """Retire versions that no snapshot shows; return True if any."""

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Report the standing versions, then every change; return a function that ends it."""

    def listen(self, listener: "BatchListener") -> Callable[[], None]:
        """Report every batch, of any process, in any thread; return a function that ends it.

        Those of other processes are noticed at the next call. The listener must not call the store.
        """

    def spans(self, size: int, after: int = 0, until: int | None = None) -> Sequence[BatchRun]:
        """Return the batches kept as events, from `after` + 1 up to `until`, in runs of `size`."""

    def events(self, after: int, until: int, offset: int, limit: int) -> Sequence[FactEvent]:
        """Return a page of events of the batches above `after` up to `until`."""

    def watch(
        self, predicates: Callable[[Term], bool], seen: Callable[[Sequence[Quad]], None]
    ) -> Callable[[], None]:
        """Report present and new quads with these predicates; return a function that ends it.

        `seen` is called from any thread, also repeatedly, and must not call the store.
        """

    def close(self) -> None:
        """Release files and connections."""
