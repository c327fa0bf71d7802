"""GTFS Realtime as feeds: recorded messages, and those of a URL."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE
from loaders.sources.base import FeedBatch, FeedSpan
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_rt import Realtime, timestamp
from loaders.sources.polling import Read


class GtfsRecording:
    """Recorded messages: a file, or a directory of ``.pb`` files.

    Args:
        path: the file or directory.
        schedule: the GTFS feed that they speak of.
        period: how long the last message holds.

    Raises:
        InputError: there is no message, or one is malformed.
        SettingError: the period is not positive.
    """

    name = "gtfs-rt"

    def __init__(
        self, path: str | Path, schedule: Gtfs, period: timedelta = timedelta(seconds=30)
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self._realtime = Realtime(schedule)
        path = Path(path)
        files = sorted(path.rglob("*.pb")) if path.is_dir() else [path]
        polls: dict[datetime, Path] = {}
        for file in files:
            # Two polls with one timestamp are the same message.
            polls[timestamp(self._realtime.parse(_content(file), str(file)))] = file
        if not polls:
            raise InputError("holds no messages (*.pb)", str(path))
        instants = sorted(polls)
        ends = [*instants[1:], instants[-1] + period]
        self._polls = [(at, end, polls[at]) for at, end in zip(instants, ends, strict=True)]

    def _selected(
        self, start: datetime | None, until: datetime | None
    ) -> list[tuple[datetime, datetime, Path]]:
        return [
            poll
            for poll in self._polls
            if (start is None or poll[0] >= start) and (until is None or poll[0] < until)
        ]

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """First poll, end of the last one, and their number."""
        polls = self._selected(start, until)
        return FeedSpan(polls[0][0], polls[-1][1], len(polls)) if polls else None

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """One batch per message."""
        for at, end, file in self._selected(start, until):
            message = self._realtime.parse(_content(file), str(file))
            yield FeedBatch(at, end, self._realtime.quads(message))


def reader_of_messages(schedule: Gtfs) -> Read:
    """A reader of messages that speak of a GTFS feed, for a `Poller`."""
    realtime = Realtime(schedule)
    return lambda content, place: realtime.quads(realtime.parse(content, place))


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_MESSAGE:
            raise InputError(f"more than {MAX_MESSAGE >> 20} MB", str(file))
        return file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from error
