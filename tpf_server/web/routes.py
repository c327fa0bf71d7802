"""Which function answers which URL.

One rule takes all paths: datasets come and go at run time, so they are looked up in a dictionary.
Other parts of the server (continuous queries) add rules of their own, which Flask prefers.
"""

from collections.abc import Callable
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule

from tpf_server.errors import MethodNotAllowedError, NotFoundError, ServerError
from tpf_server.fragments.negotiation import Negotiator
from tpf_server.fragments.writers import WRITERS
from tpf_server.store.failures import store_failures
from tpf_server.web.addresses import base_of
from tpf_server.web.api_doc import api_documentation
from tpf_server.web.authorization import authorize
from tpf_server.web.dereference import description
from tpf_server.web.health import alive, ready
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.index import index
from tpf_server.web.metrics import Metrics
from tpf_server.web.page_middleware import FAILURE, PageMiddleware
from tpf_server.web.problems import Problems
from tpf_server.web.publish import publish_facts
from tpf_server.web.responses import READ_METHODS, dress, json_answer, options, see_other
from tpf_server.web.site import Site

_FACTS = "/facts"
_FACTS_METHODS = ("POST", "OPTIONS")


class AnyMethod(Rule):
    """A rule whose function says which methods the resource knows, whatever they are called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "methods": None})


def routes(app: Flask, site: Site, metrics: Metrics) -> None:
    """Add all URLs of the site to an application, whose requests `metrics` counts."""
    metrics.watch(app)
    negotiator = Negotiator((*WRITERS, HtmlWriter(site.settings.title, site.settings.query_page)))
    router = Router(site, negotiator, metrics)
    for rule, name, answer in (
        ("/", "index", lambda: router.answer("")),
        ("/<path:path>", "path", router.answer),
    ):
        app.add_url_rule(rule, name, answer, provide_automatic_options=False)
    problems = Problems(site.settings)
    app.register_error_handler(ServerError, lambda error: problems.of_error(error, request))
    for failure in store_failures():
        app.register_error_handler(failure, lambda error: problems.of_failure(error, request))
    app.register_error_handler(HTTPException, lambda error: problems.of_http(error, request))
    app.after_request(router.dress)
    app.wsgi_app = PageMiddleware(app.wsgi_app, site, negotiator, metrics)  # type: ignore[method-assign]


class Router:
    """Finds what a path names, and checks the method.

    Args:
        site: what is served.
        negotiator: chooses the formats of answers.
        metrics: counts the requests.
    """

    def __init__(self, site: Site, negotiator: Negotiator, metrics: Metrics) -> None:
        self._site = site
        self._negotiator = negotiator
        self._metrics = metrics
        self._pages: dict[str, Callable[[], Response]] = {
            "": self._index,
            "api-doc": self._api_doc,
            "healthz": alive,
            "metrics": self._show_metrics,
            "readyz": lambda: ready(site),
        }

    def answer(self, path: str) -> Response:
        """Answer the current request.

        Raises:
            ServerError: what is wrong, with the status to answer with.
        """
        failure: Exception | None = request.environ.get(FAILURE)
        if failure is not None:
            raise failure
        page = self._pages.get(path)
        if page is not None:
            return self._page(page)
        base = self._base()
        if self._is_fragment(base, path):
            # Pages themselves never come here.
            if request.method == "OPTIONS":
                return options(READ_METHODS)
            raise MethodNotAllowedError(request.method, READ_METHODS)
        if path.endswith(_FACTS):
            return self._facts(base, path.removesuffix(_FACTS))
        described = description(self._site.endpoints(base), base, path)
        if described is not None:
            return self._page(lambda: see_other(described))
        raise NotFoundError(f"there is nothing at /{path}")

    def _is_fragment(self, base: str, path: str) -> bool:
        endpoints = self._site.endpoints(base)
        stem, _, suffix = path.rpartition(".")
        return path in endpoints or (
            stem in endpoints and self._negotiator.by_suffix(suffix) is not None
        )

    def _index(self) -> Response:
        chosen = self._negotiator.by_accept(request.headers.get("Accept"))
        return index(self._site, self._base(), chosen)

    def _show_metrics(self) -> Response:
        settings = self._site.settings
        if not settings.open_metrics:
            authorize(request, settings.publish_token, "looking at metrics")
        return self._metrics.show()

    def _api_doc(self) -> Response:
        document = api_documentation(self._site, self._base())
        response = json_answer(document, media_type="application/ld+json")
        response.headers["Cache-Control"] = "public, max-age=60"
        return response

    def _page(self, page: Callable[[], Response]) -> Response:
        if request.method == "OPTIONS":
            return options(READ_METHODS)
        if request.method not in READ_METHODS:
            raise MethodNotAllowedError(request.method, READ_METHODS)
        return page()

    def _facts(self, base: str, name: str) -> Response:
        self._site.dataset(name)
        endpoint = self._site.endpoints(base)[name]
        if request.method == "OPTIONS":
            return options(_FACTS_METHODS)
        if request.method != "POST":
            raise MethodNotAllowedError(request.method, _FACTS_METHODS)
        return publish_facts(self._site, endpoint, request)

    def _base(self) -> str:
        return base_of(request.environ, self._site.settings)

    def dress(self, response: Response) -> Response:
        """Add the header fields that all answers have in common."""
        public = not request.path.endswith(_FACTS)
        return dress(response, self._site.clock.now(), self._base(), public)
