"""Requests through `requests`, which hand over no more than is wanted, and no longer."""

import io
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from http.client import HTTPException, HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final, NamedTuple, Self

import requests
import urllib3
from cachetools import LRUCache
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ClosedPoolError, NewConnectionError

from tpf_client.fragments.exchange import (
    MOST_HEAD,
    Asker,
    BadUrlError,
    Exchange,
    TooLongError,
    cause,
)
from tpf_client.fragments.regular_heads import regular_head

_PIECE: Final = 2**16
_ROUTES: Final = 64
"""Origins that are remembered with the way to them."""
_TARGETS: Final = 1_024
"""URLs of which it is remembered what a request to them says."""

running: ContextVar[Exchange | None] = ContextVar("running", default=None)
"""The exchange of which the next response is a part; ``None``: nobody minds."""


class _Bounded(io.RawIOBase):
    """What comes through a socket, as far as its exchange allows."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._sock = sock
        self._exchange = exchange
        self.head: int | None = MOST_HEAD
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
        this: Any = self
        head = None
        if self._bounded is not None and this._method == "GET" and this.headers is None:
            head = regular_head(self.fp.peek(1))
        if head is None:
            super().begin()
        else:
            self.fp.read(head.size)
            this.version, this.code, this.status, this.reason = 11, 200, 200, head.reason
            this.headers = this.msg = head.fields
            this.chunked, this.will_close, this.length = False, False, head.length
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


class SessionResponse:
    """A response of somebody's session; see `tpf_client.fragments.exchange.OpenResponse`.

    Args:
        raw: the response.
    """

    def __init__(self, raw: requests.Response) -> None:
        self._raw = raw
        self.status = raw.status_code
        self.headers: Mapping[str, str] = raw.headers

    def pieces(self, *, eager: bool = False) -> Iterator[bytes]:
        """The body, decompressed; see `tpf_client.fragments.exchange.OpenResponse.pieces`.

        Raises:
            OSError: it does not come.
            ValueError: it is not what it says that it is, or too long.
        """
        with _plain_errors():
            yield from self._raw.iter_content(_size(self.headers, eager=eager))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()


class SessionRequests:
    """Asks through a session of somebody, who closes it; see `tpf_client.fragments.exchange.Asker`.

    Args:
        session: the session. Its connections from now on heed the limits; where it has transports
            of its own kind, or a proxy, they are as they are.
    """

    def __init__(self, session: requests.Session) -> None:
        self._session = session
        for adapter in session.adapters.values():
            manager = getattr(adapter, "poolmanager", None)
            if isinstance(manager, PoolManager):
                _bound(manager)

    def ask(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> SessionResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            BadUrlError: the URL is none that can be asked.
            OSError: there is no response.
            ValueError: there is none of HTTP, or it is too long.
        """
        with _part_of(exchange), _plain_errors():
            return SessionResponse(
                self._session.get(
                    url, headers=dict(headers), timeout=exchange.timeouts, stream=True,
                    allow_redirects=False,
                )
            )  # fmt: skip

    def close(self) -> None:
        """Nothing is its own."""


class PooledResponse:
    """A response over a connection of a pool; see `tpf_client.fragments.exchange.OpenResponse`.

    Args:
        raw: the response.
    """

    def __init__(self, raw: BaseHTTPResponse) -> None:
        self._raw = raw
        self._whole = False
        self.status = raw.status
        self.headers: Mapping[str, str] = raw.headers

    def pieces(self, *, eager: bool = False) -> Iterator[bytes]:
        """The body, decompressed; see `tpf_client.fragments.exchange.OpenResponse.pieces`.

        Raises:
            OSError: it does not come.
            ValueError: it is not what it says that it is, or too long.
        """
        with _plain_errors():
            yield from self._raw.stream(_size(self.headers, eager=eager), decode_content=True)
        self._whole = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._whole:
            self._raw.close()
        self._raw.release_conn()


class _Route(NamedTuple):
    """How an origin is reached: its connections, and what every request to it says."""

    pool: HTTPConnectionPool
    headers: Mapping[str, str]


