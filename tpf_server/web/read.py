"""Answer ``GET`` and ``HEAD`` of a page of a fragment, for its route and for a middleware."""

import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tpf_server.errors import ServerError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import (
    PinnedRequest,
    content_digest,
    entity_tag,
    evaluate,
    kept_until,
    last_modified,
    matching_tag,
    max_age,
    pin,
    tag_instant,
)
from tpf_server.fragments.request import read_request
from tpf_server.fragments.writers.base import Chosen, Negotiator
from tpf_server.store.failures import store_failures
from tpf_server.web.html import CONTENT_SECURITY_POLICY
from tpf_server.web.html_writer import as_shown
from tpf_server.web.memento import at_accepted_datetime, memento_fields, memento_links
from tpf_server.web.metrics import Metrics
from tpf_server.web.page_bodies import (
    DELTA,
    Codings,
    SentPage,
    accepted_codings,
    available_dictionary,
    delta,
    dictionary_field,
    encoded,
)
from tpf_server.web.responses import (
    ANY_ORIGIN,
    COMMON,
    PUBLIC,
    base_of,
    client_of,
    documentation_link,
    http_date,
    http_instant,
    http_second,
    query_string,
)
from tpf_server.web.site import Site

_VARY_STATIC = ("Vary", "Accept, Accept-Encoding")
_VARY_LIVE = ("Vary", "Accept, Accept-Encoding, Accept-Datetime, Available-Dictionary")
# RFC 5861: what holds no label may be a little old while a cache asks again.
_STALE = ", stale-while-revalidate=60"
_REVALIDATES = re.compile(r"no-cache|max-age=0(?!\d)")
_TIMED: Final = "no-cache"
"""Asks past all caches: the answer is private, and says how old its page is."""
_LINKED = 0.5
"""Of the time for which snapshots are kept, what a page that is sent again may have used up."""
_SHOWN = 0.25
"""Seconds; readers of HTML go by the time that it says it was made at."""
_TEXT: Final = "text"
"""Among the encodings of kept bodies: the text that clients may have as a dictionary."""
_PLAIN: Final = Codings(None)
_POLICY = ("Content-Security-Policy", CONTENT_SECURITY_POLICY)
_NOT_INDEXED = ("X-Robots-Tag", "noindex")
"""Of pages for people, but the front: there are as many fragments as patterns."""


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
    """Answer with a page, or with ``304`` where the client has it."""
    if chosen is None:
        chosen = negotiator.by_accept(environ.get("HTTP_ACCEPT"))
    now = site.clock.now()
    asked = read_request(
        url,
        query_string(environ),
        endpoint.reader,
        endpoint.page_size,
        endpoint.max_page_size,
        endpoint.max_values,
    )
    accepted = environ.get("HTTP_ACCEPT_DATETIME")
    if accepted is not None:
        asked = at_accepted_datetime(asked, endpoint, accepted, now)
    query = pin(endpoint, asked, now)
    if chosen.media_type == "text/html":
        query = as_shown(query)
    content = content_digest(query, chosen.media_type)
    instant = None if query.snapshot is None else query.snapshot.instant
    if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MODIFIED_SINCE" in environ:
        known = _unchanged(environ, query, entity_tag(content, instant))
        if known is not None:
            # About the client's copy, which may be of another instant.
            fields = [*_freshness(query, chosen, environ), ("ETag", known), _vary(query)]
            fields += memento_fields(query) + _age(query, chosen, environ, tag_instant(known))
            return Reply("304 Not Modified", [*fields, ANY_ORIGIN], b"")
    codings = _PLAIN
    if site.settings.compress and "HTTP_ACCEPT_ENCODING" in environ:
        codings = accepted_codings(environ["HTTP_ACCEPT_ENCODING"])
    page = _Page(site, query, chosen, content, codings)
    if environ["REQUEST_METHOD"] == "HEAD":
        # Nothing is said about the length: it would have to be made to be known.
        fields = [*_freshness(query, chosen, environ), ("ETag", page.tag()), _vary(query)]
        return Reply("200 OK", [*fields, *COMMON, *_kind(query, chosen), *_links(query)], b"")
    sent = page.sent(environ.get("HTTP_AVAILABLE_DICTIONARY"))
    brief = sent.encoding == DELTA
    headers = [
        *_freshness(query, chosen, environ, brief=brief),
        ("ETag", sent.tag),
        _vary(query),
        *_kind(query, chosen),
    ]
    # Who has a page of before has its links, and what else stays the same.
    headers += PUBLIC if brief else [*COMMON, *_links(query)]
    headers += _age(query, chosen, environ, sent.instant)
    if page.announced:
        announcement = dictionary_field(query.request.page_url)
        if announcement is not None:
            headers.append(announcement)
    if sent.encoding is not None:
        headers.append(("Content-Encoding", sent.encoding))
    headers.append(("Content-Length", str(len(sent.body))))
    return Reply("200 OK", headers, sent.body)


def _freshness(
    query: PinnedRequest, chosen: Chosen, environ: WSGIEnvironment, *, brief: bool = False
) -> list[tuple[str, str]]:
    """Return the header fields for freshness.

    A browser that revalidates may keep a page as a dictionary for longer; shared caches would show
    it.
    """
    now, age = int(query.now.timestamp()), max_age(query)
    date, expires = ("Date", http_second(now)), ("Expires", http_second(now + age))
    control = f"public, max-age={age}"
    if query.snapshot is None:
        control += _STALE
    elif not _is_html(chosen) and _REVALIDATES.search(environ.get("HTTP_CACHE_CONTROL", "")):
        return [date, ("Cache-Control", f"private, max-age={age}{_STALE}")]
    fields = [date, expires] if brief else [date, ("Cache-Control", control), expires]
    kept = kept_until(query) if "HTTP_VIA" in environ else None
    return fields if kept is None else [*fields, ("X-Accel-Expires", f"@{kept}")]


