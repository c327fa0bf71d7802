"""Requests over HTTP, through `requests`: limits, redirects, retries, and typed errors.

A response has a deadline and a size, and another thread can end it.
"""

import io
import math
import re
import socket
import threading
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3
from cachetools import LRUCache
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH, select_proxy
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

from annotations.clock import Clock
from annotations.event_reader import EventReader, ServerEvent, event_headers
from annotations.wording import user_agent
from tpf_client.errors import (
    ClosedError,
    ConnectionFailedError,
    HttpError,
    PageTooLargeError,
    SourceError,
)
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.responses import PHRASES, Attempts, Limits, Response

if TYPE_CHECKING:
    from backports import zstd
else:
    try:
        from compression import zstd
    except ImportError:  # before Python 3.14
        try:
            from backports import zstd
        except ImportError:
            zstd = None

# Pages as deltas to the page before (RFC 9842): Zstandard frames, the dictionary named by SHA-256.


DELTA_CODING: Final = "dcz"
"""The encoding of a delta."""
_MAGIC: Final = b"\x5e\x2a\x4d\x18\x20\x00\x00\x00"
_WINDOW_LOG: Final = 23
"""RFC 9842, section 4: a frame needs a window of 8 MB, or of the size of its dictionary."""
_BYTES: Final = 16 * 2**20


class DeltaError(ValueError):
    """A delta that is malformed, or of another dictionary."""


