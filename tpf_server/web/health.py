"""``/healthz``: the process answers. ``/readyz``: its stores answer too, and take facts."""

import logging

from flask import Response

from annotations.terms import QuadPattern, Variable
from tpf_server.errors import StoreError, UnreadyError
from tpf_server.web.responses import answer
from tpf_server.web.site import Site

_log = logging.getLogger("tpf_server")
_ANY = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


def alive() -> Response:
    """The process answers."""
    return _uncached("ok\n")


def ready(site: Site) -> Response:
    """Every store can be asked, and published to where publishing is on.

    Raises:
        UnreadyError: a store cannot.
    """
    for name, dataset in site.datasets.items():
        try:
            if dataset.static is not None:
                dataset.static.count(_ANY)
            if dataset.live is not None:
                dataset.live.snapshot(site.clock.now())
                if dataset.settings.token or site.settings.publish_token:
                    dataset.live.check_writing()
        except StoreError as error:
            _log.error("dataset %s does not answer: %s", name, error)
            raise UnreadyError(f"dataset {name} does not answer") from None
    return _uncached("ready\n")


def _uncached(text: str) -> Response:
    response = answer(text, "text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    return response
