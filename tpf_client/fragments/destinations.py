r"""Decide where requests may go, for every URL from a server.

URLs that parsers could read in different ways are refused: ``http://inside:1\@server/`` is
``server`` to one and ``inside`` to another.
"""

import ipaddress
import re
import socket
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from tpf_client.errors import OriginError, SourceError, check_argument

IN_BROWSER: Final = sys.platform == "emscripten"
"""Whether the browser sends the requests, and decides itself which addresses they may go to."""
_KEPT: Final = "!#$%&'()*+,/:;=?@[]~"
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?:[/?#][^\x00-\x20\\\x7f]*)?",
    re.IGNORECASE | re.ASCII,
)
_USER = re.compile(r"(?<=://)[^/?#\\]*@")
THIS_MACHINE: Final = "localhost"
"""The host of origins on this machine."""
_LOOPBACKS: Final = (THIS_MACHINE, "127.0.0.1", "[::1]")
_LONGEST = 2**18
"""Characters of a URL at most: a literal in a query may be long."""
_SHORT: Final = 2**10
_RDF_FILE: Final = re.compile(
    r"(?:[^/.:]+/)*[^/:]+\.(?:nt|nq|ttl|trig|jsonld|rdf|owl)(?:\.gz)?", re.IGNORECASE
)
"""What looks like a file rather than a host."""
_KNOWN: Final = 2**10
"""Of so many URLs of so many characters it is remembered where they lead."""


class Origin(NamedTuple):
    """Host and port of a URL; ``None``: the default port.

    http and https on default ports are one origin, for sites behind TLS proxies; so are localhost,
    127.0.0.1 and [::1] on one port.
    """

    host: str
    port: int | None


def origin(url: str) -> Origin:
    """Return the origin of a user's URL, in any script."""
    return _origin(url) if len(url) > _SHORT else _known_origin(url)


def _origin(url: str) -> Origin:
    plain = _USER.sub("", url, count=1)
    if not plain.isascii():
        plain = _in_ascii(plain)
    return _exactly(plain)


def _in_ascii(url: str) -> str:
    try:
        import requests
    except ImportError:
        # The browser's way.
        with suppress(ValueError):
            parts = urlsplit(url)
            host = parts.netloc.encode("idna").decode("ascii")
            return parts._replace(
                netloc=host, path=quote(parts.path, _KEPT), query=quote(parts.query, _KEPT)
            ).geturl()
        return url
    with suppress(requests.RequestException, ValueError):
        return requests.Request("GET", url).prepare().url or ""
    return url


_known_origin: Final = lru_cache(_KNOWN)(_origin)


def _exactly(url: str) -> Origin:
    match = _URL.fullmatch(url) if len(url) <= _LONGEST else None
    if match is None:
        raise SourceError(_shown(url), "not a URL that can be asked")
    port = None if match["port"] is None else int(match["port"])
    if port is not None and not 0 < port < 65536:
        raise SourceError(_shown(url), f"not a URL that can be asked: port {port}")
    default = _PORTS[match["scheme"].lower()]
    host = match["host"].lower()
    return Origin(THIS_MACHINE if host in _LOOPBACKS else host, None if port == default else port)


def is_file(text: str) -> bool:
    """True for the path of a file rather than a URL."""
    try:
        return "://" not in text and Path(text).is_file()
    except (OSError, ValueError):  # a query is too long for a path
        return False


def not_a_url(text: str) -> str | None:
    """Return the message that a text is no URL of HTTP, with a suggestion; ``None``: it is one."""
    if text.lower().startswith(("http://", "https://")):
        return None
    message = f"not an http(s) URL: {_shown(text)}"
    with suppress(OSError, ValueError):
        if Path(text).exists():
            return f"{message} (tpf-server {text} serves it at one)"
    is_path = text.startswith((".", "/", "~")) and not text.startswith("//")
    if is_path or _RDF_FILE.fullmatch(text):
        return f"{message}, and no file"
    meant = f"http://{text.lstrip('/')}"
    likely = any(mark in text for mark in ".:/") and _URL.fullmatch(meant)
    return message + (f" (try {_shown(meant)})" if likely else "")


