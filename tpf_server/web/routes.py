"""Which function answers which URL.

One rule takes all paths: datasets come and go at run time, so they are looked up in a dictionary.
Other parts of the server (continuous queries) add rules of their own, which Flask prefers.
"""

import re
from collections.abc import Callable
from urllib.parse import quote

from flask import Flask, Request, Response, request
from werkzeug.exceptions import HTTPException

from tpf_server.errors import MethodError, NotFoundError, ServerError
from tpf_server.fragments.negotiation import Chosen, Negotiator
from tpf_server.fragments.writers import WRITERS
from tpf_server.web.api_doc import api_documentation
from tpf_server.web.health import alive, ready
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.index import index
from tpf_server.web.metrics import Metrics
from tpf_server.web.problems import Problems
from tpf_server.web.publish import publish_facts
from tpf_server.web.read import read_fragment
from tpf_server.web.responses import READ_METHODS, dress, json_answer, options
from tpf_server.web.site import Site

_METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
_FACTS = "/facts"
_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
_FACTS_METHODS = ("POST", "OPTIONS")


def routes(app: Flask, site: Site) -> None:
    """Add all URLs of the site to an application."""
    metrics = Metrics()
    metrics.watch(app)
    router = Router(site, metrics)
    app.add_url_rule("/", "index", lambda: router.answer(""), methods=_METHODS)
    app.add_url_rule("/<path:path>", "path", router.answer, methods=_METHODS)
    problems = Problems(site.settings)
    app.register_error_handler(ServerError, lambda error: problems.of_error(error, request))
    app.register_error_handler(HTTPException, lambda error: problems.of_http(error, request))
    app.after_request(router.dress)


class Router:
    """Finds what a path names, and checks the method.

    Args:
        site: what is served.
        metrics: counts the requests.
    """

    def __init__(self, site: Site, metrics: Metrics) -> None:
        self._site = site
        self._negotiator = Negotiator((*WRITERS, HtmlWriter(site.settings.title)))
        self._pages: dict[str, Callable[[], Response]] = {
            "": self._index,
            "api-doc": self._api_doc,
            "healthz": alive,
            "metrics": metrics.show,
            "readyz": lambda: ready(site),
        }

    def answer(self, path: str) -> Response:
        """Answer the current request.

        Raises:
            ServerError: what is wrong, with the status to answer with.
        """
        site = self._site
        base = self.base(request)
        endpoint = site.endpoint(base, path)
        chosen: Chosen | None = None
        if endpoint is None:
            stem, _, suffix = path.rpartition(".")
            chosen = self._negotiator.by_suffix(suffix) if stem else None
            endpoint = site.endpoint(base, stem) if chosen is not None else None
        if endpoint is not None:
            if request.method == "OPTIONS":
                return options(READ_METHODS)
            if request.method not in READ_METHODS:
                raise MethodError(request.method, READ_METHODS)
            if chosen is None:
                chosen = self._negotiator.by_accept(request.headers.get("Accept"))
            return read_fragment(site, endpoint, chosen, request, base + quote(path))
        page = self._pages.get(path)
        if page is not None:
            return self._page(page)
        if path.endswith(_FACTS):
            return self._facts(base, path.removesuffix(_FACTS))
        raise NotFoundError(f"there is nothing at /{path}")

    def _index(self) -> Response:
        chosen = self._negotiator.by_accept(request.headers.get("Accept"))
        return index(self._site, self.base(request), chosen)

    def _api_doc(self) -> Response:
        document = api_documentation(self._site, self.base(request))
        response = json_answer(document, media_type="application/ld+json")
        response.headers["Cache-Control"] = "public, max-age=60"
        return response

    def _page(self, page: Callable[[], Response]) -> Response:
        if request.method == "OPTIONS":
            return options(READ_METHODS)
        if request.method not in READ_METHODS:
            raise MethodError(request.method, READ_METHODS)
        return page()

    def _facts(self, base: str, name: str) -> Response:
        self._site.dataset(name)
        endpoint = self._site.endpoint(base, name)
        assert endpoint is not None
        if request.method == "OPTIONS":
            return options(_FACTS_METHODS)
        if request.method != "POST":
            raise MethodError(request.method, _FACTS_METHODS)
        return publish_facts(self._site, endpoint, request)

    def base(self, request: Request) -> str:
        """The URL that the client knows the server under.

        A client could forge what it calls us, so only the settings count, or a proxy that the
        settings trust.
        """
        settings = self._site.settings
        if settings.trust_forwarded:
            host = request.headers.get("X-Forwarded-Host", "").rpartition(",")[2].strip()
            scheme = request.headers.get("X-Forwarded-Proto", "http").rpartition(",")[2].strip()
            if _HOST.fullmatch(host) and scheme in ("http", "https"):
                return f"{scheme}://{host}/"
        return settings.base

    def dress(self, response: Response) -> Response:
        """Add the header fields that all answers have in common."""
        api_doc = f"{self.base(request)}api-doc"
        public = not request.path.endswith(_FACTS)
        return dress(response, self._site.clock.now(), api_doc, public)
