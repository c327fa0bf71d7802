"""Serve labelled facts from a durable log and an index in memory."""

import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final, Self, TypeAlias, TypeVar

import numpy as np

from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, Term
from tpf_server.errors import (
    PastUnknown,
    PublishError,
    SnapshotExpired,
    StoreClosedError,
    StoreError,
)
from tpf_server.store.live.batch import Effects, FactGroups, Withdrawals, checked, plan, spans
from tpf_server.store.live.index import BatchEvents, FactIndex, RetainedBatch, Unwatched, no_garbage
from tpf_server.store.live.log import (
    FOREVER,
    NO_START,
    Carried,
    Floor,
    LiveSettings,
    Log,
    Record,
    Version,
)
from tpf_server.store.live.logs import open_log
from tpf_server.store.live.reader import Reader
from tpf_server.store.protocols import (
    MOST_FREQUENT,
    BatchListener,
    BatchReceipt,
    BatchRun,
    FactEvent,
    Follower,
    Snapshot,
    Standing,
)

# Retention: which rows a batch retires, and which old batches it drops from the ring.

_MICROSECOND = timedelta(microseconds=1)
_SLACK = 1024
_IDLE = 4096
"""How many rows a batch without facts retires at most."""
_RECOUNT = 64
_READ_AT_ONCE = 4


class Cleaner:
    """Make the record of a batch, with a bounded share of the cleaning.

    Once half of the versions in the log are not in use, a batch carries twice as many as it brings.
    """

    def __init__(self, log: Log, settings: LiveSettings) -> None:
        self._log = log
        self._retention = settings.retention // _MICROSECOND
        self._history = None if settings.history is None else settings.history // _MICROSECOND
        self._remember = settings.remember_batches // _MICROSECOND
        events = settings.keep_events
        self._events = None if events is None else events // _MICROSECOND
        self._kept_until = NO_START
        """Before this instant nothing may be dropped: the oldest batch is an event still."""
        self._entries = 0
        self._batches = 0
        self._dropped = 0
        self._seldom = False

    def is_due(self, index: FactIndex, now: int) -> bool:
        """True where versions are to be retired and no batch came for long."""
        since = now - self._retention
        if not index.batches or index.batches[-1].changed > since:
            return False
        old = (one.sequence for one in reversed(index.batches) if one.published <= since)
        last = next(old, index.floor.sequence)
        return (
            index.retirement.superseded_until(last)
            or index.retirement.ended_until(since, self._history_until(now))
            or (self._entries > 2 * index.rows.live_rows + _SLACK and now >= self._kept_until)
        )

    def _history_until(self, now: int) -> int:
        return NO_START if self._history is None else now - max(self._history, self._retention)

    def record(self, index: FactIndex, effects: Effects, now: int) -> Record:
        """Return the record of a batch, in the transaction; then append it and call `clean`."""
        rows, floor = index.rows, index.floor
        since = now - self._retention
        oldest = floor.sequence
        for batch in index.batches:
            if batch.published > since:
                break
            oldest = max(oldest, batch.sequence)
        history = self._history_until(now)
        limit = max(_SLACK, 4 * len(effects.added)) if effects.added else _IDLE
        retired = index.retirement.take(oldest, since, history, limit)
        expired, ended = floor.expired, floor.history
        for row in retired:
            if rows.removed[row] == FOREVER:
                if rows.start[row] == NO_START:
                    expired = max(expired, rows.end[row])
                else:
                    ended = max(ended, rows.end[row])
        try:
            carried = self._carry(index, effects, oldest, set(retired), now)
        except StoreError:
            index.give_back(effects.added)
            index.retirement.add_again(retired)
            raise
        floor = Floor(oldest, expired, ended)
        gone: list[Version] = []
        if self._events is not None:
            # Events are told in the order of their instants, whatever the clock does.
            now = max([now, *(batch.published for batch in list(index.batches)[-1:])])
            stay = {version.token for version in effects.added}
            versions = map(rows.version, effects.removed)
            gone = [version for version in versions if version.token not in stay]
        return Record(
            index.last + 1, now, effects.added, effects.removed, retired, carried, floor, gone
        )

    def _carry(
        self, index: FactIndex, effects: Effects, oldest: int, retired: set[int], now: int
    ) -> list[Carried]:
        """Return the versions in use of the oldest batches, which `clean` then drops."""
        rows = index.rows
        self._seldom = self._batches % _RECOUNT == 0
        if self._seldom:  # other processes write, too
            self._entries = self._log.entries()
        self._batches += 1
        self._dropped = 0
        carried: list[Carried] = []
        excess = self._entries - 2 * rows.live_rows - _SLACK
        if excess <= 0 or now < self._kept_until:
            return carried
        enough_carried = 2 * len(effects.added) + 64
        entries_read, enough_read = 0, 4 * enough_carried + _SLACK
        removed_now = set(effects.removed)
        for record in self._batches_before(oldest):
            if self._events is not None and record.published > now - self._events:
                self._kept_until = record.published + self._events
                break
            lives = [(version, record.sequence) for version in record.added]
            lives += [(version, added) for version, added, _ in record.carried]
            for version, added in lives:
                row = version.row
                if row in retired or rows.added[row] != added:
                    continue
                removed = rows.removed[row]
                if row in removed_now:
                    removed = index.last + 1
                carried.append(Carried(version, added, removed))
            entries_read += record.entries
            excess -= record.entries
            self._entries -= record.entries
            self._dropped = record.sequence
            if excess <= 0 or len(carried) >= enough_carried or entries_read >= enough_read:
                break
        return carried

    def _batches_before(self, sequence: int) -> Iterator[Record]:
        after, more = 0, True
        while more:
            more = False
            for record in self._log.read(after, _READ_AT_ONCE):
                if record.sequence >= sequence:
                    return
                yield record
                after, more = record.sequence, True

    def clean(self, record: Record) -> None:
        self._entries += record.entries
        if self._dropped or self._seldom:
            self._log.drop(self._dropped, record.published - self._remember)


