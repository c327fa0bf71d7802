"""Pages over HTTP: merged and cached by freshness, whoever sends the requests."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from cachetools import LRUCache

from annotations.clock import Clock
from annotations.instants import shifted
from annotations.namespaces import DEFAULT_VOCABULARY, Vocabulary
from tpf_client.errors import ClosedError, PageError, ParseError, check_argument
from tpf_client.fragments.destinations import Destinations, Origin, is_file, origin
from tpf_client.fragments.documentation import documented_at
from tpf_client.fragments.form import Form
from tpf_client.fragments.freshness import (
    age,
    from_cache,
    lifetime,
    made_before,
    read_http_date,
)
from tpf_client.fragments.page import Page, PageMetadata
from tpf_client.fragments.page_reader import ACCEPTED_FORMATS, PageReader, essence
from tpf_client.fragments.responses import Limits, Response

if TYPE_CHECKING:
    from tpf_client.fragments.files import Files

# Pages kept for reuse, bounded in bytes.

_OVERHEAD = 5
"""A parsed page takes about this many times the bytes of its body."""


class PageCache:
    """The pages read last, stale ones too, for their entity tags. Thread-safe.

    `capacity` is in bytes, estimated from the bodies.
    """

    def __init__(self, capacity: int) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._pages: LRUCache[str, Page] = LRUCache(max(capacity, 1), getsizeof=_weight)

    def get(self, url: str) -> Page | None:
        """Return the page of this URL, fresh or stale."""
        with self._lock:
            return self._pages.get(url)

    def put(self, page: Page) -> None:
        """Keep a page, in place of the older one of its URL."""
        with self._lock:
            if _weight(page) <= self._capacity:
                self._pages[page.url] = page
            else:
                self._pages.pop(page.url, None)


def _weight(page: Page) -> int:
    return 1024 + _OVERHEAD * page.size


# The clock of a server, as far as its responses tell.
#
# A ``Date`` field has a resolution of one second, so one response bounds the offset between the
# two clocks by a second and its round trip; the bounds of several responses are intersected.
# Bounds grow with time, because clocks drift. ``Cache-Control: no-cache`` asks for the age of the
# page in milliseconds (``Server-Timing``), and so for the exact instant.

_SECOND = timedelta(seconds=1)
_DRIFT = 2e-4
_ZERO = timedelta(0)
_EXACT = timedelta(seconds=20)
"""For so long the drift from an exact instant is less than most round trips take."""


class ServerClock:
    """Bounds of the offset of a server's clock from ours. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._low: timedelta | None = None
        self._high = _ZERO
        self._updated: datetime | None = None
        self._asked: datetime | None = None

    def asks(self) -> bool:
        """True if the next request shall ask for the exact instant; false for the ones after it."""
        with self._lock:
            now = self._clock.now()
            if self._asked is not None and abs(now - self._asked) < _EXACT:
                return False
            self._asked = now
            return True

    def observe_date(
        self, date: datetime, sent: datetime, received: datetime, made: datetime | None = None
    ) -> None:
        """Learn from the ``Date`` of a response between `sent` and `received` (ours).

        Its page was made at `made` or later.
        """
        since = date if made is None or made - date >= _SECOND else max(made, date)
        self._observe(since - received, date - sent + _SECOND)

    def observe_instant(self, instant: datetime, sent: datetime, received: datetime) -> None:
        """Learn the server's exact instant between `sent` and `received` (ours)."""
        self._observe(instant - received, instant - sent)

    def _observe(self, low: timedelta, high: timedelta) -> None:
        with self._lock:
            now = self._clock.now()
            if self._low is not None and self._updated is not None:
                slack = abs(now - self._updated) * _DRIFT
                old_low, old_high = self._low - slack, self._high + slack
                if old_low <= high and low <= old_high:
                    low, high = max(low, old_low), min(high, old_high)
                else:
                    # Somebody set a clock: only what we just saw counts.
                    self._asked = None
            self._low, self._high, self._updated = low, high, now

    @property
    def synchronized(self) -> bool:
        return self._low is not None

    def now(self) -> datetime:
        """Return the instant that the server's clock has surely reached.

        The earliest one, so that no fact ends for us that the server still shows.
        """
        with self._lock:
            return shifted(self._clock.now(), _ZERO if self._low is None else self._low)

    def local(self, instant: datetime) -> datetime:
        """Return our instant at which the server's clock has surely reached `instant`."""
        with self._lock:
            return shifted(instant, _ZERO if self._low is None else -self._low)

    def bounded(self, date: datetime, sent: datetime) -> datetime:
        """Estimate when the server answered: within the second of its ``Date``."""
        with self._lock:
            offset = _ZERO if self._low is None else self._low
            latest = shifted(date, _SECOND - timedelta(microseconds=1))
            return min(max(date, shifted(sent, offset)), latest)


