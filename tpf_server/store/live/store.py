"""The live store: labelled facts in a durable log, served from an index in memory."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Self

from annotations.instants import from_micros, to_micros
from annotations.labels import Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, Term
from tpf_server.errors import StoreClosedError
from tpf_server.store.live.batch import FactGroups, checked, plan
from tpf_server.store.live.cleaner import Cleaner
from tpf_server.store.live.garbage import Unwatched, no_garbage
from tpf_server.store.live.index import FactIndex, events_of
from tpf_server.store.live.listeners import Listeners
from tpf_server.store.live.log import FOREVER, Log, Record
from tpf_server.store.live.logs import open_log
from tpf_server.store.live.reader import Reader
from tpf_server.store.live.settings import LiveSettings
from tpf_server.store.live.states import batch_of, check_retained, past_state
from tpf_server.store.live.update_counts import UpdateCounts
from tpf_server.store.live.withdrawal import Withdrawals, spans
from tpf_server.store.protocols import BatchReceipt, BatchRun, Events, Follower, Snapshot, Told

_CHECK_SECONDS = 1.0
"""For how long it is believed that a batch could be published: to find out takes a small one."""
_PAUSE = 1_000_000
"""Microseconds between two batches that only let go of something."""


def open_live_store(
    place: str | Path, settings: LiveSettings | None = None, name: str = "live"
) -> "IndexedLiveStore":
    """Open a live store, which is made where it is not there.

    Args:
        place: a SQLite file, or the URL of a PostgreSQL database: ``postgresql://…``.
        settings: how facts are kept.
        name: which of the stores of a database; a file holds one.

    Raises:
        StoreError: the file or database cannot be opened, holds no live store, or one that was
            made with another key.
    """
    settings = settings or LiveSettings()
    return IndexedLiveStore(open_log(place, settings.key, name), settings)


class IndexedLiveStore:
    """A `LiveStore` over a log. Thread-safe; any number of them may share one log.

    Args:
        log: where the batches are kept; closed with the store.
        settings: how facts are kept, with the key that the log was made with.

    Raises:
        StoreError: the log cannot be read.
    """

    def __init__(self, log: Log, settings: LiveSettings) -> None:
        self._log = log
        self._settings = settings
        self._publishing = threading.Lock()
        self._lock = threading.Lock()
        self._holders = 1
        self._retire_from = 0
        self._checked_until = 0.0
        self._listeners = Listeners()
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

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            if not self._holders:
                raise StoreClosedError("the live store has been closed")
            yield

    # Following the log

    def _follow(self) -> None:
        """Read and apply what the log holds beyond the index."""
        if self._log.changed():
            self._apply_all(self._log.read(self._index.last))

    def _apply_all(self, records: Iterator[Record]) -> None:
        first = next(records, None)
        if first is None:
            return
        if first.sequence != self._index.last + 1 and self._index.last:
            # The log dropped records before this process saw them.
            self._reset()
            self._apply_all(self._log.read(0))
            self._listeners.begin_again(self._index)
            return
        first_read = self._index.last == 0
        for record in chain((first,), records):
            self._apply(record)
        if first_read:
            self._index.settle()
        self._unwatched.grown(self._index.rows.live_rows)

    def _apply(self, record: Record) -> None:
        self._reader.apply(record)
        self._updates.note(record)
        self._listeners.tell(self._index, record)

    def watch(
        self, predicates: Callable[[Term], bool], seen: Callable[[Sequence[Quad]], None]
    ) -> Callable[[], None]:
        """See `LiveStore`."""
        with self._reading():
            return self._locked(self._listeners.watch(self._index, predicates, seen))

    def follow(self, follower: Follower) -> Callable[[], None]:
        """See `LiveStore`."""
        with self._reading():
            return self._locked(self._listeners.follow(self._index, follower))

    def listen(self, told: Told) -> Callable[[], None]:
        """See `LiveStore`."""
        with self._reading():
            return self._locked(self._listeners.listen(told))

    def spans(self, size: int, after: int = 0) -> Sequence[BatchRun]:
        """See `LiveStore`; none where no events are kept."""
        with self._reading():
            begin = self._events_from
        return () if begin is None else self._log.spans(size, max(after, begin))

    def events(self, after: int, until: int) -> Sequence[Events]:
        """See `LiveStore`."""
        with self._reading():
            begin = self._events_from
        if begin is None or until <= max(after, begin):
            return ()
        after = max(after, begin)
        # Others read pages while these are decoded.
        records = self._log.read(after, until - after)
        return [events_of(record) for record in records if record.sequence <= until]

    def _locked(self, action: Callable[[], None]) -> Callable[[], None]:
        def locked() -> None:
            with self._lock:
                action()

        return locked

    def snapshot(self, instant: datetime) -> Snapshot:
        """The newest acknowledged state, at this instant."""
        with self._reading():
            self._follow()
            return Snapshot(to_micros(instant), self._index.last)

    def current(self, now: datetime) -> Snapshot:
        """The newest acknowledged state, now.

        Where the clock was set back behind what retention let go of, at the first instant that can
        still be told.
        """
        with self._reading():
            self._follow()
            floor = self._index.floor
            return Snapshot(max(to_micros(now), floor.expired, floor.history), self._index.last)

    # Reading

    def modified(self, snapshot: Snapshot) -> datetime | None:
        """When the newest batch of the snapshot was published; ``None`` where there is none."""
        with self._reading():
            self._check(snapshot, None)
            changed = batch_of(self._index, snapshot.sequence)
        return None if changed is None else from_micros(changed.changed)

    def published_after(self, snapshot: Snapshot) -> datetime | None:
        """See `LiveStore`."""
        with self._reading():
            self._check(snapshot, None)
            following = batch_of(self._index, snapshot.sequence + 1)
        if following is None or following.sequence <= snapshot.sequence:
            return None
        return from_micros(following.published)

    def updates(self, now: datetime) -> Sequence[int]:
        """See `LiveStore`."""
        with self._reading():
            self._follow()
            return self._updates.until(to_micros(now))

    def count(self, pattern: FactPattern, snapshot: Snapshot) -> int:
        """See `LiveStore`."""
        with self._reading():
            self._check(snapshot, pattern)
            return self._reader.count(pattern, snapshot)

    def facts(
        self, pattern: FactPattern, snapshot: Snapshot, offset: int, limit: int
    ) -> Sequence[Fact]:
        """See `LiveStore`: in the order of their slots."""
        with self._reading():
            self._check(snapshot, pattern)
            return self._reader.facts(pattern, snapshot, offset, limit)

    def next_change(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """See `LiveStore`."""
        with self._reading():
            self._check(snapshot, pattern)
            return _instant(self._reader.next_change(pattern, snapshot))

    def past(
        self,
        patterns: Iterable[FactPattern],
        instant: datetime,
        known: datetime | None = None,
    ) -> Snapshot:
        """The state that tells what held at an instant, as far as it is or was known.

        Intervals tell it in the newest state. An expiration does not tell since when its fact
        holds, so facts with one are known at an instant if none of them was changed since, or if
        the state of that time is retained still.

        Args:
            patterns: which facts are wanted.
            instant: when.
            known: by what was published until when; ``None``: until now.

        Raises:
            PastUnknown: nobody knows.
        """
        at, until = to_micros(instant), None if known is None else to_micros(known)
        with self._reading():
            self._follow()
            return past_state(self._index, patterns, at, until)

    def earliest_end(self, pattern: FactPattern, snapshot: Snapshot) -> datetime | None:
        """See `LiveStore`."""
        with self._reading():
            self._check(snapshot, pattern)
            return _instant(self._reader.earliest_end(pattern, snapshot))

    def _check(self, snapshot: Snapshot, pattern: FactPattern | None) -> None:
        if snapshot.sequence > self._index.last:
            self._follow()
        check_retained(self._index, snapshot, pattern)

    # Publishing

    def publish(
        self,
        facts: Sequence[Fact],
        now: datetime,
        batch_id: str | None = None,
        withdrawn: Sequence[Fact] = (),
    ) -> BatchReceipt:
        """Withdraw facts and add labelled ones, all or none; returns when that is durable.

        `tpf_server.store.live.batch` states what happens to older versions. A batch with an
        identifier that was published before is acknowledged again and does nothing.

        Raises:
            PublishError: a fact without a label, a label that has ended, overlapping labels.
            StoreError: the log cannot be written.
        """
        instant = to_micros(now)
        key = self._settings.key
        groups = checked(facts, instant, self._settings.accept_past, key)
        withdrawals = spans(withdrawn, instant, key) if withdrawn else None
        with self._publishing:
            receipt = self._publish(groups, instant, batch_id, withdrawals)
            assert receipt is not None
            return receipt

    def retire(self, now: datetime) -> bool:
        """Let go of what nobody may see any more, where no batch came for so long to do it.

        Cheap where there is nothing to do, and bounded work once a second otherwise: a batch
        without facts. Whoever serves the store calls it now and then.

        Returns:
            whether something was done.

        Raises:
            StoreError: the log cannot be written.
        """
        instant = to_micros(now)
        if not self._publishing.acquire(blocking=False):
            return False  # a batch is coming
        try:
            with self._reading():
                due = instant >= self._retire_from and self._cleaner.is_due(self._index, instant)
            if not due:
                return False
            self._retire_from = instant + _PAUSE
            return self._publish([], instant, None, retiring=True) is not None
        finally:
            self._publishing.release()

    def check_writing(self) -> None:
        """See `LiveStore`."""
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
        """Publish what was checked; `_publishing` is held. ``None``: another has retired."""
        record: Record | None = None
        try:
            with self._log.writing():
                if batch_id is not None and (known := self._log.receipt(batch_id)):
                    return known
                with self._reading():
                    self._apply_all(self._log.read(self._index.last))
                    if retiring and not self._cleaner.is_due(self._index, instant):
                        return None
                    effects = plan(self._index, groups, instant, withdrawals)
                    record = self._cleaner.record(self._index, effects, instant)
                receipt = BatchReceipt(record.sequence, effects.facts, effects.replaced)
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
        """The same store for one more holder, who closes it as well.

        Raises:
            StoreClosedError: it has been closed.
        """
        with self._reading():
            self._holders += 1
        return self

    def close(self) -> None:
        """Let go of the log, if nobody else holds the store. Then it raises `StoreClosedError`."""
        with self._publishing, self._lock:
            if self._holders:
                self._holders -= 1
                if not self._holders:
                    self._log.close()


def _instant(micros: int) -> datetime | None:
    return None if micros == FOREVER else from_micros(micros)
