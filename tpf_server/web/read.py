"""``GET`` and ``HEAD`` of a page of a fragment: from a WSGI environment to status, fields and body.

Called by the route of a page, and by the middleware before Flask.
"""

import time
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import brotli
from werkzeug.http import parse_accept_header

from tpf_server.errors import RequestError, ServerError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import (
    PinnedRequest,
    entity_tag,
    evaluate,
    kept_until,
    last_modified,
    matching_tag,
    max_age,
    pin,
)
from tpf_server.fragments.request import read_request
from tpf_server.fragments.writers.base import LONGEST_ACCEPT, Chosen, Negotiator
from tpf_server.store.failures import store_failures
from tpf_server.web.html import CONTENT_SECURITY_POLICY
from tpf_server.web.memento import at_accepted_datetime, memento_fields
from tpf_server.web.metrics import Metrics
from tpf_server.web.responses import (
    COMMON,
    base_of,
    documentation_link,
    http_date,
    http_instant,
    http_second,
)
from tpf_server.web.site import SentPage, Site

# gzip and br for clients that accept them (RFC 9110, section 12.5.3).

# Below this many bytes the header fields outweigh what is saved.
_SMALLEST = 860
_GZIP_LEVEL, _BROTLI_QUALITY = 5, 4
_GZIP_WINDOW = 31


def chosen_encoding(accept: str) -> str | None:
    """Return the preferred encoding of an ``Accept-Encoding`` header; ``None``: none."""
    return _chosen(accept) if 0 < len(accept) <= LONGEST_ACCEPT else None


@lru_cache(maxsize=64)
def _chosen(accept: str) -> str | None:
    accepted = parse_accept_header(accept)
    best = max(("br", "gzip"), key=lambda name: accepted[name])
    explicit = accepted[best] > 0 and accepted[best] >= (accepted["identity"] or 0)
    return best if explicit else None


def compressed(body: bytes, encoding: str) -> bytes | None:
    """Return the body in an encoding; ``None`` where that is not worth it."""
    if len(body) < _SMALLEST:
        return None
    packed: bytes
    if encoding == "br":
        packed = brotli.compress(body, quality=_BROTLI_QUALITY)
    else:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
        packed = packer.compress(body) + packer.flush()
    return packed


_VARY_STATIC = ("Vary", "Accept, Accept-Encoding")
_VARY_LIVE = ("Vary", "Accept, Accept-Encoding, Accept-Datetime")
# RFC 5861: what holds no label may be a little old while a cache asks again.
_STALE = ", stale-while-revalidate=60"
_LINKED = 0.5
"""Of the time for which snapshots are kept, what a page that is sent again may have used up."""
_SHOWN = 0.25
"""Seconds; readers of HTML go by the time that it says it was made at."""
_POLICY = ("Content-Security-Policy", CONTENT_SECURITY_POLICY)