# Who is told of the batches of a live store, by whatever process they were published.

_Predicates: TypeAlias = Callable[[Term], bool]
_Seen: TypeAlias = Callable[[Sequence[Quad]], None]
_Listener = TypeVar("_Listener")
_SEEN_AT_ONCE = 1 << 17


class _Listeners:
    def __init__(self) -> None:
        self.watchers: list[tuple[_Predicates, _Seen]] = []
        self.followers: list[Follower] = []
        self.of_batches: list[BatchListener] = []

    def begin_again(self, index: FactIndex) -> None:
        versions = standing(index) if self.followers else []
        for follower in self.followers:
            follower.begin(versions)
        for listener in self.of_batches:
            listener(index.last, None)

    def tell(self, index: FactIndex, record: Record, *, anew: bool = False) -> None:
        # Where all is read anew, they are told once, at its end.
        if self.of_batches and not anew:
            changed = {Term(version.predicate) for version in record.added}
            gone = [row for row in record.removed if index.rows.row_in_use(row)]
            changed.update(quad.predicate for quad in index.quads(gone))
            for listener in self.of_batches:
                listener(record.sequence, frozenset(changed))
        if self.followers and not anew:
            added = [
                Standing(each.row, Quad(*map(Term, each[2:6])), each.start, each.end)
                for each in record.added
            ]
            for follower in self.followers:
                follower.change(record.removed, added)
        for predicates, seen in self.watchers:
            versions = chain(record.added, (carried.version for carried in record.carried))
            seen(
                [
                    Quad(*[Term(text) for text in version[2:6]])
                    for version in versions
                    if predicates(Term(version.predicate))
                ]
            )


def standing(index: FactIndex) -> list[Standing]:
    """Return the versions that stand."""
    rows = index.rows
    numbers = np.flatnonzero(rows.in_use() & (rows.numpy("removed") == FOREVER)).tolist()
    return [
        Standing(row, quad, rows.start[row], rows.end[row])
        for row, quad in zip(numbers, index.quads(numbers), strict=True)
    ]


# Which state of a live store tells what held at an instant, and which can still be read.


def _batch_of(index: FactIndex, sequence: int) -> RetainedBatch | None:
    batches = index.batches
    position = bisect_right(batches, sequence, key=lambda one: one.sequence) - 1
    return batches[position] if position >= 0 else None


def _check_retained(index: FactIndex, snapshot: Snapshot, pattern: FactPattern | None) -> None:
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
        batch = _batch_of(index, sequence)
        if batch is not None and instant >= batch.published:
            raise SnapshotExpired(f"facts of {from_micros(instant)} are no longer retained")


