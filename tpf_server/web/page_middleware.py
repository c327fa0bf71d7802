"""What stands before Flask: pages of fragments, which are most of the traffic.

A page takes less time than Flask takes to route, wrap and answer a request. Here the same function
that the route of a page calls is called as plain WSGI. Everything else goes on to Flask: other
resources, other methods, and pages that cannot be given, with the error that says why. Without it
(setting ``direct_pages``) every answer is the same, byte for byte.
"""

import time
from collections.abc import Iterable
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from tpf_server.errors import ServerError
from tpf_server.fragments.negotiation import Negotiator
from tpf_server.store.failures import store_failures
from tpf_server.web.metrics import Metrics
from tpf_server.web.read import find_endpoint, read_fragment
from tpf_server.web.responses import base_of
from tpf_server.web.site import Site

FAILURE: Final = "tpf_server.failure"
"""Where the environment of a request holds the error that kept it from being answered here."""


class PageMiddleware:
    """A WSGI application that answers ``GET`` and ``HEAD`` of pages, before another one.

    Args:
        rest: answers what is no page, and errors.
        site: what is served.
        negotiator: chooses the format of a page.
        metrics: counts the requests that are answered here.
    """

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
