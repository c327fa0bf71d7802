"""``GET`` and ``HEAD`` of a page of a fragment."""

from datetime import timedelta

from flask import Request, Response

from tpf_server.errors import RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import Query, evaluate, pose
from tpf_server.fragments.freshness import entity_tag, kept_until, last_modified, max_age
from tpf_server.fragments.negotiation import Chosen
from tpf_server.fragments.request import read_request
from tpf_server.web.compression import compress, encoding_of
from tpf_server.web.memento import at_accepted_datetime, memento_fields
from tpf_server.web.responses import answer, http_date, without_body
from tpf_server.web.site import Site

_VARY_STATIC = "Accept, Accept-Encoding"
_VARY_LIVE = "Accept, Accept-Encoding, Accept-Datetime"


def read_fragment(
    site: Site, endpoint: Endpoint, chosen: Chosen, request: Request, url: str
) -> Response:
    """Answer with a page, or with ``304`` where the client has it.

    Args:
        site: tells the time.
        endpoint: where it was asked.
        chosen: the format of the answer.
        request: method, query string and conditional header fields.
        url: absolute URL that was asked for, without its query string.

    Raises:
        RequestError: a malformed URL.
        SnapshotExpired: the URL pins a snapshot that is no longer retained.
    """
    now = site.clock.now()
    asked = read_request(
        url,
        _query_string(request),
        endpoint.reader,
        endpoint.page_size,
        endpoint.max_page_size,
        endpoint.max_values,
    )
    query = pose(endpoint, at_accepted_datetime(asked, endpoint, request, now), now)
    encoding = encoding_of(request) if site.settings.compress else None
    tag = entity_tag(query, f"{chosen.media_type} {encoding or ''}")
    if _unchanged(request, query, tag):
        response = without_body(304)
    elif request.method == "HEAD":
        response = without_body()
        response.headers["Content-Type"] = _content_type(chosen.media_type)
    else:
        response = answer(chosen.writer.write(evaluate(query)), _content_type(chosen.media_type))
        if encoding is not None:
            compress(response, encoding)
    age = max_age(query)
    fields = [
        ("Cache-Control", f"public, max-age={age}"),
        ("Expires", http_date(query.now + timedelta(seconds=age))),
        ("ETag", tag),
        ("Vary", _VARY_STATIC if query.snapshot is None else _VARY_LIVE),
        *memento_fields(query),
    ]
    modified = last_modified(query)
    if modified is not None:
        fields.append(("Last-Modified", http_date(modified)))
    kept = kept_until(query)
    if kept is not None:
        fields.append(("X-Accel-Expires", f"@{kept}"))
    response.headers.extend(fields)
    return response


def _content_type(media_type: str) -> str:
    return f"{media_type}; charset=utf-8"


def _query_string(request: Request) -> str:
    try:
        return request.query_string.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError("the query string is not UTF-8") from None


def _unchanged(request: Request, query: Query, tag: str) -> bool:
    """Whether the client's copy is still right (RFC 9110, section 13.2.2)."""
    if "HTTP_IF_NONE_MATCH" in request.environ:
        # Weak comparison, as the standard asks for in this header field.
        return request.if_none_match.contains_weak(tag.strip('"'))
    # A date cannot tell that a label has ended, so it counts for static datasets only.
    if query.snapshot is not None or "HTTP_IF_MODIFIED_SINCE" not in request.environ:
        return False
    since, modified = request.if_modified_since, last_modified(query)
    return since is not None and modified is not None and modified.replace(microsecond=0) <= since
