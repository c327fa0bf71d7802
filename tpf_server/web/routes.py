"""Answer the URLs of the server. Names of datasets are variables: they change with reloads."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from flask import Blueprint, Flask, Request, Response, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule

from tpf_server.errors import (
    BusyError,
    NotAcceptableError,
    NotFoundError,
    RequestError,
    ServerError,
    StoreError,
    UnreadyError,
)
from tpf_server.fragments.dataset import EVERYTHING
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.writers.base import Negotiator
from tpf_server.store.failures import store_failures
from tpf_server.web.api_doc import (
    api_documentation,
    documentation_page,
    vocabularies,
    vocabulary_document,
)
from tpf_server.web.bodies import authorize
from tpf_server.web.event_stream import event_stream
from tpf_server.web.index import index
from tpf_server.web.memento import timemap
from tpf_server.web.metrics import Metrics
from tpf_server.web.problems import Problems
from tpf_server.web.publish import publish_facts
from tpf_server.web.read import FAILURE, find_endpoint, read_fragment
from tpf_server.web.resources import RESOURCES, Operation, Resource
from tpf_server.web.responses import (
    ALL_METHODS,
    EVENTS,
    READ_METHODS,
    AsGiven,
    accepted_types,
    answer,
    base_of,
    by_method,
    client_of,
    dress,
    html_answer,
    json_answer,
    see_other,
    wants_html,
)
from tpf_server.web.site import Site

# ``GET /{dataset}/changes``: which predicates changed, as server-sent events (HTML standard).

_NUMBER: Final = re.compile("[0-9]{1,18}")


def changes(site: Site, endpoint: Endpoint, request: Request) -> Response:
    """Return the changes of a dataset from now on, or after the batch in ``Last-Event-ID``."""
    live = endpoint.dataset.live
    if live is None or not endpoint.changes_url:
        name = endpoint.dataset.settings.name
        raise NotFoundError(f"dataset {name} does not offer its changes")
    last = request.headers.get("Last-Event-ID") or request.args.get("after")
    if last is not None and not _NUMBER.fullmatch(last):
        raise RequestError(f"not the number of a batch: {last!r}")
    if not accepted_types(request).best_match([EVENTS]):
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


# Where what this server names is described: its IRIs of blank nodes and of annotations.
#
# Such an IRI is no page of its own. Whoever opens it is sent to the fragment of what is said about
# it (``303``, *Cool URIs for the Semantic Web*, section 4.2).

_KINDS: Final = {
    "property": "singleton-property",
    "graph": "named-graph",
    "statement": "reification",
    "reifier": "rdf-1.2",
}
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")


# ``/healthz``: the process answers. ``/readyz``: its stores answer too, and take facts.

_log = logging.getLogger("tpf_server")


def ready(site: Site) -> Response:
    """Check that every store can be read, and written where publishing is on (`UnreadyError`)."""
    for name, dataset in site.datasets.items():
        try:
            if dataset.static is not None:
                dataset.static.count(EVERYTHING)
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


ROBOTS: Final = """\
User-agent: *
Disallow: /*?
Disallow: /*/
Allow: /query/$
"""
"""The catalogue, the fronts of datasets, and the query page; there are too many fragments."""

_VOCABULARY = {"GET": Operation("Read the vocabulary", None, None, (406,))}


class AnyMethod(Rule):
    """A rule whose function checks the method."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "methods": None})


def routes(
    target: Flask | Blueprint,
    site: Site,
    negotiator: Negotiator,
    metrics: Metrics,
    others: Mapping[str, Resource],
) -> None:
    """Add all URLs of the site to an application or a blueprint."""
    metrics.watch(target)
    documents = {
        f"vocabulary{number}": Resource(path, f"{served.title}: {served.namespace}", _VOCABULARY)
        for number, (path, served) in enumerate(vocabularies(site).items(), 1)
    }
    views = Views(site, negotiator, metrics, {**RESOURCES, **others, **documents})
    rules: list[tuple[str, str, Callable[..., Response]]] = [
        *((name, resource.rule, getattr(views, name)) for name, resource in RESOURCES.items()),
        *((name, each.rule, views.vocabulary) for name, each in documents.items()),
        ("nothing", "/<path:path>", views.nothing),
    ]
    for name, rule, view in rules:
        if "<" not in rule:
            # Without variables nothing can be missing: only the method may be wrong.
            view = partial(by_method, READ_METHODS, view)
        target.add_url_rule(rule, name, view, methods=ALL_METHODS, provide_automatic_options=False)
    problems = Problems(site.settings)
    target.register_error_handler(ServerError, lambda error: problems.of_error(error, request))
    for failure in store_failures():
        target.register_error_handler(failure, lambda error: problems.of_failure(error, request))
    target.register_error_handler(HTTPException, lambda error: problems.of_http(error, request))
    target.after_request(views.dress)


