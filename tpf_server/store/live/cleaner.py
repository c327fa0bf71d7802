"""Retention: which rows a batch retires, and which old batches it drops from the ring."""

from collections.abc import Iterator
from datetime import timedelta

from tpf_server.errors import StoreError
from tpf_server.store.live.batch import undo
from tpf_server.store.live.index import FactIndex
from tpf_server.store.live.log import FOREVER, NO_START, Carried, Floor, Log, Record, Version
from tpf_server.store.live.planner import Effects
from tpf_server.store.live.settings import LiveSettings

_MICROSECOND = timedelta(microseconds=1)
_SLACK = 1024
_IDLE = 4096
"""How many rows a batch without facts retires at most."""
_RECOUNT = 64
_READ_AT_ONCE = 4


class Cleaner:
    """Makes the record of a batch, with a bounded share of the cleaning.

    The log may hold twice as many versions as are in use; beyond that every batch drops the
    oldest batches until it has taken along about twice as many versions as it brings. So the cost
    of cleaning is a constant factor of the cost of writing.

    Args:
        log: the log.
        settings: for how long rows are kept.
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
        """Whether there is something to retire, and no batch came for long that would do it."""
        since = now - self._retention
        if not index.batches or index.batches[-1].changed > since:
            return False
        old = (one.sequence for one in reversed(index.batches) if one.published <= since)
        last = next(old, index.floor.sequence)
        return (
            index.due.superseded_until(last)
            or index.due.ended_until(since, self._history_until(now))
            or (self._entries > 2 * index.rows.live_rows + _SLACK and now >= self._kept_until)
        )

    def _history_until(self, now: int) -> int:
        return NO_START if self._history is None else now - max(self._history, self._retention)

    def record(self, index: FactIndex, effects: Effects, now: int) -> Record:
        """The record of a batch. Call it within the transaction, then append it, then `clean`.

        Raises:
            StoreError: the log cannot be read; the index is as it was before the batch.
        """
        rows, floor = index.rows, index.floor
        since = now - self._retention
        oldest = floor.sequence
        for batch in index.batches:
            if batch.published > since:
                break
            oldest = max(oldest, batch.sequence)
        history = self._history_until(now)
        limit = max(_SLACK, 4 * len(effects.added)) if effects.added else _IDLE
        retired = index.due.take(oldest, since, history, limit)
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
            undo(index, effects)
            index.due.add_again(retired)
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
        """What is still in use of the oldest batches, which `clean` then drops."""
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
        wanted = 2 * len(effects.added) + 64
        looked_at, enough = 0, 4 * wanted + _SLACK
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
            looked_at += record.entries
            excess -= record.entries
            self._entries -= record.entries
            self._dropped = record.sequence
            if excess <= 0 or len(carried) >= wanted or looked_at >= enough:
                break
        return carried

    def _batches_before(self, sequence: int) -> Iterator[Record]:
        """The records of the oldest batches, decoded as they are needed: some are large."""
        after, more = 0, True
        while more:
            more = False
            for record in self._log.read(after, _READ_AT_ONCE):
                if record.sequence >= sequence:
                    return
                yield record
                after, more = record.sequence, True

    def clean(self, record: Record) -> None:
        """Drop what the record has made superfluous."""
        self._entries += record.entries
        if self._dropped or self._seldom:
            self._log.drop(self._dropped, record.published - self._remember)
