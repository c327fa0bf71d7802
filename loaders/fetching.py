"""Fetch documents of a feed, within bounds of time and size."""

import threading
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import requests

from annotations.urls import origin_of
from loaders.errors import InputError
from tpf_server.store.static.http_files import reason_of

MAX_MESSAGE = 1 << 26
"""Bytes of a message, after decompression."""
_SECONDS = 30.0
_CHUNK = 1 << 16
_LONGEST_WISH = timedelta(minutes=5)
"""So long a pause may a server wish for."""
_PAGES = 10_000
"""More than anything has that is asked for as a whole."""


class AnswerError(InputError):
    """An answer that is not successful."""

    def __init__(self, answer: requests.Response, url: str) -> None:
        self.headers = answer.headers
        super().__init__(f"HTTP {answer.status_code} {answer.reason}", url)


class Fetched(NamedTuple):
    """A successful answer, from `url` after redirects; `following` is the URL of the next page.

    `conditions`: the headers that ask for newer content only.
    """

    url: str
    content: bytes
    following: str | None
    status: int
    headers: Mapping[str, str]
    conditions: Mapping[str, str]


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta:
    """Return the pause that an answer asks for, up to five minutes."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        # However many digits there are.
        return timedelta(seconds=min(float(value), _LONGEST_WISH.total_seconds()))
    try:
        instant = parsedate_to_datetime(value)
        delay = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return timedelta(0)
    return min(max(delay, timedelta(0)), _LONGEST_WISH)


def fetched_pages(session: requests.Session, url: str) -> Iterator[bytes]:
    """Yield the bodies of an answer and its following pages.

    Raises:
        InputError: as `checked_response`; or the pages lead elsewhere or do not end.
    """
    page: str | None = url
    met: set[str] = set()
    while page is not None:
        if page in met or len(met) == _PAGES:
            raise InputError("its pages have no end", url)
        met.add(page)
        answer = checked_response(session, page)
        yield answer.content
        page = answer.following
        if page is not None and origin_of(page) != origin_of(url):
            raise InputError(f"its next page is elsewhere: {page}", url)


def checked_response(
    session: requests.Session,
    url: str,
    headers: Mapping[str, str] | None = None,
    accepted: Collection[int] = (),
) -> Fetched:
    """Return an answer that is successful, or has an accepted status.

    It is abandoned after `_SECONDS`: socket timeouts do not stop a slow trickle.

    Raises:
        InputError: no answer in time, an error, or more than `MAX_MESSAGE` bytes.
    """
    answers: SimpleQueue[Fetched | InputError] = SimpleQueue()
    late = threading.Event()
    arguments = (session, url, headers or {}, accepted, answers, late)
    asking = threading.Thread(target=_ask, args=arguments, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    if asking.is_alive():
        late.set()
        raise InputError(f"no complete answer in {_SECONDS:g} s", url)
    answer = answers.get()
    if isinstance(answer, InputError):
        raise answer
    return answer


def _ask(
    session: requests.Session,
    url: str,
    headers: Mapping[str, str],
    accepted: Collection[int],
    answers: "SimpleQueue[Fetched | InputError]",
    late: threading.Event,
) -> None:
    try:
        with session.get(url, headers=dict(headers), timeout=_SECONDS, stream=True) as answer:
            if answer.status_code >= 300 and answer.status_code not in accepted:
                raise AnswerError(answer, url)
            content = bytearray()
            # As it comes: who is late is not waited for until there is so much.
            while chunk := answer.raw.read1(_CHUNK, decode_content=True):
                content += chunk
                if late.is_set():
                    return
                if len(content) > MAX_MESSAGE:
                    raise InputError(f"more than {MAX_MESSAGE >> 20} MB", url)
            at, page = answer.url or url, _next_page(answer, url)
            status, headers = answer.status_code, answer.headers
            answers.put(Fetched(at, bytes(content), page, status, headers, _conditions(answer)))
    except InputError as error:
        answers.put(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits to be told
        answers.put(InputError(reason_of(error), url))


def _conditions(answer: requests.Response) -> dict[str, str]:
    # A redirect may lead elsewhere next time, where the same tag means other content.
    told = {} if answer.history else answer.headers
    names = {"If-None-Match": "ETag", "If-Modified-Since": "Last-Modified"}
    return {name: told[tag] for name, tag in names.items() if tag in told}


def _next_page(answer: requests.Response, url: str) -> str | None:
    following = answer.links.get("next", {}).get("url")
    try:
        return None if following is None else urljoin(answer.url or url, following)
    except ValueError:
        raise InputError(f"its next page is at no URL: {following}", url) from None


def host_parts(url: str) -> SplitResult | None:
    """Split a URL with a host and no invalid port; else ``None``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    return parts if host else None
