"""Feeds of messages: recorded, or polled at a URL."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count
from threading import Event
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias

import requests

from annotations.clock import Clock
from annotations.terms import Quad
from loaders.errors import InputError, SettingError
from loaders.fetching import MAX_MESSAGE, AnswerError, checked_response, fetched_pages, retry_after
from loaders.places import InputPlace, content_of, input_place, names_below
from loaders.sources.base import Feed, FeedBatch, FeedSpan, ItemT, is_within, until_next

# Recorded messages as a feed: each is what one poll said, and holds until the next one.


class MessageFormat(Protocol):
    """A reader of recorded or fetched messages."""

    name: str
    suffix: str
    """Ends the names of recorded messages."""

    def read(self, content: bytes, source: str) -> Iterable[Quad]:
        """Return the statements of a message."""

    def instant(self, content: bytes, source: str) -> datetime:
        """Return when a message was made."""


class RecordedPolls(Feed, Generic[ItemT]):
    """Items by poll, each until the next, the last for `last`."""

    def __init__(self, items: Mapping[datetime, ItemT], last: timedelta) -> None:
        in_order = ((at, items[at]) for at in sorted(items))
        self._polls = list(until_next(in_order, last))

    def selected(
        self, start: datetime | None, until: datetime | None
    ) -> list[tuple[datetime, datetime, ItemT]]:
        """Return begin, end and item of polls from `start` to before `until`."""
        return [poll for poll in self._polls if is_within(poll[0], start, until)]

    def span(self, start: datetime | None, until: datetime | None) -> FeedSpan | None:
        """Return first poll, last end, and number."""
        polls = self.selected(start, until)
        return FeedSpan(polls[0][0], polls[-1][1], len(polls)) if polls else None


class RecordedMessages(RecordedPolls[InputPlace]):
    """Recorded messages, each until the next."""

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
        recorded_at = input_place(path)
        files: Iterable[InputPlace] = [recorded_at]
        if recorded_at.is_dir():
            names = names_below(recorded_at)
            files = [recorded_at / name for name in names if name.endswith(messages.suffix)]
        polls: dict[datetime, InputPlace] = {}
        for file in files:
            # Two polls with one timestamp are the same message.
            polls[messages.instant(content_of(file, MAX_MESSAGE), str(file))] = file
        if not polls:
            raise InputError(f"holds no messages (*{messages.suffix})", str(recorded_at))
        super().__init__(polls, period)

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        for at, end, file in self.selected(start, until):
            quads = self._messages.read(content_of(file, MAX_MESSAGE), str(file))
            yield FeedBatch(at, end, tuple(dict.fromkeys(quads)))


_FIRST_PERIOD: Final = timedelta(seconds=30)
"""Where answers tell the period, and none has come."""
_GRACE: Final = timedelta(seconds=5)
"""How long a poll holds beyond the next one, which takes some time to arrive."""
Lasting: TypeAlias = Callable[[bytes, str], timedelta]
"""How long an answer holds, by what it says itself."""
Read: TypeAlias = Callable[[bytes, str], Iterable[Quad]]
"""What an answer says; it gets the body, and the URL for messages, and may raise `InputError`."""


class LiveFeed(NamedTuple):
    """The control of a live feed; it ends after `most` polls or documents."""

    clock: Clock
    cancelled: Event
    failed: Callable[[str], None] = lambda _: None
    most: int | None = None


class Poller(Feed):
    """A polled feed, to be played with the original instants.

    A failed poll gives no batch: earlier facts end as planned. The period may be told by answers.
    """

    live = True

    def __init__(
        self,
        name: str,
        url: str,
        read: Read,
        period: timedelta | Lasting,
        session: requests.Session,
        live: LiveFeed,
        paged: bool = False,
    ) -> None:
        if isinstance(period, timedelta) and period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self.name = name
        self._url = url
        self._read = read
        self._told = None if isinstance(period, timedelta) else period
        self._period = period if isinstance(period, timedelta) else _FIRST_PERIOD
        self._session = session
        self._live = live
        self._paged = paged
        self._conditions: Mapping[str, str] = {}
        self._latest: tuple[Quad, ...] = ()

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield a batch per successful poll.

        Raises:
            InputError: every poll failed.
        """
        reason: str | None = None
        succeeded = False
        clock, cancelled, failed, most = self._live
        following = clock.now() if start is None else start
        for _ in count() if most is None else range(most):
            if not clock.wait_until(following, cancelled):
                break
            now = clock.now()
            if until is not None and now >= until:
                break
            begun = following
            following = max(begun + self._period, now)
            try:
                quads = self._statements()
            except InputError as error:
                reason = str(error)
                failed(f"a poll failed: {reason}")
                if isinstance(error, AnswerError):
                    now = clock.now()
                    following = max(following, now + retry_after(error.headers, now))
                continue
            succeeded = True
            # An answer tells the period, or takes longer.
            following = max(begun + self._period, clock.now())
            yield FeedBatch(now, following + _GRACE, quads, refused=failed)
        if reason is not None and not succeeded:
            raise InputError("every poll failed", self._url)

    def _statements(self) -> tuple[Quad, ...]:
        # After a failure all is asked for again.
        asked, self._conditions = self._conditions, {}
        conditions: Mapping[str, str] = {}
        if self._paged:
            # The tag of the first page says nothing of the others.
            pages: Iterable[bytes] = fetched_pages(self._session, self._url)
        else:
            answer = checked_response(self._session, self._url, asked, (304,) if asked else ())
            if answer.status == 304:
                self._conditions = asked
                return self._latest
            pages, conditions = [answer.content], answer.conditions
        # What is said twice is one fact.
        quads = tuple(dict.fromkeys(quad for page in pages for quad in self._said(page)))
        self._latest, self._conditions = quads if conditions else (), conditions
        return quads

    def _said(self, content: bytes) -> Iterator[Quad]:
        if self._told is not None:
            self._period = self._told(content, self._url)
        try:
            yield from self._read(content, self._url)
        except InputError as error:
            if not error.rest:
                raise
            self._live.failed(f"left out: {error}")
            yield from error.rest
