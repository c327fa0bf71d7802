"""Recorded messages as a feed: each is what one poll said, and holds until the next one."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from annotations.terms import Quad
from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE
from loaders.sources.base import FeedBatch, FeedSpan


class MessageFormat(Protocol):
    """How messages are read, be they recorded or fetched."""

    name: str
    suffix: str
    """Ends the names of recorded messages."""

    def read(self, content: bytes, place: str) -> Iterable[Quad]:
        """What a message says.

        Raises:
            InputError: it is no such message.
        """

    def instant(self, content: bytes, place: str) -> datetime:
        """When a message was made.

        Raises:
            InputError: it is no such message, or does not say.
        """


class RecordedMessages:
    """Recorded messages: a file, or a directory.

    Args:
        path: the file or directory.
        messages: how they are read.
        period: how long the last message holds.

    Raises:
        InputError: there is no message, or one is malformed.
        SettingError: the period is not positive.
    """

    def __init__(
        self,
        path: str | Path,
        messages: MessageFormat,
        period: timedelta = timedelta(seconds=30),
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self.name = messages.name
        self._messages = messages
        path = Path(path)
        files = sorted(path.rglob(f"*{messages.suffix}")) if path.is_dir() else [path]
        polls: dict[datetime, Path] = {}
        for file in files:
            # Two polls with one timestamp are the same message.
            polls[messages.instant(_content(file), str(file))] = file
        if not polls:
            raise InputError(f"holds no messages (*{messages.suffix})", str(path))
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
            quads = self._messages.read(_content(file), str(file))
            yield FeedBatch(at, end, tuple(dict.fromkeys(quads)))


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_MESSAGE:
            raise InputError(f"more than {MAX_MESSAGE >> 20} MB", str(file))
        return file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from error
