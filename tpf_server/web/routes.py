"""Which function answers which URL.

Datasets come and go, so a rule has the name of a dataset as a variable, which is looked up. Other
parts of the server (continuous queries) add rules of their own, which Flask prefers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule

from tpf_server.errors import NotFoundError, ServerError
from tpf_server.fragments.negotiation import Negotiator
from tpf_server.store.failures import store_failures
from tpf_server.web.addresses import base_of
from tpf_server.web.api_doc import api_documentation
from tpf_server.web.authorization import authorize
from tpf_server.web.changes import changes
from tpf_server.web.dereference import described_annotation, described_blank_node
from tpf_server.web.event_stream import event_stream
from tpf_server.web.health import alive, ready
from tpf_server.web.index import index
from tpf_server.web.metrics import Metrics
from tpf_server.web.page_middleware import FAILURE
from tpf_server.web.problems import Problems
from tpf_server.web.publish import publish_facts
from tpf_server.web.read import find_endpoint, read_fragment
from tpf_server.web.resources import RESOURCES, Operation, Resource
from tpf_server.web.responses import (
    ALL_METHODS,
    READ_METHODS,
    AsGiven,
    by_method,
    dress,
    json_answer,
    see_other,
)
from tpf_server.web.site import Site
from tpf_server.web.timemap import timemap
from tpf_server.web.vocabulary import vocabularies, vocabulary_document

_VOCABULARY = {"GET": Operation("Read the vocabulary", None, None, (406,))}


class AnyMethod(Rule):
    """A rule whose function says which methods the resource knows, whatever they are called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "methods": None})


def routes(
    target: Flask | Blueprint,
    site: Site,
    negotiator: Negotiator,
    metrics: Metrics,
    others: Mapping[str, Resource],
) -> None:
    """Add all URLs of the site to an application, or to a part of one.

    Args:
        target: gets the rules, and what happens before and after requests, and upon errors.
        site: what is served.
        negotiator: chooses the formats of answers.
        metrics: counts the requests.
        others: resources that have rules already, for the documentation.
    """
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
        target.add_url_rule(rule, name, view, methods=ALL_METHODS, provide_automatic_options=False)
    problems = Problems(site.settings)
    target.register_error_handler(ServerError, lambda error: problems.of_error(error, request))
    for failure in store_failures():
        target.register_error_handler(failure, lambda error: problems.of_failure(error, request))
    target.register_error_handler(HTTPException, lambda error: problems.of_http(error, request))
    target.after_request(views.dress)


class Views:
    """The functions that answer requests; each is named as its rule is, for `flask.url_for`.

    Args:
        site: what is served.
        negotiator: chooses the formats of answers.
        metrics: counts the requests.
        resources: what there is, for the documentation.
    """

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
        """The list of datasets."""

        def answer() -> Response:
            chosen = self._negotiator.by_accept(request.headers.get("Accept"))
            return index(self._site, self._base(), chosen)

        return _read(answer)

    def documentation(self) -> Response:
        """The documentation of the interface."""

        def answer() -> Response:
            document = api_documentation(self._site, self._base(), self._resources)
            response = json_answer(document, media_type="application/ld+json")
            response.headers["Cache-Control"] = "public, max-age=60"
            return response

        return _read(answer)

    def void(self) -> Response:
        """Where VoID looks for descriptions of datasets."""
        return _read(lambda: see_other(self._base()))

    def healthz(self) -> Response:
        """Whether the process answers."""
        return _read(alive)

    def readyz(self) -> Response:
        """Whether its stores answer, too."""
        return _read(lambda: ready(self._site))

    def metrics(self) -> Response:
        """Counts of requests."""

        def answer() -> Response:
            settings = self._site.settings
            if not settings.open_metrics:
                authorize(request, settings.publish_token, "looking at metrics")
            return self._metrics.show()

        return _read(answer)

    def fragment(self, name: str) -> Response:
        """A page of a dataset."""
        failure: Exception | None = request.environ.get(FAILURE)
        if failure is not None:
            raise failure
        base = self._base()
        found = find_endpoint(self._site, self._negotiator, base, name)
        if found is None:
            raise NotFoundError(f"there is nothing at /{name}")

        def answer() -> Response:
            return AsGiven(
                *read_fragment(self._site, self._negotiator, *found, request.environ, base + name)
            )

        return _read(answer)

    def view(self, name: str, view: str) -> Response:
        """A page of a view of a dataset."""
        return self.fragment(f"{name}/{view}")

    def changes(self, name: str) -> Response:
        """What changes in a dataset, as it comes."""
        self._site.dataset(name)
        endpoint = self._site.endpoints(self._base())[name]
        return _read(lambda: changes(self._site, endpoint, request))

    def ldes(self, name: str) -> Response:
        """The event stream of a dataset."""
        self._site.dataset(name)
        endpoint = self._site.endpoints(self._base())[name]

        def answer() -> Response:
            chosen = self._negotiator.by_accept(request.headers.get("Accept"))
            return event_stream(endpoint, request, chosen, self._site.settings.title)

        return _read(answer)

    def timemap(self, name: str) -> Response:
        """The changes of a fragment of a dataset."""
        endpoint = self._site.endpoints(self._base()).get(name)
        if endpoint is None:
            raise NotFoundError(f"there is nothing at {request.path}")
        return _read(lambda: timemap(endpoint, request, self._site.clock.now()))

    def view_timemap(self, name: str, view: str) -> Response:
        """The changes of a fragment of a view."""
        return self.timemap(f"{name}/{view}")

    def facts(self, name: str) -> Response:
        """Publishing to a dataset."""
        self._site.dataset(name)
        endpoint = self._site.endpoints(self._base())[name]
        return by_method(
            RESOURCES["facts"].methods, lambda: publish_facts(self._site, endpoint, request)
        )

    def vocabulary(self) -> Response:
        """A vocabulary whose namespace lies here."""
        # A part of an application may have a prefix, which is in the base, too.
        rule = self._resources[str(request.endpoint).rpartition(".")[2]].rule
        served = vocabularies(self._site)[rule]

        def answer() -> Response:
            chosen = self._negotiator.by_accept(request.headers.get("Accept"))
            return vocabulary_document(served, self._base(), chosen)

        return _read(answer)

    def annotation(self, name: str, kind: str, digest: str) -> Response:
        """What a name of an annotation leads to."""
        return self._described(described_annotation, name, kind, digest)

    def blank_node(self, name: str, label: str) -> Response:
        """What the IRI of a blank node leads to."""
        return self._described(described_blank_node, name, label)

    def _described(self, find: Callable[..., str | None], *names: str) -> Response:
        base = self._base()
        described = find(self._site.endpoints(base), base, *names)
        if described is None:
            raise NotFoundError(f"there is nothing at {request.path}")
        return _read(lambda: see_other(described))

    def nothing(self, path: str) -> Response:
        """There is nothing at any other path.

        Raises:
            NotFoundError: always.
        """
        raise NotFoundError(f"there is nothing at /{path}")

    def dress(self, response: Response) -> Response:
        """Add the header fields that all answers have in common."""
        public = not request.path.endswith("/facts")
        return dress(response, self._site.clock.now(), self._base(), public)

    def _base(self) -> str:
        return base_of(request.environ, self._site.settings)


def _read(answer: Callable[[], Response]) -> Response:
    return by_method(READ_METHODS, answer)
