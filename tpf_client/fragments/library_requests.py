"""Requests through `requests`, which hand over no more than is wanted, and no longer.

They are for sessions that somebody gives us, for proxies and credentials of the environment, and
for URLs that are to be put right. Imported where that is so.
"""

import io
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPException, HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final, Self

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError

from tpf_client.fragments.exchange import MOST_HEAD, BadUrlError, Exchange, TooLongError, cause

_PIECE: Final = 2**16

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


class LibraryResponse:
    """A response of `requests`; see `tpf_client.fragments.exchange.OpenResponse`.

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
        size: int | None = _PIECE
        if eager:
            chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
            size = None if chunked else 1
        with _plain_errors():
            yield from self._raw.iter_content(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()


class LibraryRequests:
    """Asks through a session of `requests`; see `tpf_client.fragments.exchange.Asker`.

    Args:
        session: the session.
        owned: whether it is closed with this.
    """

    def __init__(self, session: requests.Session, *, owned: bool = False) -> None:
        self._session = session
        self._owned = owned

    def ask(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> LibraryResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            BadUrlError: the URL is none that can be asked.
            OSError: there is no response.
            ValueError: there is none of HTTP, or it is too long.
        """
        token = running.set(exchange)
        try:
            with _plain_errors():
                return LibraryResponse(
                    self._session.get(
                        url, headers=dict(headers), timeout=exchange.timeouts, stream=True,
                        allow_redirects=False,
                    )
                )  # fmt: skip
        finally:
            running.reset(token)

    def close(self) -> None:
        """Let go of all connections, if they are its own."""
        if self._owned:
            self._session.close()


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


def bounded_session(session: requests.Session) -> requests.Session:
    """A session of others, whose connections from now on heed the limits as well.

    Where it has transports of its own kind, or a proxy, they are as they are.
    """
    for adapter in session.adapters.values():
        manager = getattr(adapter, "poolmanager", None)
        if isinstance(manager, PoolManager):
            _bound(manager)
    return session
