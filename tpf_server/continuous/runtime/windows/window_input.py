"""A pattern over a window of a stream: where rows enter the joins of all queries that have it.

The window decides when rows come and go; the pattern (see `TripleWindow` and `StarWindow`) which
rows an element brings. The interface is `arrive` for the triples of an element, `expire` and
`admit` for time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.state.row_index import RowBag
from tpf_server.continuous.runtime.clock import ENDLESS, StreamClock
from tpf_server.continuous.runtime.windows.matchers import (
    EncodedTriple,
    StarMatcher,
    TripleMatcher,
    Watermark,
)
from tpf_server.continuous.runtime.windows.specification import (
    All,
    Now,
    Range,
    Triples,
    Window,
)


class Consumer(Protocol):
    """A join that starts at a window."""

    takes_expired: bool
    """Whether it wants to hear of rows that go."""
    route: Callable[[Solution, int], None]
    """Takes a row that came or went (looked up at every use)."""
    failed: Callable[[Exception], None]
    """Takes what `route` raised: other consumers go on."""


class WindowInput:
    """Rows of triple patterns in a window.

    Args:
        number: the position among all inputs of an engine that take an element. An input stores a
            row before it notifies its consumers: of new rows that join, only the last meets all.
        touch: called when rows come or go, for those who `hold`.
        watermark: gives rows one more column: their stamp.

    Attributes:
        elsewhere: the count of rows that another object keeps for it (see `FusedPlan`).
        used: the stamp of the last row, or 1; 0 where none ever came.
        holders: plans to be flushed after rows came or went.
        calm: no row came or went since these were flushed.
        netted: the count of its consumers that emit differences; 0 where it slides.
        scheduled: the expiry of the oldest row is known, or nobody needs it.
        recent: a sample of new rows, to measure with.
        log: the entries of the window, oldest first; each begins with its time (or number).
        width: milliseconds for which a row stays, without the slide.
        arrive_row: takes the row of a triple with its timestamp (or number, see `arrive`).
        expire: expires rows at an instant (or at the number of the last triple).
        arrive_star: takes a whole star: timestamp, subject and row.
    """

    arrive_row: Callable[[int, Solution], None]
    expire: Callable[[int], None]
    arrive_star: Callable[[int, TermId, Solution], None]

    def __init__(
        self,
        window: Window,
        matcher: TripleMatcher | StarMatcher,
        time: StreamClock,
        number: int,
        touch: Callable[["WindowInput"], None],
        watermark: Watermark | None = None,
    ) -> None:
        self.window = window
        self.matcher = matcher
        self._row_width = matcher.width + (watermark is not None)
        self.time = time
        self.number = number
        self.watermark = watermark
        self.used = 0
        self.elsewhere = 0
        self.holders: list[Any] = []
        self.calm = True
        self.netted = 0
        self.scheduled = True
        self._touch = touch
        self._schedule_at: Callable[[WindowInput, int], None] | None = None
        self.consumers: list[Consumer] = []
        self._leavers: list[Consumer] = []
        self.recent: deque[Solution] = deque(maxlen=32)
        self._bag: RowBag | None = None
        self.log: deque[tuple[Any, ...]] = deque()
        self._waiting: deque[tuple[Any, ...]] = deque()
        # Entries of the log that the time of other streams has pushed out (see `StreamClock`).
        self._hidden: deque[tuple[Any, ...]] = deque()
        self._rows = 0
        self.keeps_log = not isinstance(window, All)
        self.by_count = window.count if isinstance(window, Triples) else 0
        self.width: int = 0 if isinstance(window, Now) else getattr(window, "width", 0)
        self._slide = window.slide if isinstance(window, Range) else None
        self._boundary: int | None = None
        self._sliding: dict[WindowInput, None] = {}

    def connect(self, consumer: Consumer, *, nets: bool) -> None:
        self.consumers.append(consumer)
        self.netted += nets and not self.slides
        if consumer.takes_expired:
            self._leavers.append(consumer)

    def hold(self, plan: Any) -> None:
        """Have a plan flushed after rows came or went."""
        self.holders.append(plan)
        self._prepare()

    def release(self, plan: Any) -> None:
        if plan in self.holders:
            self.holders.remove(plan)

    def order(self, schedule: Callable[["WindowInput", int], None]) -> None:
        """Report from now on the timestamp of the oldest row, when there is one again."""
        self._schedule_at = schedule
        self.scheduled = False
        if self.log:
            self._schedule(self.log[0][0])
        self._prepare()

    def slide_among(self, sliding: dict["WindowInput", None]) -> None:
        """Be in this set whenever the window has something."""
        self._sliding = sliding

    def came_since(self, number: int) -> bool:
        """True if a row came that a query with this number sees."""
        return bool(self.used) if self.watermark is None else self.used >= number

    def begins_after(self, position: int) -> bool:
        """True if it has nothing that came until a time, or a number of a triple."""
        if not self.keeps_log:
            return not self.used
        entries = (self.log, self._hidden, self._waiting)
        return all(each[0][0] > position for each in entries if each)

    def disconnect(self, consumer: Consumer, *, nets: bool) -> None:
        """Remove a consumer; see `connect`."""
        self.consumers.remove(consumer)
        self.netted -= nets and not self.slides
        if consumer in self._leavers:
            self._leavers.remove(consumer)

    @property
    def bag(self) -> RowBag:
        """Return the rows with their indexes; made with the first call.

        That must be before any row comes, where the window keeps no log to fill indexes from.
        """
        if self._bag is None:
            if self.keeps_log:
                self._bag = RowBag(self._row_width, self._present, prepare=self._prepare)
            else:
                assert not self.used, "an input that is in use gets no new kind of consumer"
                self._bag = RowBag(self._row_width, prepare=self._prepare)
            self._prepare()
        return self._bag

    def _present(self) -> Iterable[tuple[Solution, int]]:
        raise NotImplementedError

    def _prepare(self) -> None:
        """Adapt to new holders, readers or indexes."""

    @property
    def slides(self) -> bool:
        """True if rows wait for a boundary before they enter."""
        return self._slide is not None

    @property
    def moves(self) -> bool:
        """True if time makes rows come or go."""
        return self.keeps_log and not self.by_count

    @property
    def held(self) -> int:
        """Count the entries, for the limit on memory."""
        kept = len(self.log) + len(self._waiting) + len(self._hidden)
        return kept + self.elsewhere if self.keeps_log else kept + self._rows

    @property
    def multiplies(self) -> bool:
        """True if one triple may add many entries."""
        return False

    # ---------------------------------------------------------------------------- arrivals

    def arrive(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        """Take the triples of an element that fit the constants of the pattern.

        Args:
            at: the element's timestamp, or, for a window that counts triples, the number of the
                first triple (the others follow).
            triples: for a star all triples of one subject, otherwise those that match.
        """
        raise NotImplementedError

    def _enter(self, entry: tuple[Any, ...]) -> None:
        """Take an entry of the log, which begins with its time (or number)."""
        at = entry[0]
        if self._slide is not None and self not in self._sliding:
            # Nobody has told it of boundaries while it had nothing.
            self._sliding[self] = None
            self._boundary = at // self._slide * self._slide
        if self._boundary is not None and at > self._boundary:
            assert self._slide is not None
            # Between the ranges of two boundaries no window has it.
            if at >= -(-at // self._slide) * self._slide - self.width:
                self._waiting.append(entry)
            return
        self._insert(entry)

    def _insert(self, entry: tuple[Any, ...]) -> None:
        if not self.scheduled:
            self._schedule(entry[0])
        if self.keeps_log:
            self.log.append(entry)
        self._come(entry)

    def _come(self, entry: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def _go(self, entry: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def _rouse(self) -> None:
        self.calm = False
        self._touch(self)

    def _schedule(self, at: int) -> None:
        self.scheduled = True
        if self._schedule_at is not None:
            self._schedule_at(self, at)

    def _changed(self, row: Solution, count: int) -> None:
        if self.calm and self.holders:
            self._rouse()
        if self._bag is not None:
            self._bag.change(row, count)
        if count > 0:
            self._rows += count
            self.recent.append(row)
        for consumer in self.consumers if count > 0 else self._leavers:
            try:
                consumer.route(row, count)
            except Exception as error:  # noqa: BLE001 (see `Consumer.failed`)
                consumer.failed(error)

    # -------------------------------------------------------------------------------- time

    def last_instant(self, at: int) -> int:
        """Return the last instant at which the window has an element with this timestamp."""
        if self._slide is None:
            return at + self.width
        return ((at + self.width) // self._slide + 1) * self._slide - 1

    def _first(self, at: int) -> int:
        return (at if self._slide is None else at // self._slide * self._slide) - self.width

    def _hide(self, front: int) -> None:
        """Expire old rows, but keep those to which the stream may come back."""
        log, hidden, time = self.log, self._hidden, self.time
        first, kept = self._first(time.at(front)), self._first(time.latest)
        while log and log[0][0] < first:
            entry = log.popleft()
            if entry[0] >= kept:
                hidden.append(entry)
            self._go(entry)
        if hidden:
            time.hide(self)

    def trim(self) -> bool:
        """Drop hidden rows that the stream has passed; True: none is left."""
        hidden, first = self._hidden, self._first(self.time.latest)
        while hidden and hidden[0][0] < first:
            hidden.popleft()
        return not hidden

    def set_back(self, at: int) -> None:
        """Move to an instant of its stream that others have passed."""
        if not self.moves:
            return
        log, hidden, waiting = self.log, self._hidden, self._waiting
        first, last = self._first(at), at
        if self._slide is not None:
            last = self._boundary = at // self._slide * self._slide
            while log and log[-1][0] > last:
                entry = log.pop()
                waiting.appendleft(entry)
                self._go(entry)
        while hidden and hidden[-1][0] >= first:
            entry = hidden.pop()
            if entry[0] > last:
                waiting.appendleft(entry)
                continue
            log.appendleft(entry)
            self._come(entry)
        hidden.clear()

    def next_change(self, *, gone: bool) -> int:
        """Return the next boundary of the slide at which rows come in (or, also, are gone)."""
        assert self._slide is not None
        waiting = self._waiting
        comes = -(-waiting[0][0] // self._slide) * self._slide if waiting else ENDLESS
        return min(comes, self.next_gone) if gone else comes

    @property
    def next_gone(self) -> int:
        """The first instant of its stream without its oldest row."""
        return self.last_instant(self.log[0][0]) + 1 if self.log else ENDLESS

    @property
    def empty(self) -> bool:
        """True if it has no rows, hidden ones included."""
        return not (self.log or self._waiting or self._hidden)

    def admit(self, front: int) -> None:
        """Admit the rows that waited for the slide, if a boundary has passed."""
        assert self._slide is not None
        boundary = self.time.at(front) // self._slide * self._slide
        if self._boundary is not None and boundary <= self._boundary:
            return
        self._boundary = boundary
        waiting = self._waiting
        while waiting and waiting[0][0] <= boundary:
            entry = waiting.popleft()
            if entry[0] >= boundary - self.width:
                self._insert(entry)