class Reply(NamedTuple):
    """An answer of WSGI: status line, header fields, body."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def find_endpoint(
    site: Site, negotiator: Negotiator, base: str, path: str
) -> tuple[Endpoint, Chosen | None] | None:
    """Return the endpoint at a path, and the format of its suffix; ``None``: there is none."""
    endpoints = site.endpoints(base)
    endpoint = endpoints.get(path)
    if endpoint is not None:
        return endpoint, None
    stem, _, suffix = path.rpartition(".")
    endpoint, chosen = endpoints.get(stem), negotiator.by_suffix(suffix)
    return None if endpoint is None or chosen is None else (endpoint, chosen)


def read_fragment(
    site: Site,
    negotiator: Negotiator,
    endpoint: Endpoint,
    chosen: Chosen | None,
    environ: WSGIEnvironment,
    url: str,
) -> Reply:
    """Answer with a page, or with ``304`` where the client has it.

    Raises:
        NotAcceptableError: the client accepts none of the formats.
        RequestError: a malformed URL or header field.
        SnapshotExpired: the URL pins a snapshot that is no longer retained.
    """
    if chosen is None:
        chosen = negotiator.by_accept(environ.get("HTTP_ACCEPT"))
    now = site.clock.now()
    asked = read_request(
        url,
        _query_string(environ),
        endpoint.reader,
        endpoint.page_size,
        endpoint.max_page_size,
        endpoint.max_values,
    )
    accepted = environ.get("HTTP_ACCEPT_DATETIME")
    if accepted is not None:
        asked = at_accepted_datetime(asked, endpoint, accepted)
    query = pin(endpoint, asked, now)
    encoding = None
    if site.settings.compress and "HTTP_ACCEPT_ENCODING" in environ:
        encoding = chosen_encoding(environ["HTTP_ACCEPT_ENCODING"])
    tag = entity_tag(query, f"{chosen.media_type} {encoding}")
    # A pinned page says of itself that it is old, and few ask for it.
    current = query.snapshot if query.request.snapshot is None else None
    made = None
    if current is not None:
        oldest = endpoint.dataset.settings.retention * _LINKED
        if chosen.media_type == "text/html":
            oldest = min(oldest, _SHOWN)
        made = site.pages.get(tag, current.instant, oldest)
    known = _unchanged(environ, query, tag)
    stale = _STALE if query.snapshot is None else ""
    headers = [
        *_lifetime(int(now.timestamp()), max_age(query), stale),
        ("ETag", known or (tag if made is None else made.tag)),
        ("Link", documentation_link(endpoint.base)),
        *COMMON,
    ]
    if query.snapshot is None:
        headers.append(_VARY_STATIC)
    else:
        headers.append(_VARY_LIVE)
        headers += memento_fields(query)
        kept = kept_until(query)
        if kept is not None:
            headers.append(("X-Accel-Expires", f"@{kept}"))
    modified = last_modified(query)
    if modified is not None:
        headers.append(("Last-Modified", http_date(modified)))
    if known is not None:
        return Reply("304 Not Modified", headers, b"")
    # A 304 is about the client's copy, which may be of another instant.
    if made is not None and current is not None and made.instant < current.instant:
        headers.append(("Server-Timing", f"made;dur={(current.instant - made.instant) / 1000}"))
    headers.append(("Content-Type", f"{chosen.media_type}; charset=utf-8"))
    if chosen.media_type == "text/html":
        headers.append(_POLICY)
    if environ["REQUEST_METHOD"] == "HEAD":
        # Nothing is said about the length: it would have to be made to be known.
        return Reply("200 OK", headers, b"")
    if made is None:
        made = _made(query, chosen, encoding, tag)
        if current is not None:
            site.pages.put(made)
    if made.encoding is not None:
        headers.append(("Content-Encoding", made.encoding))
    headers.append(("Content-Length", str(len(made.body))))
    return Reply("200 OK", headers, made.body)


@lru_cache(maxsize=64)
def _lifetime(second: int, age: int, stale: str) -> tuple[tuple[str, str], ...]:
    """Return the fields that state the freshness of an answer of this second."""
    return (
        ("Date", http_second(second)),
        ("Cache-Control", f"public, max-age={age}{stale}"),
        ("Expires", http_second(second + age)),
    )


def _made(query: PinnedRequest, chosen: Chosen, encoding: str | None, tag: str) -> SentPage:
    body = chosen.writer.write(evaluate(query)).encode()
    instant = 0 if query.snapshot is None else query.snapshot.instant
    packed = None if encoding is None else compressed(body, encoding)
    if packed is None:
        return SentPage(tag, instant, None, body)
    return SentPage(tag, instant, encoding, packed)


def _query_string(environ: WSGIEnvironment) -> str:
    raw: str = environ.get("QUERY_STRING", "")
    if raw.isascii():
        return raw
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError("the query string is not UTF-8") from None


def _unchanged(environ: WSGIEnvironment, query: PinnedRequest, tag: str) -> str | None:
    """Return the tag of the client's copy, if that is still fresh (RFC 9110, section 13.2.2)."""
    if "HTTP_IF_NONE_MATCH" in environ:
        return matching_tag(environ["HTTP_IF_NONE_MATCH"], tag)
    # A date cannot tell that a label has ended, so it counts for static datasets only.
    if query.snapshot is not None or "HTTP_IF_MODIFIED_SINCE" not in environ:
        return None
    since, modified = http_instant(environ["HTTP_IF_MODIFIED_SINCE"]), last_modified(query)
    if since is None or modified is None or modified.replace(microsecond=0) > since:
        return None
    return tag


# What stands before Flask: pages of fragments, which are most of the traffic.
#
# A page takes less time than Flask takes to route, wrap and answer a request. Here the same
# function that the route of a page calls is called as plain WSGI. Everything else goes on to
# Flask: other resources, other methods, and pages that cannot be given, with the error that says
# why. Without it (setting ``direct_pages``) every answer is the same, byte for byte.

FAILURE: Final = "tpf_server.failure"
"""Where the environment of a request holds the error that kept it from being answered here."""


class PageMiddleware:
    """A WSGI application that answers ``GET`` and ``HEAD`` of pages, before another one."""

    def __init__(
        self, rest: WSGIApplication, site: Site, negotiator: Negotiator, metrics: Metrics
    ) -> None:
        self._rest = rest
        self._site = site
        # Only what a proxy says can make it another one for each request.
        self._base = "" if site.settings.trust_forwarded else site.settings.base
        self._negotiator = negotiator
        self._metrics = metrics
        self._failures: tuple[type[Exception], ...] = (ServerError, *store_failures())

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        method = environ["REQUEST_METHOD"]
        if method not in ("GET", "HEAD"):
            return self._rest(environ, start_response)
        started = time.perf_counter()
        base = self._base or base_of(environ, self._site.settings)
        path = environ["PATH_INFO"][1:]
        found = find_endpoint(self._site, self._negotiator, base, path)
        if found is None:
            return self._rest(environ, start_response)
        try:
            status, headers, body = read_fragment(
                self._site, self._negotiator, *found, environ, base + path
            )
        except self._failures as error:
            environ[FAILURE] = error
            return self._rest(environ, start_response)
        start_response(status, headers)
        self._metrics.count(method, status[:3], time.perf_counter() - started)
        # A list is sent in one go; another iterable would be a task per chunk, and a thread for it.
        return [body]
