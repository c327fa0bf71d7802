"""Serve the changes of a live store as server-sent events, numbered as its batches."""

import json
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from weakref import WeakKeyDictionary

from annotations.clock import Clock
from annotations.follower_slots import FollowerSlots
from annotations.terms import Term
from tpf_server.errors import StoreClosedError, StoreError
from tpf_server.store.live.store import LiveStore

_HEARTBEAT: Final = 10.0
"""Seconds of silence after which a follower is told that the connection lives."""
_LOOK: Final = 0.1
"""Seconds between looks for batches of other processes, while somebody follows."""
_KEPT: Final = 1_000
"""Batches that a follower may have missed and still hear one by one."""
_MOST_TEXT: Final = 2**14
"""Characters of the predicates of an event; where there are more, it says that anything changed."""


class ChangeFeed:
    """The last batches of a live store. Thread-safe."""

    def __init__(self, store: LiveStore, clock: Clock) -> None:
        self._clock = clock
        # Of a feed that outlives its store, as after a reload, the store must not live on.
        self._store: LiveStore = weakref.proxy(store)
        self._changed = threading.Condition()
        self._kept: deque[tuple[int, frozenset[Term]]] = deque()
        self._closed = False
        self._followers = 0
        self._looking = False
        self._from = self._last = 0
        """All batches after the first of these are kept, until the second."""
        # Whatever comes between these two is heard.
        store.listen(self._take)
        begin = store.snapshot(clock.now()).sequence
        with self._changed:
            self._from, self._last = max(self._from, begin), max(self._last, begin)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, sequence: int, predicates: frozenset[Term] | None) -> None:
        with self._changed:
            self._last = sequence
            if predicates is None:
                self._kept.clear()
                self._from = sequence
            elif predicates:
                self._kept.append((sequence, predicates))
                if len(self._kept) > _KEPT:
                    self._from, _ = self._kept.popleft()
            else:
                return
            self._changed.notify_all()

    def events(self, after: int | None) -> Iterator[str]:
        """Return server-sent events of changes after a batch, as they come; comments in between."""
        self._enter()
        try:
            self._catch_up()
            if after is None:
                after = self._last
                yield _event(after, frozenset())
            while not self._closed:
                heard = self._after(after, _HEARTBEAT)
                if heard is None:
                    yield ": still here\n\n"
                else:
                    after, predicates = heard
                    yield _event(after, predicates)
        finally:
            with self._changed:
                self._followers -= 1

    def _after(self, after: int, seconds: float) -> tuple[int, frozenset[Term] | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_behind(after), seconds)
            if not self._is_behind(after):
                return None
            if not self._from <= after <= self._last:
                # It was away for too long, or the log is not the one that it was.
                return self._last, None
            missed = [each for sequence, each in self._kept if sequence > after]
            return self._last, frozenset().union(*missed)

    def _is_behind(self, after: int) -> bool:
        if not self._from <= after <= self._last:
            return True
        return bool(self._kept) and self._kept[-1][0] > after

    def _enter(self) -> None:
        with self._changed:
            self._followers += 1
            looking, self._looking = self._looking, True
        if not looking:
            threading.Thread(target=self._look, name="changes", daemon=True).start()

    def _is_followed(self) -> bool:
        with self._changed:
            self._looking = self._followers > 0 and not self._closed
            return self._looking

    def _look(self) -> None:
        pause = threading.Event()
        while self._is_followed():
            self._catch_up()
            pause.wait(_LOOK)

    def _catch_up(self) -> None:
        """Let the store read the batches of other processes; close with it."""
        try:
            self._store.snapshot(self._clock.now())
        except (StoreClosedError, ReferenceError):
            self.close()
        except StoreError:
            pass  # whoever publishes or reads is told


def _event(sequence: int, predicates: frozenset[Term] | None) -> str:
    iris = None if predicates is None else sorted(each[1:-1] for each in predicates)
    if iris is not None and sum(map(len, iris)) > _MOST_TEXT:
        iris = None
    text = json.dumps({"sequence": sequence, "predicates": iris}, ensure_ascii=False)
    return f"id: {sequence}\ndata: {text}\n\n"


class ChangeFeeds:
    """The feeds of the datasets of a worker, and the slots of their followers."""

    def __init__(
        self,
        clock: Clock,
        limit: int,
        per_address: int = 0,
        watched: Callable[[str], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.slots = FollowerSlots(limit, per_address)
        self._clock = clock
        self._watched = watched or nullcontext
        self._lock = threading.Lock()
        self._feeds: WeakKeyDictionary[LiveStore, ChangeFeed] = WeakKeyDictionary()
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.close()

    def of(self, store: LiveStore) -> ChangeFeed:
        with self._lock:
            feed = self._feeds.get(store)
            if feed is None or (feed.closed and not self._closed):
                feed = self._feeds[store] = ChangeFeed(store, self._clock)
                if self._closed:
                    feed.close()
            return feed

    def sent(self, feed: ChangeFeed, after: int | None, address: str) -> Iterator[str]:
        """Return the events of a feed, as they are sent to an address."""
        for text in feed.events(after):
            with self._watched(address):
                yield text
