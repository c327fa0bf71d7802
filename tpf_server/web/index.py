"""``/``: which datasets there are, for people and for programs."""

from collections.abc import Iterator
from typing import NamedTuple

from flask import Response

from annotations.methods.base import FactPattern
from annotations.namespaces import DCTERMS, HYDRA, RDF_TYPE, VOID
from annotations.terms import QuadPattern, Term, Triple, Variable, literal
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.metadata import integer
from tpf_server.fragments.negotiation import Chosen
from tpf_server.web.documents import rdf_answer
from tpf_server.web.html import render
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.responses import answer
from tpf_server.web.site import Site

_ANY = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


class Entry(NamedTuple):
    """A dataset in the list.

    Args:
        endpoint: the dataset at its own URL.
        views: its views.
        static: how many static quads it has.
        live: how many live facts are valid now; ``None`` where it takes none.
    """

    endpoint: Endpoint
    views: list[Endpoint]
    static: int
    live: int | None


def index(site: Site, base: str, chosen: Chosen) -> Response:
    """The list of datasets in the chosen format."""
    entries = list(_entries(site, base))
    if isinstance(chosen.writer, HtmlWriter):
        body = render(
            "index.html",
            title=site.settings.title,
            site_title=site.settings.title,
            base=base,
            entries=entries,
            query_page=site.settings.query_page,
        )
        response = answer(body, "text/html; charset=utf-8")
    else:
        response = rdf_answer(list(_triples(base, entries)), chosen)
    response.headers["Cache-Control"] = "public, max-age=10"
    response.headers["Vary"] = "Accept"
    return response


def _entries(site: Site, base: str) -> Iterator[Entry]:
    endpoints = site.endpoints(base)
    now = site.clock.now()
    for name, dataset in site.datasets.items():
        live = dataset.live
        yield Entry(
            endpoints[name],
            [endpoints[f"{name}/{view}"] for view in dataset.views],
            dataset.static.count(_ANY) if dataset.static is not None else 0,
            None if live is None else live.count(FactPattern(), live.snapshot(now)),
        )


def _triples(base: str, entries: list[Entry]) -> Iterator[Triple]:
    datasets = Term(f"<{base}#datasets>")
    yield Triple(datasets, RDF_TYPE, Term(f"<{HYDRA}Collection>"))
    yield Triple(datasets, Term(f"<{HYDRA}totalItems>"), integer(len(entries)))
    for entry in entries:
        endpoint = entry.endpoint
        yield Triple(datasets, Term(f"<{HYDRA}member>"), endpoint.iri)
        yield Triple(endpoint.iri, RDF_TYPE, Term(f"<{VOID}Dataset>"))
        yield Triple(endpoint.iri, Term(f"<{DCTERMS}title>"), literal(endpoint.title))
        yield Triple(endpoint.iri, Term(f"<{VOID}subset>"), Term(f"<{endpoint.url}>"))
        for view in entry.views:
            yield Triple(endpoint.iri, Term(f"<{DCTERMS}hasFormat>"), Term(f"<{view.url}>"))
