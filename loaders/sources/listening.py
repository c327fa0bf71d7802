"""A feed of JSON documents posted to a local port, but not from web pages."""

import hmac
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self

from waitress.server import create_server

from annotations.terms import Quad
from annotations.urls import is_called, is_loopback
from loaders.errors import InputError, SettingError
from loaders.fetching import host_parts
from loaders.sources.base import Feed, FeedBatch
from loaders.sources.polling import LiveFeed, Read

_THREADS = 8
"""So many documents may wait until they are told; others wait in their connections."""
_LOOK_SECONDS = 0.2
_MOST = 1 << 24
"""Bytes of a document."""
_LAST_SECONDS = 5.0
"""How long the last answers may take to leave."""
_MICROSECOND = timedelta(microseconds=1)
_JSON = re.compile(r"application/([\w.-]+\+)?json")


class Listener(Feed):
    """Receive documents by ``POST``; each is a batch, acknowledged when published.

    Raises:
        SettingError: no such URL, or a network address without a token.
    """

    live = True

    def __init__(
        self,
        name: str,
        url: str,
        read: Read,
        holds: timedelta,
        token: str | None,
        live: LiveFeed,
        ready: Callable[[str], None] = lambda _: None,
    ) -> None:
        if holds <= timedelta(0):
            raise SettingError("how long facts hold must be positive")
        self.name = name
        self._host, self._port = _address(url)
        if token is None and not is_loopback(self._host):
            raise SettingError(f"{url}: anybody could send facts: give a --receiver-token")
        self._read = read
        self._holds = holds
        self._token = token
        self._live = live
        self._ready = ready
        self._arrived: SimpleQueue[_Document] = SimpleQueue()
        self._ended = threading.Event()

    def batches(self, start: datetime | None, until: datetime | None) -> Iterator[FeedBatch]:
        """Yield one batch per document from `start` to `until`."""
        count = 0
        last = self._live.clock.now() if start is None else max(start, self._live.clock.now())
        self._ended.clear()
        with _Server(self._host, self._port, self._answer) as server:
            self._ready(server.url)
            try:
                while not self._live.cancelled.is_set() and count != self._live.most:
                    if until is not None and self._live.clock.now() >= until:
                        return
                    try:
                        document = self._arrived.get(timeout=_LOOK_SECONDS)
                    except Empty:
                        continue
                    now = self._live.clock.now()
                    if start is None or now >= start:
                        last = max(now, last + _MICROSECOND)
                        refused = document.refused.append
                        yield FeedBatch(last, last + self._holds, document.quads, refused=refused)
                        count += 1
                    document.published.set()
            finally:
                self._ended.set()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        def answer(status: str, text: str = "") -> Iterable[bytes]:
            body = text.encode()
            headers = [("Content-Type", "text/plain; charset=utf-8")]
            start_response(status, [*headers, ("Content-Length", str(len(body)))])
            return [body]

        if environ["REQUEST_METHOD"] != "POST":
            return answer("405 Method Not Allowed", "documents are posted here\n")
        # A browser that has a page post here says so, and cannot leave it out.
        if "HTTP_ORIGIN" in environ:
            return answer("403 Forbidden", "web pages may not post here\n")
        if self._token is not None:
            given = environ.get("HTTP_AUTHORIZATION", "")
            expected = f"Bearer {self._token}"
            if not hmac.compare_digest(given.encode("latin-1"), expected.encode()):
                return answer("401 Unauthorized", "not the token of this listener\n")
        elif not is_called(environ.get("HTTP_HOST", "localhost"), (self._host.lower(),)):
            return answer(
                "421 Misdirected Request",
                "this listener has another name: post to its address, or give it a token\n",
            )
        media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        if not _JSON.fullmatch(media_type):
            return answer(
                "415 Unsupported Media Type",
                f"JSON is posted here, as application/json or application/ld+json, "
                f"not {media_type[:100] or 'without a Content-Type'}\n",
            )
        try:
            quads = tuple(dict.fromkeys(self._read(environ["wsgi.input"].read(), "a document")))
        except InputError as error:
            self._live.failed(f"refused: {error}")
            return answer("400 Bad Request", f"{error}\n")
        document = _Document(quads, threading.Event(), [])
        if quads:
            self._arrived.put(document)
            while not document.published.wait(_LOOK_SECONDS):
                if self._ended.is_set():
                    return answer("503 Service Unavailable", "nobody listens any more\n")
        for reason in document.refused:
            self._live.failed(f"refused: {reason}")
            return answer("422 Unprocessable Content", f"{reason}\n")
        return answer("204 No Content")


class _Document(NamedTuple):
    quads: tuple[Quad, ...]
    published: threading.Event
    refused: list[str]


class _Server:
    def __init__(self, host: str, port: int, application: Any) -> None:
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._connections: dict[int, Any] = {}
        shown = f"[{host}]" if ":" in host else host
        try:
            self._server: Any = create_server(
                application, self._connections, host=host, port=port, threads=_THREADS,
                max_request_body_size=_MOST, clear_untrusted_proxy_headers=True, ident=None,
            )  # fmt: skip
        except OSError as error:
            raise InputError(
                f"nobody can listen there ({error.strerror or error})", f"listen://{shown}:{port}"
            ) from None
        self.url = f"http://{shown}:{self._server.effective_port}/"
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        end = time.monotonic() + _LAST_SECONDS
        while self._answers() and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS / 10)
        # The loop ends when it has no connections. Nothing is closed before all threads have ended:
        # each wakes the loop through a descriptor, whose number may be another file's by then.
        self._server.trigger.pull_trigger(self._connections.clear)
        self._thread.join(_LAST_SECONDS)
        self._server.task_dispatcher.shutdown()
        for channel in list(self._server.active_channels.values()):
            channel.handle_close()
        self._server.close()

    def _answers(self) -> bool:
        channels = list(self._server.active_channels.values())
        return any(channel.requests or channel.total_outbufs_len for channel in channels)


def _address(url: str) -> tuple[str, int]:
    parts = host_parts(url)
    whole = parts is not None and parts.scheme == "listen" and parts.path in ("", "/")
    if parts is None or not whole or parts.port is None:
        raise SettingError(f"not an address to listen at (listen://HOST:PORT): {url!r}")
    return parts.hostname or "", parts.port
