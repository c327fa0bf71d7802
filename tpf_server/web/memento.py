"""History by Memento (RFC 7089): a fragment is its own timegate (``Accept-Datetime``, ``?at=``)."""

from datetime import datetime, timedelta
from itertools import chain
from typing import Final
from urllib.parse import quote

from flask import Request, Response

from annotations.instants import FIRST, format_instant, from_micros, shifted, to_micros
from tpf_server.errors import NotFoundError, PastUnknown, RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import PinnedRequest
from tpf_server.fragments.request import FragmentRequest, read_request
from tpf_server.store.protocols import Snapshot
from tpf_server.web.responses import answer, http_date, http_instant, query_string

# ``/{dataset}/timemap``: at which instants a fragment changed (RFC 7089, section 5).
#
# A memento is there for every instant; listed are those at which the label of a match ended or
# began, and, where expirations were replaced, those at which a batch was published, as long as its
# state is retained: between two of them the fragment was the same.

LINK_FORMAT: Final = "application/link-format"
_MOST: Final = 200
"""Mementos of one map; another one goes on."""
_MOST_VALID: Final = 20_000
"""Facts that are gone through for one map: for each memento, those that hold."""


def timemap(endpoint: Endpoint, request: Request, now: datetime) -> Response:
    """Return the changes of a fragment, from the instant ``at`` on, or from the first known one."""
    live = endpoint.dataset.live
    if live is None:
        raise NotFoundError(f"dataset {endpoint.dataset.settings.name} has no history")
    asked = read_request(
        endpoint.url, query_string(request.environ), endpoint.reader, 1, 1, endpoint.max_values
    )
    parts = endpoint.view.state(asked.patterns, live.current(now)).parts
    history = endpoint.dataset.settings.history
    start = FIRST if history is None else shifted(now, -timedelta(seconds=history))
    begin = min(asked.at or start, now)
    facts = [part.facts for part in chain(*parts)]
    result = [] if asked.at is None else [begin]
    try:
        snapshot = live.past(facts, begin)
    except PastUnknown as unknown:
        if asked.at is not None or unknown.earliest is None:
            raise
        begin = unknown.earliest
        snapshot = live.past(facts, begin)
        result = [begin]
    following: datetime | None = begin
    looked = 0
    while following is not None:
        snapshot = Snapshot(to_micros(following), snapshot.sequence)
        following = endpoint.view.state(asked.patterns, snapshot).next_change
        # Each look costs as much as a few facts.
        looked += sum(1 + live.count(pattern, snapshot) for pattern in facts)
        published = live.published_after(snapshot)
        if published is not None and (following is None or published <= following):
            # From then on another state tells what holds.
            following, snapshot = published, live.past(facts, published)
        if following is None or following > now:
            break
        if len(result) == _MOST or looked > _MOST_VALID:
            break
        result.append(following)
    more = following if following is not None and following <= now else None
    text = _links(endpoint, asked, result, more)
    response = answer(text, LINK_FORMAT)
    response.headers["Cache-Control"] = f"public, max-age={int(endpoint.max_age)}"
    return response


def _links(
    endpoint: Endpoint, asked: FragmentRequest, changes: list[datetime], more: datetime | None
) -> str:
    original = asked.original_url
    _, mark, query = original.partition("?")
    own = f"{endpoint.url}/timemap{mark}{query}"
    lines = [f'<{original}>; rel="original timegate"']
    bounds = ""
    if changes:
        bounds = f'; from="{http_date(changes[0])}"; until="{http_date(changes[-1])}"'
    this = own if asked.at is None else _at(own, asked.at)
    lines.append(f'<{this}>; rel="self"; type="{LINK_FORMAT}"{bounds}')
    if more is not None:
        url = _at(own, more)
        lines.append(f'<{url}>; rel="timemap"; type="{LINK_FORMAT}"; from="{http_date(more)}"')
    for number, instant in enumerate(changes):
        rel = "first " * (number == 0) + "last " * (number == len(changes) - 1 and more is None)
        lines.append(
            f'<{_at(original, instant)}>; rel="{rel}memento"; datetime="{http_date(instant)}"'
        )
    return ",\n".join(lines) + "\n"


def _at(url: str, instant: datetime) -> str:
    return f"{url}{'&' if '?' in url else '?'}at={quote(format_instant(instant), safe=':')}"


_LONGEST_LINKED: Final = 600
"""Characters of a URL that is repeated in ``Link``: many proxies take 4 kB of header fields."""


def at_accepted_datetime(
    asked: FragmentRequest, endpoint: Endpoint, accepted: str, now: datetime
) -> FragmentRequest:
    """Return the request for the instant of ``Accept-Datetime``, unless its URL names one.

    A future instant stands for now.
    """
    if endpoint.dataset.live is None or asked.snapshot is not None or asked.at is not None:
        return asked
    instant = http_instant(accepted)
    if instant is None:
        raise RequestError(f"Accept-Datetime is no date: {accepted!r}")
    return asked if instant > now else asked._replace(at=instant)


def memento_links(query: PinnedRequest) -> str:
    """Return the links of an answer that shows live facts; none for a long URL."""
    if query.snapshot is None or len(original := query.request.original_url) > _LONGEST_LINKED:
        return ""
    _, mark, rest = original.partition("?")
    listed = f"{query.endpoint.url}/timemap{mark}{rest}"
    return f', <{original}>; rel="original timegate", <{listed}>; rel="timemap"'


def memento_fields(query: PinnedRequest) -> list[tuple[str, str]]:
    """Return the header fields of an answer that shows an instant."""
    asked = query.request
    fields: list[tuple[str, str]] = []
    if query.snapshot is not None and asked.snapshot is not None:
        instant = from_micros(asked.snapshot.instant)
        fields.append(("Memento-Datetime", http_date(instant)))
        fields.append(("Content-Location", asked.page_link(asked.page, asked.snapshot)))
    return fields