_GROWTH = 8
"""How many times the bytes of its body the data of a page may take."""


@dataclass(slots=True)
class Statistics:
    """Counts of requests so far; they only grow."""

    requests: int = 0
    retries: int = 0
    bytes: int = 0
    cache_hits: int = 0
    not_modified: int = 0
    merged: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page.

    Args:
        at: the instant, on the server's clock, at which it must hold; ``None``: now.
        not_before: a cached page must be read at this instant or later.
        bare: all of it is data, without metadata, as endpoints answer.
    """

    url: str
    at: datetime | None = None
    not_before: datetime | None = None
    bare: bool = False


FetchOutcome: TypeAlias = Page | BaseException
Done: TypeAlias = Callable[[FetchOutcome], None]


@dataclass(slots=True)
class InFlight:
    """A request under way, and who waits for it."""

    request: Request
    waiting: list[tuple[Done, threading.Event | None]]
    work: Statistics | None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def over(self) -> bool:
        """True if nobody waits for it any more."""
        return self.cancelled.is_set() or not any(
            cancelled is None or not cancelled.is_set() for _, cancelled in tuple(self.waiting)
        )


def with_files(
    urls: Iterable[str | Path], clock: Clock, vocabulary: Vocabulary
) -> "tuple[tuple[str, ...], Files | None]":
    """Return the URLs of datasets, of which some may be RDF files, and these files."""
    named = [str(url) if isinstance(url, Path) else url for url in urls]
    paths = [url for url in named if isinstance(url, str) and is_file(url)]
    if not paths:
        return tuple(named), None
    from tpf_client.fragments.files import Files

    files = Files(paths, clock, vocabulary)
    return tuple([files.urls.get(url, url) for url in named]), files


class FetchOptions(TypedDict, total=False):
    """The options of a `Fetcher` beside its clock."""

    parallelism: int
    cache_bytes: int
    limits: Limits | None
    destinations: Destinations | None
    vocabulary: Vocabulary
    files: "Files | None"


class Fetcher:
    """Fetch pages, by requests that a subclass sends. Thread-safe; one per client.

    `parallelism` is per host; `cache_bytes` is the memory for pages; `files` are datasets, too.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        parallelism: int = 8,
        cache_bytes: int = 64 * 2**20,
        limits: Limits | None = None,
        destinations: Destinations | None = None,
        vocabulary: Vocabulary = DEFAULT_VOCABULARY,
        files: "Files | None" = None,
    ) -> None:
        for name, value in (("parallelism", parallelism), ("cache_bytes", cache_bytes)):
            check_argument(name, value, int)
            if value < 0:
                raise ValueError(f"{name}: 0 or more, not {value}")
        check_argument("limits", limits, Limits)
        self.parallelism = parallelism
        self.statistics = Statistics()
        self.clock = clock
        self._files = files
        self.destinations = destinations or Destinations()
        limits = self.limits = limits or Limits()
        self._reader = PageReader(vocabulary, _GROWTH * limits.max_page_bytes)
        self._cache = PageCache(cache_bytes)
        self._lock = threading.Lock()
        self._clocks: dict[Origin, ServerClock] = {}
        self._in_flight: dict[str, InFlight] = {}
        self._closed = False

    def server_clock(self, url: str) -> ServerClock:
        where = origin(url)
        with self._lock:
            if where not in self._clocks:
                self._clocks[where] = ServerClock(self.clock)
            return self._clocks[where]

    def submit(
        self,
        request: Request,
        done: Done,
        cancelled: threading.Event | None = None,
        work: Statistics | None = None,
    ) -> None:
        """Fetch a page and call `done` with it or the error, in any thread; not after `cancelled`.

        A request under way is shared. `work` counts, too.
        """
        kept = self._kept(request, work)
        if kept is not None:
            done(kept)
            return
        if self._closed:
            done(ClosedError(f"{request.url}: the client is closed"))
            return
        with self._lock:
            under_way = self._in_flight.get(request.url)
            if under_way is not None and _serves(under_way, request):
                under_way.waiting.append((done, cancelled))
                self._add(work, merged=1)
                return
            entry = InFlight(request, [(done, cancelled)], work)
            self._in_flight[request.url] = entry
        self._begin(entry)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            for entry in self._in_flight.values():
                entry.cancelled.set()

    def _begin(self, entry: InFlight) -> None:
        raise NotImplementedError

    def _kept(self, request: Request, work: Statistics | None = None) -> Page | None:
        if self._closed:
            return None
        if (
            self._files is not None
            and (page := self._files.page(request.url, request.at)) is not None
        ):
            self._count(work, requests=1)
            return page
        page = self._cache.get(request.url)
        if page is None:
            return None
        if request.not_before is not None and page.evaluated_at < request.not_before:
            return None
        at = request.at or self.server_clock(request.url).now()
        if page.holds_until <= at and page.evaluated_at < at:
            return None
        with self._lock:
            self._add(work, cache_hits=1)
        return page

    def _deliver(self, entry: InFlight, answer: "FetchOutcome") -> None:
        with self._lock:
            self._forget(entry)
            waiting, entry.waiting = entry.waiting, []
        for done, cancelled in waiting:
            if cancelled is None or not cancelled.is_set():
                done(answer)

    def _forget(self, entry: InFlight) -> None:
        if self._in_flight.get(entry.request.url) is entry:
            del self._in_flight[entry.request.url]

    def _asked(self, request: Request) -> tuple[Page | None, dict[str, str]]:
        kept = self._cache.get(request.url)
        headers = {"Accept": ACCEPTED_FORMATS}
        if kept is not None and kept.media_type:
            headers["Accept"] = f"{kept.media_type},*/*;q=0.1"
        if kept is not None and kept.etag:
            headers["If-None-Match"] = kept.etag
        if self.server_clock(request.url).asks():
            headers["Cache-Control"] = "no-cache"
        elif _stale_by_label(kept, request):
            # Labels tell that the page is outdated although HTTP calls it fresh: caches on the way
            # shall ask the server, too.
            headers["Cache-Control"] = "max-age=0"
        return kept, headers

    def _taken(
        self, entry: InFlight, kept: Page | None, response: Response, over: Callable[[], bool]
    ) -> Page:
        if response.status == HTTPStatus.NOT_MODIFIED:
            self._count(entry.work, not_modified=1)
        page = self._page(entry.request, response, kept, over)
        self._cache.put(page)
        return page

    def _page(
        self,
        request: Request,
        response: Response,
        kept: Page | None,
        over: Callable[[], bool],
    ) -> Page:
        date = read_http_date(response.headers.get("Date"))
        clock = self.server_clock(request.url)
        stored = "Age" in response.headers and age(response.headers).total_seconds() > 0
        if date is not None and not stored:
            clock.observe_date(date, response.sent, response.received)
        fallback = clock.bounded(date, response.sent) if date is not None else response.sent
        if date is not None and stored:
            fallback = date
        # Whoever could make two bodies with one hash could as well send what it likes.
        digest = hash(response.body)
        if kept is not None and (
            response.status == HTTPStatus.NOT_MODIFIED or digest == kept.digest
        ):
            shown = _shown(kept.metadata.evaluated_at, response, clock, fallback)
            evaluated_at = max(kept.evaluated_at, fallback, shown)
            return replace(
                kept,
                evaluated_at=evaluated_at,
                fresh_until=shifted(fallback, lifetime(response.headers)),
                etag=_tag(response.headers) or kept.etag,
                cached=from_cache(response.headers),
            )
        content_type = response.headers.get("Content-Type", "")
        try:
            content = self._reader.read(
                response.body,
                content_type,
                request.url,
                bare=request.bare,
                over=over,
            )
        except (ParseError, PageError) as error:
            error.described_at(self._documentation(response, request.url))
            raise
        metadata = self._checked(content.metadata, request.url)
        documentation = None if metadata.forms else self._documentation(response, request.url)
        evaluated_at = _shown(metadata.evaluated_at, response, clock, fallback)
        base = fallback if stored else max(evaluated_at, fallback)
        return Page(
            url=request.url,
            facts=content.facts,
            metadata=metadata,
            evaluated_at=evaluated_at,
            fresh_until=shifted(base, lifetime(response.headers)),
            etag=_tag(response.headers),
            media_type=_media_type(content_type),
            size=len(response.body),
            warnings=content.warnings,
            documentation=documentation,
            digest=digest,
            cached=from_cache(response.headers),
        )

    def _checked(self, metadata: PageMetadata, url: str) -> PageMetadata:
        led = self.destinations.led
        return replace(
            metadata,
            forms=tuple(self._led_by(form, url) for form in metadata.forms),
            next_page=None if metadata.next_page is None else led(url, metadata.next_page),
            plain_view=None if metadata.plain_view is None else led(url, metadata.plain_view),
            changes=None if metadata.changes is None else led(url, metadata.changes),
        )

    def _led_by(self, form: Form, url: str) -> Form:
        template = self.destinations.template(url, form.template)
        return form if template == form.template else replace(form, template=template)

    def _documentation(self, response: Response, url: str) -> str | None:
        link = documented_at(response.headers)
        return None if link is None else self.destinations.led(url, link)

    def _count(self, work: Statistics | None, **done: int) -> None:
        with self._lock:
            self._add(work, **done)

    def _add(self, work: Statistics | None, **done: int) -> None:
        for each in (self.statistics, work):
            if each is not None:
                for name, count in done.items():
                    setattr(each, name, getattr(each, name) + count)