def _shown(url: str) -> str:
    return url if len(url) <= 300 else f"{url[:300]}…"


class Destinations:
    """The allowed destinations of a client: its datasets' origins, and `allowed` ones."""

    def __init__(
        self,
        urls: Iterable[str] = (),
        allowed: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        check_argument("allowed_origins", allowed, Iterable)
        self._allowed = frozenset(origin(url) for url in allowed)
        self._urls = tuple(urls)
        self._headers = dict(headers or {})
        self._cached = lru_cache(_KNOWN)(self._led)
        self._named: set[Origin] = set()

    def headers(self, url: str) -> Mapping[str, str]:
        """The user's headers of a request to this URL; none without TLS for a dataset with it."""
        plain = url.lower().startswith("http:")
        for each in self._urls if self._headers else ():
            if origin(each) == origin(url) and not (plain and each.lower().startswith("https:")):
                return self._headers
        return {}

    def led(self, by: str, url: str, at: str | None = None) -> str:
        """Resolve a URL of a redirect, link or form in a document."""
        short = max(len(by), len(url)) <= _SHORT
        return self._cached(by, url, at) if short else self._led(by, url, at)

    def _led(self, by: str, url: str, at: str | None) -> str:
        try:
            target = url if _URL.fullmatch(url) else urljoin(at or by, url)
            its_origin = _exactly(target)
        except (SourceError, ValueError):
            raise OriginError(by, f"leads to what is no URL: {_shown(url)!r}") from None
        if its_origin != origin(by) and its_origin not in self._allowed:
            base = "/".join(target.split("/", 3)[:3])
            raise OriginError(
                by,
                f"leads to another origin: {_shown(target)} (if the server calls itself {base}/, "
                "use that URL, or start it with --base-url; else allow it: --allow-link, "
                "allowed_origins)",
            )
        return target

    def template(self, by: str, template: str) -> str:
        """Resolve a URI template that leads there whatever its values."""
        fixed, brace, rest = template.partition("{")
        target = self.led(by, fixed)
        # Path and query go on where they are; what stands before them would be a part of the host.
        ends = re.search(r"[/?#]", target.partition("://")[2])
        if brace and ends is None and not rest.startswith(("?", "/")):
            raise OriginError(by, f"leads to what is no URL: {_shown(template)!r}")
        return target + brace + rest

    def named(self, url: str) -> str:
        """Check a URL in data: of a service that a variable stands for."""
        if not IN_BROWSER and origin(url) not in self._allowed:
            self._named.add(origin(url))
            if is_private(url):
                self._check_private(url)
        return url

    def check_address(self, url: str, address: str) -> None:
        """Check where a URL has led: its name may have changed."""
        if self._named and origin(url) in self._named and not _is_global(address):
            self._check_private(url)

    def _check_private(self, url: str) -> None:
        if not any(map(is_private, self._urls)):
            raise OriginError(url, "data lead to a private address")


def with_credentials(
    headers: Mapping[str, str] | None, auth: tuple[str, str] | None
) -> dict[str, str]:
    """Headers with those of a user name and a password (RFC 7617)."""
    check_argument("headers", headers, Mapping)
    check_argument("auth", auth, tuple)
    given = dict(headers or {})
    for name, value in given.items():
        check_argument("the name of a header", name, str)
        check_argument(f"the header {name}", value, str)
    if auth is not None:
        if len(auth) != 2 or not all(isinstance(each, str) for each in auth):
            raise TypeError("auth: a user name and a password, both str")
        given["Authorization"] = f"Basic {b64encode(':'.join(auth).encode()).decode()}"
    return given


def is_private(url: str) -> bool:
    """True for a host that the internet does not reach."""
    try:
        host = origin(url).host.strip("[]")
        results = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (SourceError, OSError, UnicodeError):
        return False
    return not all(_is_global(str(address[0])) for *_, address in results)


def _is_global(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def without_query(url: str) -> str:
    """A URL without query and fragment."""
    return url.partition("#")[0].partition("?")[0].rstrip("/")