class PooledRequests:
    """Asks an origin the same way each time; see `tpf_client.fragments.exchange.Asker`.

    What `requests` finds out for each request (proxies and credentials of the environment, how TLS
    is checked, the form of the URL) takes longer than the request; here it is found out once.

    Args:
        size: connections per host that are kept.
    """

    def __init__(self, size: int) -> None:
        self._session = pooled_session(size)
        self._routes: LRUCache[str, _Route] = LRUCache(_ROUTES)
        self._targets: LRUCache[str, tuple[str, str]] = LRUCache(_TARGETS)
        self._found = threading.Lock()

    def ask(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> PooledResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            BadUrlError: the URL is none that can be asked.
            OSError: there is no response.
            ValueError: there is none of HTTP, or it is too long.
        """
        with _part_of(exchange), _plain_errors():
            for _ in range(2):
                route, target = self._route(url)
                with suppress(ClosedPoolError):
                    return PooledResponse(
                        route.pool.urlopen(
                            "GET", target, headers={**route.headers, **headers},
                            timeout=Timeout(*exchange.timeouts), retries=False, redirect=False,
                            assert_same_host=False, preload_content=False, decode_content=False,
                        )
                    )  # fmt: skip
                self._forget()
        raise ConnectionError("the connections are closed")

    def close(self) -> None:
        """Let go of all connections."""
        self._forget()
        self._session.close()

    def _forget(self) -> None:
        with self._found:
            self._routes.clear()

    def _route(self, url: str) -> tuple[_Route, str]:
        with self._found:
            known = self._targets.get(url)
            route = None if known is None else self._routes.get(known[0])
            if known is not None and route is not None:
                return route, known[1]
        session = self._session
        prepared = session.prepare_request(requests.Request("GET", url))
        address = prepared.url or url
        settings = session.merge_environment_settings(address, {}, True, None, None)
        adapter = session.get_adapter(address)
        assert isinstance(adapter, HTTPAdapter)
        pool: Any = adapter.get_connection_with_tls_context(
            prepared, settings["verify"], settings["proxies"], settings["cert"]
        )
        adapter.cert_verify(pool, address, settings["verify"], settings["cert"])  # type: ignore[no-untyped-call]
        target = adapter.request_url(prepared, settings["proxies"])
        route = _Route(pool, dict(prepared.headers))
        where = "/".join(address.split("/", 3)[:3])
        with self._found:
            self._routes[where] = route
            self._targets[url] = where, target
        return route, target


def asker_for(session: requests.Session | None, size: int) -> Asker:
    """What asks: through a session of somebody, or over kept connections, so many per host."""
    return PooledRequests(size) if session is None else SessionRequests(session)


def _size(headers: Mapping[str, str], *, eager: bool) -> int | None:
    """Of how many bytes at most a piece of a body is; ``None``: as it comes."""
    if not eager:
        return _PIECE
    return None if headers.get("Transfer-Encoding", "").lower() == "chunked" else 1


@contextmanager
def _part_of(exchange: Exchange) -> Iterator[None]:
    """The responses that begin meanwhile are a part of an exchange."""
    token = running.set(exchange)
    try:
        yield
    finally:
        running.reset(token)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise errors of libraries as those of Python that they are."""
    try:
        yield
    except NewConnectionError as error:
        # One of its bases says that time was up, which need not be so.
        raise OSError(cause(error)) from error
    except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
        raise TimeoutError("timed out") from error
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
        raise BadUrlError(f"not a URL that can be asked: {cause(error)}") from error
    except requests.exceptions.MissingSchema as error:
        raise BadUrlError("not an absolute URL") from error
    except (urllib3.exceptions.HTTPError, HTTPException) as error:
        raise OSError(cause(error)) from error


def pooled_session(size: int) -> requests.Session:
    """A session with that many connections per host, which keeps no cookies."""
    session = requests.Session()
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    adapter = _Adapter(pool_connections=16, pool_maxsize=size)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session
