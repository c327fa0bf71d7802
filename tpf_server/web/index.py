"""``/``: which datasets there are, for people and for programs."""

from collections.abc import Iterator
from urllib.parse import urljoin

from flask import Response

from annotations.methods.base import FactPattern
from annotations.terms import QuadPattern, Variable
from tpf_server.fragments.negotiation import Chosen
from tpf_server.web.catalog import CatalogEntry, catalog
from tpf_server.web.documents import rdf_answer
from tpf_server.web.html import render
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.responses import answer
from tpf_server.web.site import Site
from tpf_server.web.sparkline import sparkline

_ANY = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


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
            sparkline=sparkline,
            query_page=site.settings.watched_at and urljoin(base, site.settings.watched_at),
        )
        response = answer(body, "text/html; charset=utf-8")
    else:
        response = rdf_answer(list(catalog(base, site.settings, entries)), chosen)
    response.headers["Cache-Control"] = "public, max-age=10"
    response.headers["Vary"] = "Accept"
    return response


def _entries(site: Site, base: str) -> Iterator[CatalogEntry]:
    endpoints = site.endpoints(base)
    now = site.clock.now()
    for name, dataset in site.datasets.items():
        static, live = dataset.static, dataset.live
        snapshot = None if live is None else live.snapshot(now)
        known = [None if static is None else static.modified]
        if live is not None and snapshot is not None:
            known.append(live.modified(snapshot))
        yield CatalogEntry(
            endpoints[name],
            [endpoints[f"{name}/{view}"] for view in dataset.views],
            0 if static is None else static.count(_ANY),
            None if live is None or snapshot is None else live.count(FactPattern(), snapshot),
            max((min(each, now) for each in known if each is not None), default=None),
            () if live is None else live.updates(now),
            f"{base}{name}/sparql" if site.settings.query else "",
        )
