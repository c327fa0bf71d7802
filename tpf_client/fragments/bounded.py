"""Connections that hand over no more than is wanted, and no longer.

The time limits of `requests` are those between two bytes: a server that sends one byte per second,
or "100 Continue" again and again, could hold up a request for ever. Here a response has a deadline,
a number of bytes, and somebody who can end it.
"""

import io
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from http.client import HTTPException, HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from time import monotonic
from typing import Any, Final, NamedTuple, Self

import requests
from cachetools import LRUCache
from requests.adapters import HTTPAdapter
from urllib3 import (
    BaseHTTPResponse,
    HTTPConnectionPool,
    HTTPSConnectionPool,
    PoolManager,
    Timeout,
)
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ClosedPoolError

_MAX_HEAD: Final = 2**18
"""Bytes of the head of a response at most."""
_ROUTES: Final = 64
"""Origins that a session remembers the way to."""
_TARGETS: Final = 1_024
"""URLs of which it remembers what a request to them says."""


class TooLongError(HTTPException):
    """A response with more bytes than are wanted."""


class Exchange:
    """What a request may take, with all its redirects; can be ended by another thread.

    Args:
        seconds: how long it may last.
        pause: how long nothing may come, in seconds.
        size: how many bytes may come, as they are sent.
    """

    def __init__(self, seconds: float, pause: float, size: int) -> None:
        self._deadline = monotonic() + seconds
        self._pause = pause
        self._left = size
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether its time is up."""
        return monotonic() >= self._deadline

    def attach(self, sock: socket.socket) -> None:
        """A response comes through this socket."""
        with self._lock:
            self._sockets.append(sock)
        if self._ended:
            self.end()

    def end(self) -> None:
        """Let it fail at once."""
        with self._lock:
            self._ended = True
            for sock in self._sockets:
                # Not that of TLS, which would take away from the other thread what it reads with.
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def before_read(self, sock: socket.socket) -> None:
        """Wait no longer than is left.

        Raises:
            TimeoutError: nothing is left.
            TooLongError: enough has come.
        """
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the response takes too long")
        if self._left <= 0:
            raise TooLongError("the response is too long")
        sock.settimeout(min(self._pause, left))

    def after_read(self, count: int) -> None:
        """Take note of what came."""
        self._left -= count


running: ContextVar[Exchange | None] = ContextVar("running", default=None)
"""The exchange of which the next response is a part; ``None``: nobody minds."""


class _Bounded(io.RawIOBase):
    """What comes through a socket, as far as its exchange allows."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._sock = sock
        self._exchange = exchange
        self.head: int | None = _MAX_HEAD
        """Bytes of the head that may still come; ``None``: the body comes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._exchange.before_read(self._sock)
        if self.head is not None and self.head <= 0:
            raise TooLongError("the head of the response is too long")
        count: int | None = self._raw.readinto(buffer)
        self._exchange.after_read(count or 0)
        if self.head is not None:
            self.head -= count or 0
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        exchange = running.get()
        self._bounded: _Bounded | None = None
        if exchange is not None:
            raw = self.fp.detach()
            self._bounded = _Bounded(raw, sock, exchange)
            self.fp = io.BufferedReader(self._bounded)
            exchange.attach(sock)

    def begin(self) -> None:
        super().begin()
        if self._bounded is not None:
            self._bounded.head = None


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


_POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _SecurePool}


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        _bound(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **options: Any) -> PoolManager:
        return _bound(super().proxy_manager_for(*args, **options))


def _bound(manager: PoolManager) -> PoolManager:
    manager.pool_classes_by_scheme = dict(_POOLS)
    return manager


class _Route(NamedTuple):
    """How an origin is reached: its connections, and what every request to it says."""

    pool: HTTPConnectionPool
    headers: Mapping[str, str]


class ComingResponse:
    """A response whose body is still to be read; lets go of its connection when it is left.

    Args:
        raw: the response.
    """

    def __init__(self, raw: BaseHTTPResponse) -> None:
        self._raw = raw
        self._whole = False
        self.status_code = raw.status
        self.headers: Mapping[str, str] = raw.headers

    def iter_content(self, size: int) -> Iterator[bytes]:
        """The body, decompressed, in pieces of that many bytes at most."""
        yield from self._raw.stream(size, decode_content=True)
        self._whole = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._whole:
            self._raw.close()
        self._raw.release_conn()


def pooled_session(size: int) -> requests.Session:
    """A session with that many connections per host, which keeps no cookies."""
    return _pool(requests.Session(), size)


def _pool(session: requests.Session, size: int) -> requests.Session:
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    adapter = _Adapter(pool_connections=16, pool_maxsize=size)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class PooledSession(requests.Session):
    """A session that keeps no cookies and asks an origin the same way each time.

    What `requests` finds out for each request (proxies and credentials of the environment, how TLS
    is checked, the form of the URL) takes longer than the request; here it is found out once.

    Args:
        size: connections per host.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        _pool(self, size)
        self._routes: LRUCache[str, _Route] = LRUCache(_ROUTES)
        self._targets: LRUCache[str, tuple[str, str]] = LRUCache(_TARGETS)
        self._found = threading.Lock()

    def ask(
        self, url: str, headers: Mapping[str, str], timeout: tuple[float, float]
    ) -> ComingResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            requests.RequestException: the URL is none that can be asked.
            urllib3.exceptions.HTTPError: there is no response.
        """
        for _ in range(2):
            route, target = self._route(url)
            with suppress(ClosedPoolError):
                return ComingResponse(
                    route.pool.urlopen(
                        "GET", target, headers={**route.headers, **headers},
                        timeout=Timeout(*timeout), retries=False, redirect=False,
                        assert_same_host=False, preload_content=False, decode_content=False,
                    )
                )  # fmt: skip
            self._forget()
        raise requests.ConnectionError(f"{url}: the connections are closed")

    def close(self) -> None:
        """Let go of all connections."""
        self._forget()
        super().close()

    def _forget(self) -> None:
        with self._found:
            self._routes.clear()

    def _route(self, url: str) -> tuple[_Route, str]:
        with self._found:
            known = self._targets.get(url)
            route = None if known is None else self._routes.get(known[0])
            if known is not None and route is not None:
                return route, known[1]
        prepared = self.prepare_request(requests.Request("GET", url))
        address = prepared.url or url
        settings = self.merge_environment_settings(address, {}, True, None, None)
        adapter = self.get_adapter(address)
        assert isinstance(adapter, HTTPAdapter)
        pool: Any = adapter.get_connection_with_tls_context(
            prepared, settings["verify"], settings["proxies"], settings["cert"]
        )
        adapter.cert_verify(pool, address, settings["verify"], settings["cert"])  # type: ignore[no-untyped-call]
        target = adapter.request_url(prepared, settings["proxies"])
        route = _Route(pool, dict(prepared.headers))
        where = _origin(address)
        with self._found:
            self._routes[where] = route
            self._targets[url] = where, target
        return route, target


def _origin(address: str) -> str:
    return "/".join(address.split("/", 3)[:3])


def bounded_session(session: requests.Session) -> requests.Session:
    """A session of others, whose connections from now on heed the limits as well.

    Where it has transports of its own kind, or a proxy, they are as they are.
    """
    for adapter in session.adapters.values():
        manager = getattr(adapter, "poolmanager", None)
        if isinstance(manager, PoolManager):
            _bound(manager)
    return session