class Views:
    """The functions that answer requests; each is named as its rule, for `flask.url_for`."""

    def __init__(
        self,
        site: Site,
        negotiator: Negotiator,
        metrics: Metrics,
        resources: Mapping[str, Resource],
    ) -> None:
        self._resources = resources
        self._site = site
        self._negotiator = negotiator
        self._metrics = metrics

    def index(self) -> Response:
        chosen = self._negotiator.by_accept(request.headers.get("Accept"))
        return index(self._site, self._base(), chosen)

    def documentation(self) -> Response:
        parts = self._site, self._base(), self._resources
        if wants_html(request):
            response = html_answer(documentation_page(*parts))
        else:
            document = api_documentation(*parts)
            response = json_answer(document, media_type="application/ld+json")
        response.headers["Cache-Control"] = "public, max-age=60"
        response.headers["Vary"] = "Accept"
        return response

    def void(self) -> Response:
        return see_other(self._base())

    def robots(self) -> Response:
        return answer(ROBOTS, "text/plain; charset=utf-8")

    def healthz(self) -> Response:
        return _uncached("ok\n")

    def readyz(self) -> Response:
        return ready(self._site)

    def metrics(self) -> Response:
        settings = self._site.settings
        if not settings.open_metrics:
            authorize(request, settings.publish_token, "looking at metrics")
        return self._metrics.show(self._site.datasets.values(), self._site.clock.now())

    def fragment(self, name: str) -> Response:
        failure: Exception | None = request.environ.get(FAILURE)
        if failure is not None:
            raise failure
        base = self._base()
        entry = find_endpoint(self._site, self._negotiator, base, name)
        if entry is None:
            raise NotFoundError(f"there is nothing at /{name}")
        g.dataset = entry[0].dataset.settings.name
        g.reader = client_of(request.environ, self._site.settings)

        def answer() -> Response:
            return AsGiven(
                *read_fragment(self._site, self._negotiator, *entry, request.environ, base + name)
            )

        return _read(answer)

    def view(self, name: str, view: str) -> Response:
        return self.fragment(f"{name}/{view}")

    def changes(self, name: str) -> Response:
        endpoint = self._endpoint(name)
        return _read(lambda: changes(self._site, endpoint, request))

    def ldes(self, name: str) -> Response:
        endpoint = self._endpoint(name)

        def answer() -> Response:
            chosen = self._negotiator.by_accept(request.headers.get("Accept"))
            return event_stream(endpoint, request, chosen, self._site.settings.title)

        return _read(answer)

    def timemap(self, name: str) -> Response:
        endpoint = self._site.endpoints(self._base()).get(name)
        if endpoint is None:
            raise NotFoundError(f"there is nothing at {request.path}")
        return _read(lambda: timemap(endpoint, request, self._site.clock.now()))

    def view_timemap(self, name: str, view: str) -> Response:
        return self.timemap(f"{name}/{view}")

    def facts(self, name: str) -> Response:
        endpoint = self._endpoint(name)
        return by_method(
            RESOURCES["facts"].methods, lambda: publish_facts(self._site, endpoint, request)
        )

    def vocabulary(self) -> Response:
        # A part of an application may have a prefix, which is in the base, too.
        rule = self._resources[str(request.endpoint).rpartition(".")[2]].rule
        served = vocabularies(self._site)[rule]
        chosen = self._negotiator.by_accept(request.headers.get("Accept"))
        return vocabulary_document(served, self._base(), chosen)

    def annotation(self, name: str, kind: str, digest: str) -> Response:
        is_minted = _DIGEST.fullmatch(digest) and kind.isascii() and kind.islower()
        views = (f"{name}/{_KINDS.get(kind)}", name) if is_minted else ()
        return self._described(f"{name}/facts/{kind}/{digest}", *views)

    def blank_node(self, name: str, label: str) -> Response:
        front, slash, last = label.rpartition("/")
        # The last part is the label as `Skolemizer` writes it.
        named = f"{front}{slash}{quote(last, safe='')}"
        return self._described(f".well-known/genid/{name}/{named}", name)

    def _described(self, path: str, *views: str) -> Response:
        base = self._base()
        endpoints = self._site.endpoints(base)
        view = next((each for each in views if each in endpoints), None)
        if view is None:
            raise NotFoundError(f"there is nothing at {request.path}")
        url = f"{endpoints[view].url}?subject={quote(base + path, safe='')}"
        return _read(lambda: see_other(url))

    def nothing(self, path: str) -> Response:
        raise NotFoundError(f"there is nothing at /{path}")

    def dress(self, response: Response) -> Response:
        if response.status_code == HTTPStatus.PERMANENT_REDIRECT:
            # Of the router, to slashes as they should be: it believes the Host.
            path = response.headers["Location"].partition("://")[2].partition("/")[2]
            response.headers["Location"] = self._base() + path.removeprefix(
                f"{request.script_root[1:]}/"
            )
        public = not request.path.endswith("/facts")
        return dress(response, self._site.clock.now(), self._base(), public)

    def _endpoint(self, name: str) -> Endpoint:
        self._site.dataset(name)
        return self._site.endpoints(self._base())[name]

    def _base(self) -> str:
        return base_of(request.environ, self._site.settings)


def _read(answer: Callable[[], Response]) -> Response:
    return by_method(READ_METHODS, answer)