def _age(
    query: PinnedRequest, chosen: Chosen, environ: WSGIEnvironment, made: int | None
) -> list[tuple[str, str]]:
    """How old a page of this instant is, for who asks."""
    asked = _TIMED in environ.get("HTTP_CACHE_CONTROL", "") and not _is_html(chosen)
    if not asked or made is None or query.snapshot is None or query.request.snapshot is not None:
        return []
    return [("Server-Timing", f"made;dur={(query.snapshot.instant - made) // 1000}")]


def _is_html(chosen: Chosen) -> bool:
    return chosen.media_type == "text/html"


def _vary(query: PinnedRequest) -> tuple[str, str]:
    return _VARY_STATIC if query.snapshot is None else _VARY_LIVE


def _kind(query: PinnedRequest, chosen: Chosen) -> list[tuple[str, str]]:
    # Text may be of another encoding; the other formats are UTF-8 always.
    text = "; charset=utf-8" if chosen.media_type.startswith("text/") else ""
    kind = ("Content-Type", f"{chosen.media_type}{text}")
    if not _is_html(chosen):
        return [kind]
    return [kind, _POLICY, _NOT_INDEXED] if query.request.parameters else [kind, _POLICY]


def _links(query: PinnedRequest) -> list[tuple[str, str]]:
    links = documentation_link(query.endpoint.base) + memento_links(query)
    headers = [("Link", links), *memento_fields(query)]
    modified = last_modified(query)
    if modified is not None:
        headers.append(("Last-Modified", http_date(modified)))
    return headers


class _Page:
    """The body of an answer, from the cache or new.

    `shared`: others get the same body; `announced`: it is the dictionary of the next one.
    """

    def __init__(
        self, site: Site, query: PinnedRequest, chosen: Chosen, content: str, codings: Codings
    ) -> None:
        live = query.snapshot is not None
        self.shared = query.request.snapshot is None
        self.announced = codings.dictionaries and self.shared and live
        self._query = query
        self._chosen = chosen
        self._content = content
        self._codings = codings
        self._bodies = site.live_pages if live else site.static_pages
        self._instant = 0 if query.snapshot is None else query.snapshot.instant
        oldest = query.endpoint.dataset.settings.retention * _LINKED
        self._oldest = min(oldest, _SHOWN) if _is_html(chosen) else oldest

    def tag(self) -> str:
        kept = self._kept(self._codings.whole)
        return self._tag(self._instant) if kept is None else kept.tag

    def sent(self, available: str | None) -> SentPage:
        """Return the page for a client with this ``Available-Dictionary``."""
        if not self.announced:
            return self._whole()
        # Its text is the next dictionary: what is sent must be made of this one.
        text = self._text()
        named = available if self._codings.deltas else None
        digest = None if named is None else available_dictionary(named)
        dictionary = None if digest is None else self._bodies.dictionary(digest)
        if digest is None or dictionary is None:
            return self._whole(text)
        key = f"{DELTA} {digest.hex()}"
        made = self._kept(key)
        if made is None or made.instant != text.instant:
            tag = entity_tag(self._content, text.instant, urlsafe_b64encode(digest)[:5].decode())
            made = SentPage(tag, text.instant, DELTA, delta(dictionary, text.body))
            self._bodies.put(self._content, key, made)
        return made

    def _whole(self, text: SentPage | None = None) -> SentPage:
        """Return the page, encoded as a whole; without a text, any that is not too old."""
        coding = self._codings.whole
        made = self._kept(coding)
        if made is None or (text is not None and made.instant != text.instant):
            instant = self._instant if text is None else text.instant
            body = self._made() if text is None else text.body
            packed = encoded(body, coding)
            used = None if packed is None else coding
            made = SentPage(self._tag(instant), instant, used, body if packed is None else packed)
            if self.shared:
                self._bodies.put(self._content, coding, made)
        return made

    def _text(self) -> SentPage:
        """Return the text of an announced page, which is kept as a dictionary."""
        made = self._kept(_TEXT)
        if made is None:
            made = SentPage(self._tag(self._instant), self._instant, None, self._made())
            self._bodies.put(self._content, _TEXT, made)
            self._bodies.keep_dictionary(made.body)
        return made

    def _made(self) -> bytes:
        return self._chosen.writer.write(evaluate(self._query)).encode()

    def _kept(self, encoding: str | None) -> SentPage | None:
        if not self.shared:
            return None
        return self._bodies.get(self._content, encoding, self._instant, self._oldest)

    def _tag(self, instant: int) -> str:
        coding = (self._codings.whole or "")[:1]
        return entity_tag(self._content, None if self._query.snapshot is None else instant, coding)


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
    """Answer ``GET`` and ``HEAD`` of pages before another WSGI application."""

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
        method = environ["REQUEST_METHOD"]
        if method not in ("GET", "HEAD"):
            return self._rest(environ, start_response)
        started = time.perf_counter()
        base = self._base or base_of(environ, self._site.settings)
        path = environ["PATH_INFO"][1:]
        entry = find_endpoint(self._site, self._negotiator, base, path)
        if entry is None:
            return self._rest(environ, start_response)
        try:
            status, headers, body = read_fragment(
                self._site, self._negotiator, *entry, environ, base + path
            )
        except self._failures as error:
            environ[FAILURE] = error
            return self._rest(environ, start_response)
        start_response(status, headers)
        dataset = entry[0].dataset.settings.name
        reader = client_of(environ, self._site.settings)
        self._metrics.count(method, status[:3], time.perf_counter() - started, dataset, reader)
        # A list is sent in one go; another iterable would be a task per chunk, and a thread for it.
        return [body]
