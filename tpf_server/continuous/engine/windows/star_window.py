"""Triple patterns that make a star, over a window of a stream."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tpf_client.dataflow.changes import Solution, TermId
from tpf_server.continuous.engine.windows.matchers import (
    EncodedTriple,
    PatternKey,
    StampedStarMatcher,
    StarMatcher,
)
from tpf_server.continuous.engine.windows.specification import Window
from tpf_server.continuous.engine.windows.star import StarContent
from tpf_server.continuous.engine.windows.stream_time import StreamTime
from tpf_server.continuous.engine.windows.watermark import Watermark
from tpf_server.continuous.engine.windows.window_input import WindowInput


class StarWindow(WindowInput):
    """Rows of a star in a window; for the arguments see `WindowInput`.

    Entries of the log are a time, a subject, and the row or the objects that an element brought.
    """

    matcher: StarMatcher

    def __init__(
        self,
        window: Window,
        key: PatternKey,
        time: StreamTime,
        number: int,
        touch: Callable[[WindowInput], None],
        watermark: Watermark | None = None,
    ) -> None:
        matcher = StampedStarMatcher(key, watermark) if watermark else StarMatcher(key)
        super().__init__(window, matcher, matcher.width, time, number, touch, watermark)
        self._star = StarContent(matcher, self._changed)
        self.arrive_star = self._sink()
        self.expire = self._expire

    @property
    def multiplies(self) -> bool:
        """See `WindowInput`."""
        return not self.keeps_log

    def arrive(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        """See `WindowInput`."""
        watermark = self.watermark
        self.used = 1 if watermark is None else watermark.last
        subject = triples[0][0]
        parts = self.matcher.values(subject, triples)
        if any(parts):
            self._enter(at, (subject, parts))

    def entries(self) -> list[tuple[int, TermId, Solution]] | None:
        """The time, subject and row of each element that it holds, oldest first.

        ``None`` where an element is not just a row, or it holds more than these.
        """
        live = self._star.live
        more = self._hidden or self._waiting or self._bag is not None or self._schedule_at
        if more or len(live) != len(self._log):
            return None
        found = []
        for at, subject, _ in self._log:
            row = live[subject]
            if not isinstance(row, tuple):
                return None
            found.append((at, subject, row))
        return found

    def clear(self) -> None:
        """Forget these; who listens is not told."""
        self._log.clear()
        self._star.live.clear()

    def _present(self) -> Iterable[tuple[Solution, int]]:
        return self._star.rows()

    def _entry(self, at: int, item: tuple[Any, ...]) -> tuple[Any, ...]:
        return at, *item

    def _item(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
        return entry[1:]

    def _come(self, entry: tuple[Any, ...]) -> None:
        self._star.insert(*entry[1:])

    def _go(self, entry: tuple[Any, ...]) -> None:
        self._star.expire(*entry[1:])

    def _sink(self) -> Callable[[int, TermId, Solution], None]:
        star = self._star
        enter, remember, log = self._enter, self.recent.append, self._log.append
        live, consumers, keeps_log = star.live, self.consumers, self.keeps_log
        slides, watermark = self._slide is not None, self.watermark
        holders, touch = self.holders, self._touch

        def arrive_star(at: int, subject: TermId, row: Solution) -> None:
            if watermark is None:
                self.used = 1
            else:
                self.used = stamp = watermark.last
                row = (*row, stamp)
            if slides or subject in live:
                enter(at, (subject, row))
                return
            # What most elements come to, without the steps in between.
            live[subject] = row
            if keeps_log:
                if not self.scheduled:
                    self._schedule(at)
                log((at, subject, row))
            else:
                self._rows += 1
            if holders and self.calm:
                self.calm = False
                touch(self)
            bag = self._bag
            if bag is not None and not bag.idle:
                bag.change(row, 1)
            remember(row)
            for consumer in consumers:
                consumer.route(row, 1)

        return arrive_star

    def _expire(self, front: int) -> None:
        star, time = self._star, self.time
        if front != time.latest:
            self._hide(front)
            return
        first = self._first(front)
        log, live, leavers = self._log, star.live, self._leavers
        bag = None if self._bag is None or self._bag.idle else self._bag
        if self.holders and self.calm and log and log[0][0] < first:
            self._rouse()
        while log and log[0][0] < first:
            _, subject, brought = log.popleft()
            row = live[subject]
            if type(row) is not tuple:
                star.expire(subject, brought)
                continue
            del live[subject]
            if bag is not None:
                bag.change(row, -1)
            for consumer in leavers:
                consumer.route(row, -1)
