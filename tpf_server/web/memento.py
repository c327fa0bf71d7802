"""History by Memento (RFC 7089): a fragment is its own timegate.

``Accept-Datetime`` chooses the instant, as ``?at=`` does in a URL; the answer says which it is
(``Memento-Datetime``) and names the URL that pins it (``Content-Location``), under which following
pages are found.
"""

from typing import Final

from annotations.instants import from_micros
from tpf_server.errors import RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import PinnedRequest
from tpf_server.fragments.request import FragmentRequest
from tpf_server.web.responses import http_date, http_instant

_LONGEST_LINKED: Final = 600
"""Characters of a URL that is repeated in ``Link``: many proxies take 4 kB of header fields."""


def at_accepted_datetime(
    asked: FragmentRequest, endpoint: Endpoint, accepted: str
) -> FragmentRequest:
    """The request for the instant of ``Accept-Datetime``, unless its URL names one.

    An instant in the future stands for now.

    Args:
        asked: the request without it.
        endpoint: where it was asked.
        accepted: the header field.

    Raises:
        RequestError: the header field is no date.
    """
    if endpoint.dataset.live is None or asked.snapshot is not None or asked.at is not None:
        return asked
    instant = http_instant(accepted)
    if instant is None:
        raise RequestError(f"Accept-Datetime is no date: {accepted!r}")
    return asked._replace(at=instant)


def memento_fields(query: PinnedRequest) -> list[tuple[str, str]]:
    """The header fields of an answer that shows live facts.

    A long URL, as those with ``values`` are, is named only where an instant was asked for.
    """
    if query.snapshot is None:
        return []
    asked = query.request
    original = asked.original_url
    fields: list[tuple[str, str]] = []
    if len(original) <= _LONGEST_LINKED:
        _, mark, rest = original.partition("?")
        listed = f"{query.endpoint.url}/timemap{mark}{rest}"
        fields.append(("Link", f'<{original}>; rel="original timegate", <{listed}>; rel="timemap"'))
    if asked.snapshot is not None:
        instant = from_micros(asked.snapshot.instant)
        fields.append(("Memento-Datetime", http_date(instant)))
        fields.append(("Content-Location", asked.page_link(asked.page, asked.snapshot)))
    return fields
