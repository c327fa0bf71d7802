"""Recorded messages as a feed: each is what one poll said, and holds until the next one."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Protocol

from annotations.instants import shifted
from annotations.terms import Quad
from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE
from loaders.places import InputPlace, input_place, path_parts, size_at
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
        path: the file or directory, or its URL.
        messages: how they are read.
        period: how long the last message holds.

    Raises:
        InputError: there is no message, or one is malformed.
        SettingError: the period is not positive.
    """

    def __init__(
        self,
        path: str | InputPlace,
        messages: MessageFormat,
        period: timedelta = timedelta(seconds=30),
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self.name = messages.name
        self._messages = messages
        place = input_place(path)
        files: Iterable[InputPlace] = [place]
        if place.is_dir():
            files = sorted(place.rglob(f"*{messages.suffix}"), key=path_parts)
        polls: dict[datetime, InputPlace] = {}
        for file in files:
            # Two polls with one timestamp are the same message.
            polls[messages.instant(_content(file), str(file))] = file
        if not polls:
            raise InputError(f"holds no messages (*{messages.suffix})", str(place))
        instants = sorted(polls)
        ends = [*instants[1:], shifted(instants[-1], period)]
        self._polls = [(at, end, polls[at]) for at, end in zip(instants, ends, strict=True)]

    def _selected(
        self, start: datetime | None, until: datetime | None
    ) -> list[tuple[datetime, datetime, InputPlace]]:
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


def _content(file: InputPlace) -> bytes:
    try:
        if size_at(file) > MAX_MESSAGE:
            raise InputError(f"more than {MAX_MESSAGE >> 20} MB", str(file))
        return file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), str(file)) from error
