"""Connections that are kept, and how a URL is asked.

Where the environment wants a proxy or has credentials, or a URL is written in a way that has to be
put right first, `requests` is asked; otherwise that and all it brings along is not even imported.
"""

import os
import re
import select
import socket
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tpf_client.fragments.codings import ACCEPTED
from tpf_client.fragments.exchange import Asker, Exchange, OpenResponse
from tpf_client.fragments.http_connection import HttpConnection

if TYPE_CHECKING:
    from ssl import SSLContext

    import requests

_ESCAPE: Final = r"%(?!2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)[0-9A-F]{2}"
"""An escape of what needs one, in capitals: others are written anew."""
_STEP: Final = rf"/(?!\.{{1,2}}(?:[/?#]|\Z))(?:[\w.~!$&'()*+,;=:@-]++|{_ESCAPE})*+"
_PLAIN: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9][a-z0-9.-]*+|\[[0-9a-f:.]++\])(?::(?P<port>\d{1,5}))?"
    rf"(?P<path>(?:{_STEP})*+)(?P<query>\?(?:[\w.~!$&'()*+,;=:@/?-]++|{_ESCAPE})++)?(?:\#.*)?",
    re.ASCII | re.DOTALL,
)
"""A URL that is sent as it is written, because nothing in it is to be put right."""
_PORTS: Final = {"http": 80, "https": 443}
_SETTINGS: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "netrc"})
_CERTIFICATES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CREDENTIALS: Final = ("~/.netrc", "~/_netrc")
_ORIGINS: Final = 16
"""Origins to which connections are kept."""
_OWN: Final = f"User-Agent: tpf-client\r\nAccept-Encoding: {ACCEPTED}\r\n"
_FIELD: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def asker_for(session: "requests.Session | None", size: int) -> Asker:
    """What asks: through a session of somebody, or over kept connections, so many per origin."""
    if session is None:
        return KeptConnections(size)
    from tpf_client.fragments.library_requests import LibraryRequests, bounded_session

    return LibraryRequests(bounded_session(session))


class _Place(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int


class KeptConnections:
    """Asks by GET, over connections that are kept; keeps no cookies. Thread-safe.

    What the environment says of proxies, credentials (``netrc``) and certificates counts as in
    `requests`; it is looked at once.

    Args:
        size: connections per origin that are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._idle: dict[_Place, list[HttpConnection]] = {}
        self._tls: SSLContext | None = None
        self._asks_library = _has_settings()
        self._library: Asker | None = None
        self._closed = False

    def ask(self, url: str, headers: Mapping[str, str], exchange: Exchange) -> OpenResponse:
        """The response to a GET request, as it begins to come; redirects are not followed.

        Raises:
            BadUrlError: the URL is none that can be asked.
            OSError: there is no response.
            ValueError: there is none of HTTP, or it is too long.
        """
        found = None if self._asks_library else _PLAIN.fullmatch(url)
        port = 0 if found is None else int(found["port"] or _PORTS[found["scheme"]])
        if found is None or not 0 < port < 2**16:
            return self._by_library().ask(url, headers, exchange)
        place = _Place(found["scheme"], found["host"], port)
        request = _written(place, (found["path"] or "/") + (found["query"] or ""), headers)

        def leave(connection: HttpConnection) -> None:
            self._put_back(place, connection)

        while True:
            kept = self._take(place)
            connection = kept or self._opened(place, exchange)
            try:
                return connection.ask(request, exchange, leave)
            except ConnectionError:
                connection.close()
                # A server may let go of a connection at the moment at which it is used again.
                if kept is None or connection.answered or exchange.ended:
                    raise
            except BaseException:
                connection.close()
                raise

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            self._closed = True
            connections = [each for kept in self._idle.values() for each in kept]
            self._idle.clear()
        for each in connections:
            each.close()
        if self._library is not None:
            self._library.close()

    def _by_library(self) -> Asker:
        from tpf_client.fragments.library_requests import LibraryRequests, pooled_session

        with self._lock:
            if self._library is None:
                self._library = LibraryRequests(pooled_session(self._size), owned=True)
            return self._library

    def _take(self, place: _Place) -> HttpConnection | None:
        while True:
            with self._lock:
                kept = self._idle.get(place)
                if not kept:
                    return None
                connection = kept.pop()
            if not _has_news(connection.sock):
                return connection
            # It was closed, or says something that nobody asked for.
            connection.close()

    def _put_back(self, place: _Place, connection: HttpConnection) -> None:
        dropped: list[HttpConnection] = []
        with self._lock:
            if connection.usable and not self._closed:
                # The place that was used last is the last one.
                kept = self._idle[place] = self._idle.pop(place, [])
                (kept if len(kept) < self._size else dropped).append(connection)
                if len(self._idle) > _ORIGINS:
                    dropped += self._idle.pop(next(iter(self._idle)))
            else:
                dropped.append(connection)
        for each in dropped:
            each.close()

    def _opened(self, place: _Place, exchange: Exchange) -> HttpConnection:
        connect, _ = exchange.timeouts
        sock = socket.create_connection((place.host.strip("[]"), place.port), connect)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if place.scheme == "https":
                sock = self._context().wrap_socket(sock, server_hostname=place.host.strip("[]"))
        except BaseException:
            sock.close()
            raise
        return HttpConnection(sock)

    def _context(self) -> "SSLContext":
        with self._lock:
            if self._tls is None:
                self._tls = _trusting()
            return self._tls


def _trusting() -> "SSLContext":
    """Checks certificates as `requests` does.

    Raises:
        OSError: there are none to check them by.
    """
    import ssl

    from certifi import where

    said = next((os.environ[name] for name in _CERTIFICATES if os.environ.get(name)), where())
    is_folder = os.path.isdir(said)
    context = ssl.create_default_context(
        cafile=None if is_folder else said, capath=said if is_folder else None
    )
    context.set_alpn_protocols(["http/1.1"])
    return context


def _has_settings() -> bool:
    """Whether the environment wants something that `requests` knows how to do."""
    if any(value and name.lower() in _SETTINGS for name, value in os.environ.items()):
        return True
    if any(os.path.exists(os.path.expanduser(name)) for name in _CREDENTIALS):
        return True
    if sys.platform in ("darwin", "win32"):
        from urllib.request import getproxies

        return bool(getproxies())
    return False


def _written(place: _Place, target: str, headers: Mapping[str, str]) -> bytes:
    """A request as it is sent.

    Raises:
        ValueError: a field cannot be sent.
    """
    port = "" if place.port == _PORTS[place.scheme] else f":{place.port}"
    lines = [f"GET {target} HTTP/1.1\r\nHost: {place.host}{port}\r\n{_OWN}"]
    for name, value in headers.items():
        if not _FIELD.fullmatch(value):
            raise ValueError(f"the field {name} cannot be sent")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")


def _has_news(sock: socket.socket) -> bool:
    """Whether something came, or the end, while nobody asked."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])
