"""GTFS Realtime as feeds: recorded messages, and a URL that is asked again and again."""

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import requests

from annotations.clock import Clock
from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE, fetched
from loaders.sources.base import FeedBatch, FeedSpan
from loaders.sources.gtfs import Gtfs
from loaders.sources.gtfs_rt import Realtime, timestamp


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


class GtfsPoller:
    """A live feed that is asked again and again; to be played with the original instants.

    A poll that fails says nothing, so that what was said before it ends when it was to end.

    Args:
        url: of the messages.
        schedule: the GTFS feed that they speak of.
        clock: to wait on.
        period: time between two polls.
        session: the HTTP session.
        cancelled: ends the polling.
        grace: how long a poll holds beyond the next one, which takes some time to arrive.
        failed: told of every poll that fails.
        polls: how often to ask; ``None``: until it is cancelled.
    """

    name = "gtfs-rt"

    def __init__(
        self,
        url: str,
        schedule: Gtfs,
        clock: Clock,
        period: timedelta,
        session: requests.Session,
        cancelled: Event,
        grace: timedelta = timedelta(seconds=5),
        failed: Callable[[str], None] | None = None,
        polls: int | None = None,
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self._url = url
        self._realtime = Realtime(schedule)
        self._clock = clock
        self._period = period
        self._session = session
        self._cancelled = cancelled
        self._grace = grace
        self._failed = failed
        self._polls = polls

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """One batch per successful poll; for ever, or to `until`, or so many.

        Raises:
            InputError: every poll failed.
        """
        reason: str | None = None
        succeeded = False
        following = self._clock.now() if start is None else start
        for _ in itertools.count() if self._polls is None else range(self._polls):
            if not self._clock.wait_until(following, self._cancelled):
                break
            now = self._clock.now()
            if until is not None and now >= until:
                break
            following = max(following + self._period, now)
            try:
                content = fetched(self._session, self._url)
                quads = self._realtime.quads(self._realtime.parse(content, self._url))
            except InputError as error:
                reason = str(error)
                if self._failed is not None:
                    self._failed(reason)
                continue
            succeeded = True
            yield FeedBatch(now, following + self._grace, quads)
        if reason is not None and not succeeded:
            raise InputError("every poll failed", self._url)


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_MESSAGE:
            raise InputError(f"more than {MAX_MESSAGE >> 20} MB", str(file))
        return file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from error
