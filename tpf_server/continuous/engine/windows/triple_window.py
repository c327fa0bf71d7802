"""A single triple pattern over a window of a stream."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.codegen import compiled
from tpf_server.continuous.engine.windows.matchers import EncodedTriple, PatternKey, TripleMatcher
from tpf_server.continuous.engine.windows.specification import Window
from tpf_server.continuous.engine.windows.stream_time import StreamTime
from tpf_server.continuous.engine.windows.watermark import Watermark
from tpf_server.continuous.engine.windows.window_input import WindowInput

_SCHEDULING = ("if not window.scheduled:", "    schedule(at)")


class TripleWindow(WindowInput):
    """Rows of one triple pattern in a window; for the arguments see `WindowInput`.

    Entries of the log are a time (or a number) and a row.
    """

    matcher: TripleMatcher

    def __init__(
        self,
        window: Window,
        key: PatternKey,
        time: StreamTime,
        number: int,
        touch: Callable[[WindowInput], None],
        watermark: Watermark | None = None,
    ) -> None:
        matcher = TripleMatcher(key)
        width = matcher.width + (watermark is not None)
        super().__init__(window, matcher, width, time, number, touch, watermark)
        self._prepare()

    def arrive(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        """See `WindowInput`."""
        watermark, row_of = self.watermark, self.matcher.row
        self.used = 1 if watermark is None else watermark.last
        for triple in triples:
            row = row_of(triple)
            if row is not None:
                self._enter(at, row if watermark is None else (*row, watermark.last))

    def _present(self) -> Iterable[tuple[Solution, int]]:
        return ((entry[1], 1) for entry in self._log)

    def _entry(self, at: int, item: Solution) -> tuple[Any, ...]:
        return at, item

    def _item(self, entry: tuple[Any, ...]) -> Solution:
        row: Solution = entry[1]
        return row

    def _come(self, entry: tuple[Any, ...]) -> None:
        self._changed(entry[1], 1)

    def _go(self, entry: tuple[Any, ...]) -> None:
        self._changed(entry[1], -1)

    def _prepare(self) -> None:
        """Make the code by which rows of single triples come and go, with the indexes of now."""
        names: dict[str, Any] = {
            "window": self,
            "watermark": self.watermark,
            "time": self.time,
            "hide": self._hide,
            "rouse": self._rouse,
            "schedule": self._schedule,
            "enter": self._enter,
            "log": self._log,
            "remember": self.recent.append,
            "consumers": self.consumers,
            "leavers": self._leavers,
            "older": self.by_count - 1,
            "width": self._width,
            "slide": self._slide,
        }
        indexing = [] if self._bag is None else self._bag.maintenance(names)
        rousing = ["if window.calm:", "    rouse()"] if self.holders else []
        if self._slide is not None:
            come = ["enter(at, row)"]
        else:
            come = [
                *([] if self._schedule_at is None else _SCHEDULING),
                *rousing,
                "log.append((at, row))" if self.keeps_log else "window._rows += 1",
                "count = 1",
                *indexing,
                "remember(row)",
                "for consumer in consumers:",
                "    consumer.route(row, 1)",
            ]
        go = [
            "row = log.popleft()[1]",
            *indexing,
            "for consumer in leavers:",
            "    consumer.route(row, -1)",
        ]
        lines = ["def arrive_row(at, row):", "    window.used = 1"]
        if self.watermark is not None:
            lines = ["def arrive_row(at, row):", "    window.used = stamp = watermark.last"]
            lines.append("    row = (*row, stamp)")
        lines += [f"    {line}" for line in come]
        self.arrive_row = compiled("\n".join(lines), "arrive_row", names)
        if self.by_count:
            lines = ["def expire(number):", "    first = number - older"]
        else:
            first = "front - width"
            if self._slide is not None:
                first = "front // slide * slide - width"
            lines = [
                "def expire(front):",
                "    if front != time.latest:",
                "        return hide(front)",
                f"    first = {first}",
            ]
        lines.append("    count = -1")
        if rousing:
            lines += ["    if log and log[0][0] < first and window.calm:", "        rouse()"]
        lines += ["    while log and log[0][0] < first:", *(f"        {line}" for line in go)]
        self.expire = compiled("\n".join(lines), "expire", names)
