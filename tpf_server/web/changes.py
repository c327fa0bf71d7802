"""``GET /{dataset}/changes``: which predicates changed, as server-sent events (HTML standard)."""

import re
from typing import Final

from flask import Request, Response

from tpf_server.errors import BusyError, NotAcceptableError, NotFoundError, RequestError
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.web.addresses import client_of
from tpf_server.web.responses import EVENTS
from tpf_server.web.site import Site

_NUMBER: Final = re.compile("[0-9]{1,18}")


def changes(site: Site, endpoint: Endpoint, request: Request) -> Response:
    """What changes in a dataset from now on, or after the batch in ``Last-Event-ID``.

    Raises:
        NotFoundError: the server tells no changes, or the dataset has no live facts.
        RequestError: no number of a batch.
        NotAcceptableError: the client takes no events.
        BusyError: too many follow already.
        StoreError: the store cannot be read.
    """
    live = endpoint.dataset.live
    if live is None or not endpoint.changes_url:
        name = endpoint.dataset.settings.name
        raise NotFoundError(f"changes of dataset {name} are not told here")
    last = request.headers.get("Last-Event-ID") or request.args.get("after")
    if last is not None and not _NUMBER.fullmatch(last):
        raise RequestError(f"not the number of a batch: {last!r}")
    if "Accept" in request.headers and not request.accept_mimetypes.best_match([EVENTS]):
        raise NotAcceptableError(f"changes come as {EVENTS}")
    feed, slots = site.changes.of(live), site.changes.slots
    address = client_of(request.environ, site.settings)
    if request.method == "HEAD":
        return Response(content_type=EVENTS)
    if not slots.take(address):
        raise BusyError(
            f"{slots.limit} follow changes already, or {slots.per_address} of this address; look "
            "at the pages when their freshness ends"
        )
    after = None if last is None else int(last)
    response = Response(site.changes.sent(feed, after, request.remote_addr or ""))
    response.content_type = EVENTS
    response.call_on_close(lambda: slots.leave(address))
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response
