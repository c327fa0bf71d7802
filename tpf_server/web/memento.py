"""History by Memento (RFC 7089): a fragment is its own timegate.

``Accept-Datetime`` chooses the instant; the answer says which it is (``Memento-Datetime``) and
names the URL that pins it (``Content-Location``), under which following pages are found.
"""

from datetime import datetime

from werkzeug.http import parse_date

from annotations.instants import from_micros, to_micros
from tpf_server.errors import RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import Query
from tpf_server.fragments.request import FragmentRequest
from tpf_server.store.protocols import Snapshot
from tpf_server.web.responses import http_date


def at_accepted_datetime(
    asked: FragmentRequest, endpoint: Endpoint, accepted: str, now: datetime
) -> FragmentRequest:
    """The request, pinned to the instant of ``Accept-Datetime`` unless its URL pins one.

    An instant in the future stands for now.

    Args:
        asked: the request without it.
        endpoint: where it was asked.
        accepted: the header field.
        now: when.

    Raises:
        RequestError: the header field is no date.
    """
    live = endpoint.dataset.live
    if live is None or asked.snapshot is not None:
        return asked
    instant = parse_date(accepted)
    if instant is None:
        raise RequestError(f"Accept-Datetime is no date: {accepted!r}")
    if instant >= now:
        return asked
    return asked._replace(snapshot=Snapshot(to_micros(instant), live.snapshot(now).sequence))


def memento_fields(query: Query) -> list[tuple[str, str]]:
    """The header fields of an answer that shows live facts."""
    if query.snapshot is None:
        return []
    asked = query.request
    fields = [("Link", f'<{asked.fragment_url}>; rel="original timegate"')]
    if asked.snapshot is not None:
        instant = from_micros(asked.snapshot.instant)
        fields.append(("Memento-Datetime", http_date(instant)))
        fields.append(("Content-Location", asked.page_link(asked.page, asked.snapshot)))
    return fields
