"""A feed at a URL that is asked again and again."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from threading import Event
from typing import Final, TypeAlias

import requests

from annotations.clock import Clock
from annotations.terms import Quad
from loaders.errors import InputError, SettingError
from loaders.fetching import fetched, fetched_pages
from loaders.sources.base import FeedBatch

_GRACE: Final = timedelta(seconds=5)
"""How long a poll holds beyond the next one, which takes some time to arrive."""
Read: TypeAlias = Callable[[bytes, str], Iterable[Quad]]
"""What an answer says; it gets the body, and the URL for messages, and may raise `InputError`."""


class Poller:
    """A live feed; to be played with the original instants.

    A poll that fails says nothing, so that what was said before it ends when it was to end.

    Args:
        name: of the feed.
        url: of what is polled.
        read: reads an answer.
        clock: to wait on.
        period: time between two polls.
        session: the HTTP session.
        cancelled: ends the polling.
        failed: told of every poll that fails.
        polls: how often to ask; ``None``: until it is cancelled.
        paged: whether the pages that an answer links to belong to it.

    Raises:
        SettingError: the period is not positive.
    """

    def __init__(
        self,
        name: str,
        url: str,
        read: Read,
        clock: Clock,
        period: timedelta,
        session: requests.Session,
        cancelled: Event,
        failed: Callable[[str], None] | None = None,
        polls: int | None = None,
        paged: bool = False,
    ) -> None:
        if period <= timedelta(0):
            raise SettingError("the period of a feed must be positive")
        self.name = name
        self._url = url
        self._read = read
        self._clock = clock
        self._period = period
        self._session = session
        self._cancelled = cancelled
        self._failed = failed
        self._polls = polls
        self._paged = paged

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
                # What is said twice is one fact.
                quads = tuple(dict.fromkeys(self._said()))
            except InputError as error:
                reason = str(error)
                if self._failed is not None:
                    self._failed(reason)
                continue
            succeeded = True
            yield FeedBatch(now, following + _GRACE, quads)
        if reason is not None and not succeeded:
            raise InputError("every poll failed", self._url)

    def _said(self) -> Iterator[Quad]:
        if self._paged:
            for content in fetched_pages(self._session, self._url):
                yield from self._read(content, self._url)
        else:
            yield from self._read(fetched(self._session, self._url), self._url)