def _past_state(
    index: FactIndex, patterns: Iterable[FactPattern], at: int, known: int | None
) -> Snapshot:
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


# How much was published lately, minute by minute, as the log tells it.

MINUTES: Final = 60
"""For how long it is told."""
_MINUTE: Final = 60_000_000
"""In microseconds."""


class UpdateCounts:
    """Counts of the facts that came, changed or went; by predicate, of those that came."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int, Counter[str]]] = deque()

    def note(self, record: Record) -> None:
        changed = max(len(record.added), len(record.removed))
        if not changed:
            return
        minute = record.published // _MINUTE
        predicates = Counter([version.predicate for version in record.added])
        if self._counts and self._counts[-1][0] >= minute:
            # A clock that was set back: what it says comes to the last minute that was told.
            minute, before, earlier = self._counts.pop()
            changed += before
            predicates += earlier
        if len(predicates) > MOST_FREQUENT:
            predicates = Counter(dict(predicates.most_common(MOST_FREQUENT)))
        self._counts.append((minute, changed, predicates))
        while self._counts[0][0] <= minute - MINUTES:
            self._counts.popleft()

    def until(self, now: int) -> list[int]:
        """Return the counts of the last minutes, up to now."""
        result = [0] * MINUTES
        last = now // _MINUTE
        for minute, count, _ in self._counts:
            position = MINUTES - 1 - (last - minute)
            if 0 <= position < MINUTES:
                result[position] = count
        return result

    def of_predicates(self, now: int) -> Counter[str]:
        """Return how many facts with each predicate came in the last minutes."""
        results: Counter[str] = Counter()
        for minute, _, predicates in self._counts:
            if 0 <= now // _MINUTE - minute < MINUTES:
                results.update(predicates)
        return results


_CHECK_SECONDS = 1.0
"""For how long it is believed that a batch could be published: to find out takes a small one."""
_PAUSE = 1_000_000
"""Microseconds between two batches that only let go of something."""


def open_live_store(
    position: str | Path, settings: LiveSettings | None = None, name: str = "live"
) -> "LiveStore":
    """Open a live store, or make it; see `open_log`."""
    settings = settings or LiveSettings()
    return LiveStore(open_log(position, settings.key, name), settings)


class LiveStore:
    """Labelled facts, over a log that any number of stores may share. Thread-safe."""

    def __init__(self, log: Log, settings: LiveSettings) -> None:
        self._log = log
        self._settings = settings
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._holders = 1
        self._retire_from = 0
        self._checked_until = 0.0
        self._behind = False
        """Whether the log has changed since it was last read to its end."""
        self._listeners = _Listeners()
        self._cleaner = Cleaner(log, settings)
        self._reset()
        with self._lock, no_garbage():
            self._follow()
        self._events_from: int | None = None
        if settings.keep_events is not None:
            # What was published before does not say what it took away.
            self._events_from = int(log.setting("events_from", str(self._index.last)))

    def _reset(self) -> None:
        self._index = FactIndex(self._settings.key, keep_history=self._settings.history is None)
        self._reader = Reader(self._index)
        self._unwatched = Unwatched()
        self._updates = UpdateCounts()
        self._events = BatchEvents(self._log)

    @contextmanager
    def _reading(
        self, snapshot: Snapshot | None = None, pattern: FactPattern | None = None
    ) -> Iterator[None]:
        """Hold the open store, after checking that a snapshot is retained for a pattern."""
        with self._lock:
            if not self._holders:
                raise StoreClosedError("the live store has been closed")
            if snapshot is not None:
                if snapshot.sequence > self._index.last:
                    self._follow()
                _check_retained(self._index, snapshot, pattern)
            yield

    # Following the log

    def _follow(self) -> None:
        self._behind = self._log.changed() or self._behind
        if self._behind:
            self._apply_all(self._log.read(self._index.last))
            self._behind = False

    def _apply_all(self, records: Iterator[Record], *, anew: bool = False) -> None:
        first = next(records, None)
        if first is None:
            return
        if first.sequence != self._index.last + 1 and self._index.last:
            # The log dropped records before this process saw them.
            whole = self._log.read(0)
            self._reset()
            self._apply_all(whole, anew=True)
            self._listeners.begin_again(self._index)
            return
        first_read = self._index.last == 0
        for record in chain((first,), records):
            self._apply(record, anew=anew)
        if first_read:
            self._index.settle()
        self._unwatched.grown(self._index.rows.live_rows)

    def _apply(self, record: Record, *, anew: bool = False) -> None:
        self._reader.apply(record)
        self._updates.note(record)
        if self._settings.keep_events is not None:
            self._events.note(record)
        self._listeners.tell(self._index, record, anew=anew)

    def watch(
        self, predicates: Callable[[Term], bool], seen: Callable[[Sequence[Quad]], None]
    ) -> Callable[[], None]:
        """Report present and new quads with these predicates; return a function that ends it.

        `seen` is called from any thread, also repeatedly, and must not call the store.
        """
        with self._reading():
            rows = self._index.rows_with(predicates).tolist()
            for first in range(0, len(rows), _SEEN_AT_ONCE):
                seen(self._index.quads(rows[first : first + _SEEN_AT_ONCE]))
            return self._added(self._listeners.watchers, (predicates, seen))

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Report the standing versions, then every change; return a function that ends it."""
        with self._reading():
            follower.begin(standing(self._index))
            return self._added(self._listeners.followers, follower)

    def listen(self, listener: BatchListener) -> Callable[[], None]:
        """Report every batch, of any process, in any thread; return a function that ends it.

        Those of other processes are noticed at the next call. The listener must not call the store.
        """
        with self._reading():
            return self._added(self._listeners.of_batches, listener)

    def _added(self, listeners: list[_Listener], listener: _Listener) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""

        def end() -> None:
            with self._lock:
                if listener in listeners:
                    listeners.remove(listener)

        listeners.append(listener)
        return end

    def spans(self, size: int, after: int = 0, until: int | None = None) -> Sequence[BatchRun]:
        """Return the batches kept as events, from `after` + 1 up to `until`, in runs of `size`."""
        with self._reading():
            begin = self._events_from
            if begin is None:
                return ()
            self._follow()
            self._events.forget(self._log.oldest())
            return self._events.runs(size, max(after, begin), until)

    def events(self, after: int, until: int, offset: int, limit: int) -> Sequence[FactEvent]:
        """Return a page of events of the batches above `after` up to `until`."""
        with self._reading():
            begin, events = self._events_from, self._events
            if begin is None:
                return ()
            parts = events.parts(max(after, begin), until, offset, limit)
        # Others read pages while these are decoded.
        return events.read(parts)

    def snapshot(self, instant: datetime) -> Snapshot:
        """Return the newest acknowledged state, at this instant."""
        with self._reading():
            self._follow()
            return Snapshot(to_micros(instant), self._index.last)

    def current(self, now: datetime) -> Snapshot:
        """Return the newest acknowledged state that can be read, now.

        After the clock was set back, at the first instant that can be answered.
        """
        with self._reading():
            self._follow()
            floor = self._index.floor
            return Snapshot(max(to_micros(now), floor.expired, floor.history), self._index.last)

    # Reading

    def modified(self, snapshot: Snapshot) -> datetime | None:
        """Return when the newest batch of the snapshot was published."""
        with self._reading(snapshot):
            changed = _batch_of(self._index, snapshot.sequence)
        return None if changed is None else from_micros(changed.changed)

    def published_after(self, snapshot: Snapshot) -> datetime | None:
        """Return when the batch after the snapshot was published."""
        with self._reading(snapshot):
            following = _batch_of(self._index, snapshot.sequence + 1)
        if following is None or following.sequence <= snapshot.sequence:
            return None
        return from_micros(following.published)

    def updates(self, now: datetime) -> Sequence[int]:
        """Return the number of changed facts in each minute of the last hour."""
        with self._reading():
            self._follow()
            return self._updates.until(to_micros(now))

    def predicates(self, snapshot: Snapshot) -> Sequence[tuple[Term, int, int]]:
        """Return the predicates that most facts have, with the number of valid ones."""
        with self._reading(snapshot):
            predicates = self._index.predicates()
            came = self._updates.of_predicates(snapshot.instant)
        counted = [(each, self.count(FactPattern(predicate=each), snapshot)) for each in predicates]
        return [(each, count, came[each]) for each, count in counted if count or came[each]]

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """Return the exact number of matches valid in the snapshot."""
        with self._reading(snapshot, pattern):
            return self._reader.count(pattern, snapshot)

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """Return up to `limit` matches valid in the snapshot, in a fixed order."""
        with self._reading(snapshot, pattern):
            return self._reader.facts(pattern, snapshot, offset, limit)

    def history(self, pattern: FactPattern, snapshot: Snapshot, most: int) -> Sequence[Fact]:
        """Return the last versions with intervals that had begun; most of them, and of each key."""
        with self._reading(snapshot, pattern):
            return self._reader.history(pattern, snapshot, most)

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest later instant at which a label of a match ends or starts."""
        with self._reading(snapshot, pattern):
            return _instant(self._reader.next_change(pattern, snapshot))

    def past(
        self,
        patterns: Iterable[FactPattern],
        instant: datetime,
        known: datetime | None = None,
    ) -> Snapshot:
        """Return the state at an instant as it is known now, or was known at another one.

        Of expirations, if none was changed since, or that state is retained.
        """
        at, until = to_micros(instant), None if known is None else to_micros(known)
        with self._reading():
            self._follow()
            return _past_state(self._index, patterns, at, until)

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """Return the earliest end of the labels of the valid matches."""
        with self._reading(snapshot, pattern):
            return _instant(self._reader.earliest_end(pattern, snapshot))

    # Publishing

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
        instant = to_micros(now)
        key = self._settings.key
        try:
            groups = checked(facts, instant, self._settings.accept_past, key)
        except PublishError:
            if batch_id is None:
                raise
            # The labels of a batch that is repeated may have ended since.
            with self._publishing, self._log.writing():
                earlier = self._log.receipt(batch_id)
            if earlier is None:
                raise
            return earlier
        withdrawals = spans(withdrawn, instant, key) if withdrawn else None
        with self._publishing:
            receipt = self._publish(groups, instant, batch_id, withdrawals)
            assert receipt is not None
            return receipt

    def retire(self, now: datetime) -> bool:
        """Retire versions that no snapshot shows, at most once a second; return True if any."""
        instant = to_micros(now)
        if not self._publishing.acquire(blocking=False):
            return False  # a batch is coming
        try:
            with self._reading():
                is_due = instant >= self._retire_from and self._cleaner.is_due(self._index, instant)
            if not is_due:
                return False
            self._retire_from = instant + _PAUSE
            return self._publish({}, instant, None, retiring=True) is not None
        finally:
            self._publishing.release()

    def check_writing(self) -> None:
        """Check that a batch could be published, or raise `StoreError`."""
        if not self._publishing.acquire(blocking=False):
            return  # one is being published
        try:
            with self._reading():
                now = time.monotonic()
                if now < self._checked_until:
                    return
            self._log.check_writing()
            self._checked_until = now + _CHECK_SECONDS
        finally:
            self._publishing.release()

    def _publish(
        self,
        groups: FactGroups,
        instant: int,
        batch_id: str | None,
        withdrawals: Withdrawals | None = None,
        retiring: bool = False,
    ) -> BatchReceipt | None:
        """Publish checked facts; `_publishing` is held. ``None``: another process has retired."""
        record: Record | None = None
        try:
            with self._log.writing():
                if batch_id is not None and (earlier := self._log.receipt(batch_id)):
                    return earlier
                with self._reading():
                    self._apply_all(self._log.read(self._index.last))
                    if retiring and not self._cleaner.is_due(self._index, instant):
                        return None
                    effects = plan(self._index, groups, instant, withdrawals)
                    record = self._cleaner.record(self._index, effects, instant)
                receipt = BatchReceipt(record.sequence, effects.facts, len(effects.removed))
                self._log.append(record, receipt, batch_id)
                self._cleaner.clean(record)
        except BaseException:
            if record is not None:
                with self._lock:
                    self._index.take_back(record)
            raise
        with self._reading():
            # A reader may have seen the commit and read the record before us.
            if self._index.last == record.sequence - 1:
                self._apply(record)
                self._unwatched.grown(self._index.rows.live_rows)
        return receipt

    def share(self) -> Self:
        """Return the same store for one more holder, who closes it as well."""
        with self._reading():
            self._holders += 1
        return self

    def close(self) -> None:
        """Close the log, if nobody else holds the store; it then raises `StoreClosedError`."""
        with self._publishing, self._lock:
            if self._holders:
                self._holders -= 1
                if not self._holders:
                    self._log.close()


def _instant(micros: int) -> datetime | None:
    return None if micros == FOREVER else from_micros(micros)
