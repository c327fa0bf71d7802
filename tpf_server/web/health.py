"""``/healthz``: the process answers. ``/readyz``: its stores answer too."""

from flask import Response

from annotations.terms import QuadPattern, Variable
from tpf_server.web.responses import answer
from tpf_server.web.site import Site

_ANY = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


def alive() -> Response:
    """The process answers."""
    return _uncached("ok\n")


def ready(site: Site) -> Response:
    """Every store can be asked.

    Raises:
        StoreError: a store cannot.
    """
    for dataset in site.datasets.values():
        if dataset.static is not None:
            dataset.static.count(_ANY)
        if dataset.live is not None:
            dataset.live.snapshot(site.clock.now())
    return _uncached("ready\n")


def _uncached(text: str) -> Response:
    response = answer(text, "text/plain; charset=utf-8")
    response.headers["Cache-Control"] = "no-store"
    return response