class Dictionaries:
    """The texts of pages for deltas. Thread-safe.

    `most` bounds the bytes of a page, `capacity` those of all.
    """

    def __init__(self, most: int, capacity: int = _BYTES) -> None:
        self._most = most
        self._capacity = capacity
        self._lock = threading.Lock()
        self._texts: LRUCache[str, bytes] = LRUCache(capacity, getsizeof=len)

    def of(self, url: str) -> bytes | None:
        with self._lock:
            return self._texts.get(url)

    def keep(self, url: str, headers: Mapping[str, str], text: bytes) -> None:
        """Keep the text of a page, if its server can use it."""
        if zstd is None or "Use-As-Dictionary" not in headers or len(text) > self._capacity:
            return
        with self._lock:
            self._texts[url] = text

    def forget(self, url: str) -> None:
        with self._lock:
            self._texts.pop(url, None)

    def read(self, body: bytes, dictionary: bytes | None) -> bytes:
        if dictionary is None:
            raise DeltaError("a delta, although no dictionary was named")
        if body[:40] != _MAGIC + sha256(dictionary).digest():
            raise DeltaError("the delta is not of the page that was named")
        prefix = zstd.ZstdDict(dictionary, is_raw=True).as_prefix
        window = max(_WINDOW_LOG, (len(dictionary) * 5 // 4).bit_length())
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window}
        unpacker = zstd.ZstdDecompressor(zstd_dict=prefix, options=options)
        try:
            text = unpacker.decompress(body[40:], self._most + 1)
        except zstd.ZstdError as error:
            raise DeltaError(f"the delta is damaged: {error}") from None
        if len(text) > self._most or not unpacker.eof or unpacker.unused_data:
            raise DeltaError("the delta is cut off, or longer than a page may be")
        return text


def accepted(encodings: str) -> str:
    """Add deltas to an ``Accept-Encoding`` header, if they can be read here."""
    return encodings if zstd is None or encodings == "identity" else f"{encodings}, {DELTA_CODING}"


def available(dictionary: bytes) -> tuple[str, str]:
    """The header that names a dictionary."""
    return "Available-Dictionary", f":{b64encode(sha256(dictionary).digest()).decode()}:"


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_WIRE = 2**20
"""Bytes of a response that are neither its decompressed body nor that much again."""
_MOST_HEAD: Final = 2**18
"""Bytes of the head of a response at most."""
_PIECE: Final = 2**16
"""Bytes of a piece of a body at most."""
_ORIGINS: Final = 64
"""Origins to which connections stay open."""
_USUAL_URL: Final = re.compile(
    r"(https?://[A-Za-z0-9.:\[\]-]+)(/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*+)"
)
"""Origin and the rest of a URL that is sent as it is."""


class _TooLongError(ValueError):
    """A response with more bytes than are allowed."""


class Exchange:
    """The limits of one request with its redirects; another thread can end or cancel it."""

    def __init__(
        self,
        seconds: float,
        pause: float,
        size: float,
        connect: float,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._deadline = monotonic() + seconds
        self._pause = pause
        self._left = size
        self._connect = connect
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._check: Callable[[str], None] = lambda _address: None
        self.ended = False
        self.finished = False

    @property
    def over(self) -> bool:
        return monotonic() >= self._deadline

    @property
    def cancelled(self) -> bool:
        return self._cancelled is not None and self._cancelled.is_set()

    @property
    def timeouts(self) -> tuple[float, float]:
        return self._connect, self._pause

    def begin(self, check: Callable[[str], None]) -> None:
        """Begin a request to addresses that `check` does not refuse."""
        self._check = check

    def connected(self, sock: socket.socket) -> None:
        self._check(sock.getpeername()[0])

    def attach(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.append(sock)
        if self.ended:
            self.end()

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for sock in self._sockets:
                # Not that of TLS, which would take away from the other thread what it reads with.
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def finish(self) -> None:
        """Note that nothing is read any more: others may use its connection."""
        self.finished = True

    def before_read(self, sock: socket.socket) -> None:
        """Set the socket's timeout to the remaining time."""
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the response takes too long")
        if self._left <= 0:
            raise _TooLongError("the response is too long")
        wait = min(self._pause, left)
        if sock.gettimeout() != wait:
            sock.settimeout(wait)

    def after_read(self, count: int) -> None:
        self._left -= count


_running: ContextVar[Exchange | None] = ContextVar("running", default=None)
"""The exchange that the next response belongs to."""


class _Bounded(io.RawIOBase):
    """The bytes of a socket, within the limits of its exchange."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._sock = sock
        self._exchange = exchange
        self._head: int | None = _MOST_HEAD
        """Bytes of the head that may still come; ``None``: the body comes."""

    def end_head(self) -> None:
        self._head = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._exchange.before_read(self._sock)
        if self._head is not None and self._head <= 0:
            raise _TooLongError("the head of the response is too long")
        count: int | None = self._raw.readinto(buffer)
        self._exchange.after_read(count or 0)
        if self._head is not None:
            self._head -= count or 0
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        exchange = _running.get()
        self._bounded: _Bounded | None = None
        if exchange is not None:
            raw = self.fp.detach()
            self._bounded = _Bounded(raw, sock, exchange)
            self.fp = io.BufferedReader(self._bounded)
            exchange.attach(sock)

    def begin(self) -> None:
        super().begin()
        if self._bounded is not None:
            self._bounded.end_head()


class _Connection(HTTPConnection):
    response_class = _Response

    def connect(self) -> None:
        super().connect()
        exchange = _running.get()
        # A proxy finds the addresses itself.
        if exchange is not None and self.proxy is None and self.sock is not None:
            exchange.connected(self.sock)


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    def proxy_manager_for(self, *args: Any, **options: Any) -> PoolManager:
        return _bound(super().proxy_manager_for(*args, **options))


def _bound(manager: PoolManager) -> PoolManager:
    manager.pool_classes_by_scheme = dict(_POOLS)
    return manager


class _Reply(NamedTuple):
    """A response as its body begins; `stream` yields it in pieces of about so many bytes."""

    status: int
    headers: Mapping[str, str]
    stream: Callable[[int], Iterator[bytes]]


class _Route(NamedTuple):
    """How an origin is reached without a proxy: the fields of each request, and certificates."""

    headers: Mapping[str, str]
    certificates: str

    def connection(self, url: str, seconds: float) -> _Connection:
        parts = urlsplit(url)
        if parts.scheme == "http":
            return _Connection(parts.hostname or "", parts.port, timeout=seconds)
        kind = "ca_cert_dir" if Path(self.certificates).is_dir() else "ca_certs"
        options: dict[str, Any] = {kind: self.certificates}
        return _SecureConnection(parts.hostname or "", parts.port, timeout=seconds, **options)


class PooledSession(requests.Session):
    """A session with so many open connections per host, without cookies.

    `direct` asks past it where neither a proxy nor an unusual URL needs it: at half the CPU.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        # A tick's request is mostly its head: what HTTP/1.1 takes for granted is left out of it.
        encodings = str(self.headers["Accept-Encoding"]).replace("deflate, ", "")
        self.headers.clear()
        self.headers.update({"User-Agent": user_agent("tpf-client"), "Accept-Encoding": encodings})
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        adapter = _Adapter(pool_connections=16, pool_maxsize=size)
        self.mount("http://", adapter)
        self.mount("https://", adapter)
        self._size = size
        self._lock = threading.Lock()
        self._routes: dict[str, _Route | None] = {}
        self._idle: dict[str, list[_Connection]] = {}
        weakref.finalize(self, _close, self._idle)

    @contextmanager
    def direct(
        self, url: str, headers: Mapping[str, str], exchange: Exchange
    ) -> Iterator[_Reply | None]:
        """Yield the response as its body begins, or ``None`` where the session must ask."""
        match = _USUAL_URL.fullmatch(url)
        route = None if match is None or "/." in match[2] else self._route(match[1])
        if match is None or route is None:
            yield None
            return
        fields = dict(CaseInsensitiveDict({**route.headers, **headers}))
        while True:
            with self._lock:
                idle = self._idle.setdefault(match[1], [])
                connection = idle.pop() if idle else None
            reused = connection is not None
            if connection is not None and not connection.is_connected:
                # Closed; or it has bytes that would be taken for the response.
                connection.close()
                continue
            connection = connection or route.connection(match[1], exchange.timeouts[0])
            try:
                connection.request("GET", match[2], headers=fields, preload_content=False)
                response = connection.getresponse()
                break
            except BaseException as error:
                connection.close()
                # Servers close what is idle for long.
                if not (reused and isinstance(error, ConnectionError) and not exchange.ended):
                    raise
        whole = False
        try:
            # In chunks it is decoded where that is said only.
            stream = partial(response.stream, decode_content=True)
            yield _Reply(response.status, response.headers, stream)
            whole = response.closed
        finally:
            with self._lock:
                others = self._idle.get(match[1])
                if whole and others is not None and len(others) < self._size:
                    others.append(connection)
                else:
                    connection.close()

    def _route(self, address: str) -> _Route | None:
        with self._lock:
            if address not in self._routes:
                if len(self._routes) >= _ORIGINS:
                    self._routes.clear()
                    _close(self._idle)
                request = self.prepare_request(requests.Request("GET", address))
                settings = self.merge_environment_settings(address, {}, True, None, None)
                certificates = settings["verify"]
                route = None
                proxied = select_proxy(address, settings["proxies"])
                if certificates and not proxied and not settings["cert"]:
                    ours = certificates if isinstance(certificates, str) else DEFAULT_CA_BUNDLE_PATH
                    route = _Route(dict(request.headers), ours)
                self._routes[address] = route
            return self._routes[address]

    def close(self) -> None:
        super().close()
        with self._lock:
            _close(self._idle)


def _close(idle: dict[str, list[_Connection]]) -> None:
    while idle:
        for connection in idle.popitem()[1]:
            connection.close()


def _pieces(reply: _Reply, *, eager: bool = False) -> Iterator[bytes]:
    # A chunk comes as far as it goes; without chunks, so many bytes are waited for.
    chunked = reply.headers.get("Transfer-Encoding", "").lower() == "chunked"
    return reply.stream(1 if eager and not chunked else _PIECE)


class Transport:
    """Send GET requests and read the responses whole. Thread-safe, as far as the session is."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        destinations: Destinations,
        *,
        session: requests.Session | None = None,
        connections: int = 1,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._destinations = destinations
        self._own = session is None
        self._session = PooledSession(connections) if session is None else session
        self._encodings = accepted(str(self._session.headers.get("Accept-Encoding", "identity")))
        for adapter in self._session.adapters.values():
            manager = getattr(adapter, "poolmanager", None)
            if isinstance(manager, PoolManager):
                _bound(manager)
        self._dictionaries = Dictionaries(limits.max_page_bytes)
        self._attempts = Attempts(clock, limits)
        self._exchanges: set[Exchange] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for exchange in tuple(self._exchanges):
            exchange.end()
        if self._own:
            self._session.close()

    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        cancelled: threading.Event | None = None,
        *,
        on_request: Callable[[bool], None] = lambda _retry: None,
        on_bytes: Callable[[int], None] = lambda _count: None,
    ) -> Response:
        """Return the response with status 200 or 304, after retries.

        `on_request` is called before each request, with ``True`` for a retry.
        """
        tries = self._attempts.of(url)
        retry, pause = False, next(tries)
        while True:
            if pause:
                self._clock.wait(timedelta(seconds=pause), cancelled)
            if self._closed or (cancelled is not None and cancelled.is_set()):
                raise ClosedError(f"{url}: the request was cancelled")
            on_request(retry)
            answer = self._tried(url, headers, cancelled)
            if isinstance(answer, Response):
                on_bytes(len(answer.body))
            try:
                retry, pause = True, tries.send(answer)
            except StopIteration as stop:
                response: Response = stop.value
                return response

    def once(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> Response:
        """Return the response, whatever its status, to one request with its redirects."""
        with self._asking(url, exchange):
            return self._follow(url, headers, exchange)

    def exchange(self, cancelled: threading.Event | None = None) -> Exchange:
        limits = self._limits
        size = 2 * limits.max_page_bytes + _WIRE
        seconds, pause = limits.total_timeout, limits.read_timeout
        return Exchange(seconds, pause, size, limits.connect_timeout, cancelled)

    def _tried(
        self, url: str, headers: Mapping[str, str], cancelled: threading.Event | None
    ) -> Response | ConnectionFailedError:
        exchange = self.exchange(cancelled)
        try:
            return self.once(url, headers, exchange)
        except ConnectionFailedError as error:
            if exchange.over:
                # It came, too slowly: the next one would do so as well.
                raise
            return error

    def events(
        self, url: str, last: str | None, seconds: float, over: Callable[[], bool], most: int
    ) -> Iterator[ServerEvent]:
        headers = {**event_headers(last), **self._destinations.headers(url)}
        exchange = Exchange(math.inf, seconds, math.inf, self._limits.connect_timeout)
        with self._asking(url, exchange), self._reply(url, headers, exchange) as raw:
            if raw.status != HTTPStatus.OK:
                raise HttpError(url, raw.status, PHRASES.get(raw.status, ""))
            reader = EventReader(most)
            for chunk in _pieces(raw, eager=True):
                if over():
                    return
                yield from reader.feed(chunk)

    @contextmanager
    def _asking(self, url: str, exchange: Exchange) -> Iterator[None]:
        self._exchanges.add(exchange)
        try:
            yield
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise SourceError(url, f"not a URL that can be asked: {cause(error)}") from error
        except requests.exceptions.MissingSchema as error:
            raise SourceError(url, "not an absolute URL") from error
        except (OSError, ValueError, urllib3.exceptions.HTTPError, HTTPException) as error:
            reason = "timed out" if _is_timeout(error) else cause(error)
            raise ConnectionFailedError(url, reason) from error
        finally:
            exchange.finish()
            self._exchanges.discard(exchange)

    @contextmanager
    def _reply(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> Iterator[_Reply]:
        """Yield the response as its body begins; redirects are not followed."""
        exchange.begin(partial(self._destinations.check_address, url))
        token = _running.set(exchange)
        try:
            with ExitStack() as stack:
                reply = None
                if isinstance(self._session, PooledSession):
                    reply = stack.enter_context(self._session.direct(url, headers, exchange))
                if reply is None:
                    response = stack.enter_context(
                        self._session.get(
                            url, headers=dict(headers), allow_redirects=False,
                            timeout=exchange.timeouts, stream=True,
                        )
                    )  # fmt: skip
                    reply = _Reply(response.status_code, response.headers, response.iter_content)
                yield reply
        finally:
            _running.reset(token)

    def _follow(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> Response:
        target = url
        for _ in range(_MAX_REDIRECTS + 1):
            sent = self._clock.now()
            dictionary = self._dictionaries.of(target)
            asked = {**headers, **self._destinations.headers(target)}
            asked["Accept-Encoding"] = self._encodings
            if dictionary is not None:
                asked.update([available(dictionary)])
            with self._reply(target, asked, exchange) as raw:
                if raw.status in _REDIRECTS and "Location" in raw.headers:
                    target = self._destinations.led(url, raw.headers["Location"], target)
                    continue
                body = self._read(raw, url, exchange)
                if raw.status == HTTPStatus.OK:
                    if raw.headers.get("Content-Encoding") == DELTA_CODING:
                        try:
                            body = self._dictionaries.read(body, dictionary)
                        except DeltaError:
                            if dictionary is None:
                                raise
                            # Once more, for the whole page.
                            self._dictionaries.forget(target)
                            continue
                    self._dictionaries.keep(target, raw.headers, body)
                return Response(raw.status, raw.headers, body, sent, self._clock.now())
        raise SourceError(url, f"more than {_MAX_REDIRECTS} redirects")

    def _read(self, raw: _Reply, url: str, exchange: Exchange) -> bytes:
        limit = self._limits.max_page_bytes
        chunks: list[bytes] = []
        size = 0
        for chunk in _pieces(raw):
            size += len(chunk)
            if size > limit:
                raise PageTooLargeError(url, f"a body of more than {limit} bytes")
            if exchange.over:
                raise ConnectionFailedError(url, "the response takes too long")
            if exchange.cancelled:
                raise ClosedError(f"{url}: the request was cancelled")
            chunks.append(chunk)
        return b"".join(chunks)


def _is_timeout(error: BaseException) -> bool:
    # `requests` wraps a timeout during the body in its general error of connections.
    inner = error.args[0] if error.args else None
    timeouts = TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return False
    return isinstance(error, timeouts) or isinstance(inner, timeouts)


_CONNECTION: Final = re.compile(r"\b\w++\(host=[^()]{0,300}\): ")


def cause(error: BaseException) -> str:
    """Return what is at the bottom of an error of `requests`, in one line."""
    while True:
        inside = [getattr(error, "reason", None), *reversed(error.args)]
        deeper = next((each for each in inside if isinstance(each, BaseException)), None)
        if deeper is None:
            break
        error = deeper
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    # urllib3 puts the representation of its connection object in front.
    text = _CONNECTION.sub("", text.rpartition(">: ")[2] or text)
    return " ".join(text.split())[:300] or type(error).__name__