def _shown(
    made: datetime | None, response: Response, clock: ServerClock, fallback: datetime
) -> datetime:
    """Return the instant that a page shows which was made at `made`, and learn from it."""
    headers = response.headers
    # A page that is pinned to an older instant says nothing about the present.
    if made is None or "Memento-Datetime" in headers or from_cache(headers):
        return made or fallback
    date, since = read_http_date(headers.get("Date")), made_before(headers)
    if since is not None:
        instant = shifted(made, since)
        if date is not None and abs(instant - date) < _SECOND:
            clock.observe_instant(instant, response.sent, response.received)
        return instant
    if date is None:
        return made
    # A server sends a page again while it is right.
    clock.observe_date(date, response.sent, response.received, made)
    return max(made, clock.bounded(date, response.sent))


def _tag(headers: Mapping[str, str]) -> str | None:
    tag = headers.get("ETag")
    return tag if tag and len(tag) < 1_000 and tag.isascii() and tag.isprintable() else None


def _media_type(content_type: str) -> str:
    name = essence(content_type)
    return name if name in ACCEPTED_FORMATS else ""


def _serves(running: InFlight, request: Request) -> bool:
    if running.over():
        # It is being ended.
        return False
    if request.not_before is None:
        return True
    not_before = running.request.not_before
    return not_before is not None and not_before >= request.not_before


def _stale_by_label(kept: Page | None, request: Request) -> bool:
    return (
        kept is not None
        and request.not_before is not None
        and kept.evaluated_at < request.not_before
        and kept.fresh_until > request.not_before
    )
