"""Compute a page of a fragment, for any writer."""

import re
from base64 import urlsafe_b64encode
from datetime import datetime
from hashlib import blake2b
from itertools import compress
from typing import Final, NamedTuple

from annotations.labels import Labelling
from tpf_server.errors import RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.request import FragmentRequest
from tpf_server.fragments.view import LabelledRows, Matches, State
from tpf_server.store.protocols import QuadColumns, Snapshot, quad_columns


class PinnedRequest(NamedTuple):
    """A request at an instant, with the freshness of its answer; no snapshot without live facts."""

    endpoint: Endpoint
    request: FragmentRequest
    now: datetime
    snapshot: Snapshot | None
    state: State


class Fragment(NamedTuple):
    """A page of a fragment: rows as shown, of `total` matches, `dynamic` of them live facts."""

    query: PinnedRequest
    rows: LabelledRows
    total: int
    dynamic: int
    labellings: list[Labelling]
    earliest_end: datetime | None
    links: dict[str, str]


def pin(endpoint: Endpoint, request: FragmentRequest, now: datetime) -> PinnedRequest:
    """Choose the snapshot of an answer."""
    live = endpoint.dataset.live
    snapshot = None if live is None else live.current(now)
    pinned = request.snapshot
    if snapshot is not None and pinned is not None:
        if pinned.sequence > snapshot.sequence:
            raise RequestError("snapshot lies in the future")
        snapshot = pinned
    elif live is not None and snapshot is not None and _asks_other_instant(request, now):
        parts_of_each = endpoint.view.state(request.patterns, snapshot).parts
        facts = [part.facts for parts in parts_of_each for part in parts]
        snapshot = live.past(facts, request.at or request.known or now, request.known)
        request = request._replace(snapshot=snapshot)
    return PinnedRequest(
        endpoint, request, now, snapshot, endpoint.view.state(request.patterns, snapshot)
    )


def _asks_other_instant(request: FragmentRequest, now: datetime) -> bool:
    return (request.at or now) != now or (request.known or now) < now


def evaluate(query: PinnedRequest) -> Fragment:
    """Compute the page."""
    endpoint, request = query.endpoint, query.request
    matches = endpoint.view.matches(request.patterns, query.snapshot, query.state)
    offset = (request.page - 1) * request.limit
    inside = offset < matches.total
    rows = matches.slice(offset, request.limit) if inside else LabelledRows(quad_columns([]), [])
    static, dynamic = endpoint.dataset.static, matches.dynamic
    if dynamic or (static is not None and static.has_blank_nodes):
        rows = LabelledRows(QuadColumns(*map(endpoint.skolemizer.terms, rows.columns)), rows.labels)
    rows = _without_metadata(rows, endpoint)
    return Fragment(
        query,
        rows,
        matches.total,
        dynamic,
        matches.labellings() if dynamic else [],
        matches.earliest_end() if dynamic else None,
        _links(request, matches, query.snapshot),
    )


def _without_metadata(rows: LabelledRows, endpoint: Endpoint) -> LabelledRows:
    authority = endpoint.authority
    columns, labels = rows
    if not authority.may_make_metadata(columns.predicates, columns.graphs):
        return rows
    kept = [not authority.makes_metadata(quad) for quad in columns.quads]
    return LabelledRows(
        QuadColumns(*[list(compress(column, kept)) for column in columns]),
        list(compress(labels, kept)),
    )


def _links(request: FragmentRequest, matches: Matches, snapshot: Snapshot | None) -> dict[str, str]:
    pinned = snapshot if matches.dynamic or request.snapshot is not None else None
    last = max(1, -(-matches.total // request.limit))
    links = {"first": request.page_link(1, pinned)}
    if request.page > 1:
        links["previous"] = request.page_link(min(request.page - 1, last), pinned)
    if request.page < last:
        links["next"] = request.page_link(request.page + 1, pinned)
    links["last"] = links["first"] if last == 1 else request.page_link(last, pinned)
    return links


# How long a page stays true, and how to tell whether it is still the same.
#
# Source: RFC 9111 (caching), RFC 9110 section 8.8 (validators).
#
# A page ends to be true when the next label of a matching fact ends or starts; new facts may come
# before that, so the time is bounded by a setting of the dataset. Between two such instants, and
# as long as nothing is published, the answer is the same up to the instant that it tells. So its
# entity tag has three parts: a digest of all that decides about the rest of the body (the versions
# of both stores, the next of those instants, URL, format, settings), the instant, and the encoding.
# Equal tags then mean equal bytes; and a client whose tag has the digest of now holds a page that
# is still right, however it was encoded.

_TAG: Final = re.compile(r'"([A-Za-z0-9_-]{12})(?:\.(-?[0-9a-f]{1,16}))?(?:~[A-Za-z0-9_-]{1,6})?"')


def max_age(query: PinnedRequest) -> int:
    """Return the seconds for which the answer may be cached, rounded down."""
    seconds = query.endpoint.max_age
    change = query.state.next_change
    # A pinned page never changes.
    if change is not None and query.request.snapshot is None:
        seconds = min(seconds, (change - query.now).total_seconds())
    return max(0, int(seconds))


def kept_until(query: PinnedRequest) -> int | None:
    """Return the last whole second (Unix time) in which nginx may show an answer, if any.

    nginx shows it up to a second longer than ``max-age``, unless ``X-Accel-Expires`` says so.
    """
    change = query.state.next_change
    if change is None or query.request.snapshot is not None:
        return None
    return min(int(query.now.timestamp()) + max_age(query), int(change.timestamp()) - 1)


def content_digest(query: PinnedRequest, media_type: str) -> str:
    """Digest all that determines a page in one format, but for its instant."""
    snapshot = query.snapshot
    text = f"{query.endpoint.version}\n{media_type}\n{query.request.page_url}"
    if snapshot is not None:
        change = query.state.next_change
        text += f"\n{snapshot.sequence}\n{change}\n{query.request.snapshot}"
    return short_digest(text)


def short_digest(text: str) -> str:
    """Return a digest of 72 bits, for entity tags."""
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=9).digest()).decode()


def entity_tag(content: str, instant: int | None, coding: str = "") -> str:
    """Return the strong entity tag, quoted: `content_digest`, instant of the snapshot, encoding."""
    at = "" if instant is None else f".{instant:x}"
    return f'"{content}{at}~{coding}"' if coding else f'"{content}{at}"'


def tag_instant(tag: str) -> int | None:
    """Return the instant in an `entity_tag`, if it has one."""
    match = _TAG.fullmatch(tag)
    return int(match[2], 16) if match is not None and match[2] else None


def matching_tag(field: str, tag: str) -> str | None:
    """Return the tag of an ``If-None-Match`` field that matches this one weakly."""
    if field == tag or field.strip() == "*":
        return tag
    own = _TAG.fullmatch(tag)
    assert own is not None
    for match in _TAG.finditer(field):
        same = match[1] == own[1] and match[2] == own[2]
        older = match[1] == own[1] and match[2] and own[2] and int(match[2], 16) < int(own[2], 16)
        if same or older:
            return match[0]
    return None


def last_modified(query: PinnedRequest) -> datetime | None:
    """Return when the answer last changed, as far as the stores know; never after now."""
    instants = []
    static, live = query.endpoint.dataset.static, query.endpoint.dataset.live
    if static is not None:
        instants.append(static.modified)
    if live is not None and query.snapshot is not None:
        published = live.modified(query.snapshot)
        if published is not None:
            instants.append(published)
    if not instants:
        return None
    return min(max(instants), query.now)
