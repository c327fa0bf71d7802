"""``/``: the catalogue of datasets, as HTML and RDF."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin

from flask import Blueprint, Response, request

from annotations.instants import instant_term
from annotations.labels import Labelling
from annotations.methods.base import FactPattern
from annotations.namespaces import DCAT, DCTERMS, HYDRA, LDES, RDF_TYPE, TREE, VOID, integer
from annotations.terms import Quad, Term, Triple, is_iri, literal
from tpf_client.map_tiles import map_tiles
from tpf_client.page_files import Example, PageFiles, PageSettings, read_example
from tpf_server.errors import NotFoundError
from tpf_server.fragments.dataset import EVERYTHING, OpenDataset
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.metadata import about_dataset, published_by
from tpf_server.fragments.writers import WRITERS
from tpf_server.fragments.writers.base import Chosen
from tpf_server.settings import Settings
from tpf_server.sources import example_files
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import Snapshot
from tpf_server.store.static.columnar import ColumnarStore
from tpf_server.web.html import render, sparkline
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.problems import rdf_answer
from tpf_server.web.resources import Operation, Resource
from tpf_server.web.responses import (
    ALL_METHODS,
    NO_SNIFFING,
    READ_METHODS,
    AsGiven,
    base_of,
    by_method,
    html_answer,
    json_answer,
    see_other,
)
from tpf_server.web.site import Site

# The datasets of a server as a catalogue: VoID, and DCAT for who looks for open data.
#
# Sources: *Describing Linked Datasets with the VoID Vocabulary*; *Data Catalog Vocabulary (DCAT)*,
# version 3, sections 6.3 to 6.9.

_MEDIA_TYPES: Final = "https://www.iana.org/assignments/media-types/"


class _LivePart(NamedTuple):
    """The facts of a live predicate: all of them, the labelled ones, and those of the last hour."""

    predicate: Term
    facts: int
    live: int
    updates: int


class _CatalogEntry(NamedTuple):
    """A dataset in the catalogue; no `live` count: it takes none; not `modified`: it is empty."""

    endpoint: Endpoint
    views: list[Endpoint]
    static: int
    live: int | None
    in_both: int
    modified: datetime | None
    updates: Sequence[int] = ()
    parts: Sequence[_LivePart] = ()
    labellings: Sequence[str] = ()


def catalog(base: str, settings: Settings, entries: list[_CatalogEntry]) -> Iterator[Triple]:
    """Return the triples of the catalogue."""
    title = settings.title
    datasets, service = Term(f"<{base}#datasets>"), Term(f"<{base}#service>")
    for kind in (f"{HYDRA}Collection", f"{DCAT}Catalog"):
        yield Triple(datasets, RDF_TYPE, Term(f"<{kind}>"))
    yield Triple(datasets, _dct("title"), literal(title))
    if settings.description:
        yield Triple(datasets, _dct("description"), literal(settings.description))
    yield from published_by(datasets, settings.publisher, f"{base}#publisher")
    yield Triple(datasets, Term(f"<{HYDRA}totalItems>"), integer(len(entries)))
    yield Triple(datasets, _dcat("service"), service)
    yield Triple(service, RDF_TYPE, _dcat("DataService"))
    yield Triple(service, _dct("title"), literal(title))
    yield Triple(service, _dcat("endpointURL"), Term(f"<{base}>"))
    yield Triple(service, _dcat("endpointDescription"), Term(f"<{base}api-doc>"))
    for entry in entries:
        iri = entry.endpoint.iri
        yield Triple(datasets, Term(f"<{HYDRA}member>"), iri)
        yield Triple(datasets, _dcat("dataset"), iri)
        yield Triple(service, _dcat("servesDataset"), iri)
        yield from _dataset(entry)


def _dataset(entry: _CatalogEntry) -> Iterator[Triple]:
    endpoint = entry.endpoint
    iri = endpoint.iri
    for kind in (f"{VOID}Dataset", f"{DCAT}Dataset"):
        yield Triple(iri, RDF_TYPE, Term(f"<{kind}>"))
    yield from about_dataset(endpoint)
    if entry.modified is not None:
        yield Triple(iri, _dct("modified"), instant_term(entry.modified))
    triples = entry.static + (entry.live or 0) - entry.in_both
    yield Triple(iri, Term(f"<{VOID}triples>"), integer(triples))
    yield Triple(iri, Term(f"<{VOID}subset>"), Term(f"<{endpoint.url}>"))
    yield from _live_parts(entry)
    yield Triple(iri, _dcat("landingPage"), Term(f"<{endpoint.url}>"))
    if endpoint.ldes_url:
        stream = Term(f"<{endpoint.ldes_url}#stream>")
        yield Triple(stream, RDF_TYPE, Term(f"<{LDES}EventStream>"))
        yield Triple(stream, _dct("source"), iri)
        yield Triple(stream, Term(f"<{TREE}view>"), Term(f"<{endpoint.ldes_url}>"))
    for view in entry.views:
        yield Triple(iri, _dct("hasFormat"), Term(f"<{view.url}>"))
    for writer in WRITERS:
        url, media_type = f"{endpoint.url}.{writer.suffix}", writer.media_types[0]
        distribution = Term(f"<{url}#distribution>")
        yield Triple(iri, _dcat("distribution"), distribution)
        yield Triple(distribution, RDF_TYPE, _dcat("Distribution"))
        yield Triple(distribution, _dcat("accessURL"), Term(f"<{url}>"))
        yield Triple(distribution, _dcat("mediaType"), Term(f"<{_MEDIA_TYPES}{media_type}>"))
        if endpoint.license is not None:
            yield Triple(distribution, _dct("license"), endpoint.license)


def _live_parts(entry: _CatalogEntry) -> Iterator[Triple]:
    """Predicates, kinds of labels, how often facts change."""
    endpoint, tmp = entry.endpoint, entry.endpoint.vocabulary
    if entry.live is None:
        return
    yield Triple(endpoint.iri, tmp["dynamicTriples"], integer(entry.live))
    yield Triple(endpoint.iri, tmp["updatesPerHour"], integer(sum(entry.updates)))
    yield Triple(endpoint.iri, tmp["annotationMethod"], literal(endpoint.method.name))
    for labelling in entry.labellings:
        yield Triple(endpoint.iri, tmp["labelling"], literal(labelling))
    if endpoint.changes_url:
        yield Triple(endpoint.iri, tmp["changes"], Term(f"<{endpoint.changes_url}>"))
    for each in entry.parts:
        part = Term(f"<{endpoint.url}?predicate={quote(each.predicate[1:-1], safe='')}>")
        yield Triple(endpoint.iri, Term(f"<{VOID}propertyPartition>"), part)
        yield Triple(part, Term(f"<{VOID}property>"), each.predicate)
        yield Triple(part, Term(f"<{VOID}triples>"), integer(each.facts))
        yield Triple(part, tmp["dynamicTriples"], integer(each.live))
        yield Triple(part, tmp["updatesPerHour"], integer(each.updates))


def _dct(name: str) -> Term:
    return Term(f"<{DCTERMS}{name}>")


def _dcat(name: str) -> Term:
    return Term(f"<{DCAT}{name}>")


def index(site: Site, base: str, chosen: Chosen) -> Response:
    """Return the list of datasets in the chosen format."""
    entries = list(_entries(site, base))
    if isinstance(chosen.writer, HtmlWriter):
        body = render(
            "index.html",
            title=site.settings.title,
            site_title=site.settings.title,
            base=base,
            entries=entries,
            sparkline=sparkline,
            continuous=site.settings.continuous,
            description=site.settings.description,
            query_page=site.settings.watched_at and urljoin(base, site.settings.watched_at),
        )
        response = html_answer(body)
    else:
        response = rdf_answer(list(catalog(base, site.settings, entries)), chosen)
    response.headers["Cache-Control"] = "public, max-age=10"
    response.headers["Vary"] = "Accept"
    return response


def _parts(
    static: ColumnarStore | None, live: LiveStore, snapshot: Snapshot, in_both: Iterable[Quad]
) -> Iterator[_LivePart]:
    twice = Counter([quad.predicate for quad in in_both])
    for predicate, count, updates in live.predicates(snapshot):
        alike = EVERYTHING._replace(predicate=predicate)
        still = 0 if static is None else static.count(alike) - twice[predicate]
        yield _LivePart(predicate, still + count, count, updates)


def _entries(site: Site, base: str) -> Iterator[_CatalogEntry]:
    endpoints = site.endpoints(base)
    now = site.clock.now()
    for name, dataset in site.datasets.items():
        static, live = dataset.static, dataset.live
        snapshot = None if live is None else live.current(now)
        instants = [None if static is None else static.modified]
        parts, labellings, in_both = list[_LivePart](), list[str](), frozenset[Quad]()
        if live is not None and snapshot is not None:
            instants.append(live.modified(snapshot))
            in_both = dataset.in_both(snapshot)
            parts += _parts(static, live, snapshot, in_both)
            kinds: tuple[Labelling, ...] = ("expiration", "interval")
            labellings += [k for k in kinds if live.count(FactPattern(labelling=k), snapshot)]
        yield _CatalogEntry(
            endpoints[name],
            [endpoints[f"{name}/{view}"] for view in dataset.views],
            0 if static is None else static.count(EVERYTHING),
            None if live is None or snapshot is None else live.count(FactPattern(), snapshot),
            len(in_both),
            max((min(each, now) for each in instants if each is not None), default=None),
            () if live is None else live.updates(now),
            parts,
            labellings,
        )


# Serve the files of the page where queries are written and their answers watched.
#
# The browser evaluates the queries from fragments, as any client (`tpf_client.page_files`).

_TYPED: Final = 10_000
"""Live facts whose classes are counted at most."""
_READ: Final = Operation("Read the page", None, None, (304, 404))

QUERY_PAGE_RESOURCES: Final = {
    "query_page": Resource(
        "/query/",
        "The page where a query is written and its answer watched; the browser evaluates it.",
        {"GET": _READ},
    ),
    "query_words": Resource(
        "/query/words.json",
        "The predicates and classes of datasets (dataset, repeatable; absent: all), with their "
        "counts, most frequent first, and their prefixes: what an editor completes.",
        {"GET": _READ},
    ),
    "query_file": Resource("/query/<path:file>", "What belongs to the page.", {"GET": _READ}),
    "dataset_query_page": Resource(
        "/<name>/query/",
        "Leads to the same page, for this dataset.",
        {"GET": Operation("Find the page", None, None, (303, 404))},
    ),
}
"""By the names of their rules."""


def read_examples(settings: Settings) -> list[Example]:
    """Read the queries that pages offer."""
    return [read_example(file) for file in example_files(settings.query_examples)]


def vocabulary(
    datasets: Iterable[tuple[OpenDataset, Endpoint]], now: datetime
) -> dict[str, object]:
    """Return the predicates and classes of datasets with their counts, and their prefixes."""
    predicates, classes = Counter[Term](), Counter[Term]()
    prefixes: dict[str, str] = {}
    for dataset, endpoint in datasets:
        prefixes |= endpoint.prefixes
        static, live = dataset.static, dataset.live
        counts = {} if static is None else dict(static.frequent())
        if static is not None:
            classes.update(dict(static.frequent(RDF_TYPE)))
        snapshot = None if live is None else live.current(now)
        if live is not None and snapshot is not None:
            in_both = dataset.in_both(snapshot)
            parts = _parts(static, live, snapshot, in_both)
            counts |= {each.predicate: each.facts for each in parts if each.facts}
            typed = live.facts(FactPattern(predicate=RDF_TYPE), snapshot, 0, _TYPED)
            classes.update(fact.quad.object for fact in typed if fact.quad not in in_both)
        predicates.update(counts)

    def named(counts: Counter[Term]) -> list[tuple[str, int]]:
        return [(term[1:-1], count) for term, count in counts.most_common() if is_iri(term)]

    return {"predicates": named(predicates), "classes": named(classes), "prefixes": prefixes}


class QueryPage:
    """Serve the page. Thread-safe."""

    def __init__(self, site: Site) -> None:
        self._site = site
        settings = site.settings
        self._page_settings = PageSettings(
            title=settings.title,
            examples=read_examples(settings),
            continuous="../queries" if settings.continuous else "",
            tiles=map_tiles(settings.query_map_tiles, settings.query_map_attribution),
        )
        self._files: PageFiles | None = None

    def blueprint(self) -> Blueprint:
        blueprint = Blueprint("query", __name__)

        def view(name: str = "", file: str = "") -> Response:
            base = base_of(request.environ, self._site.settings)
            if name:
                dataset = self._site.dataset(name).settings.name
                return by_method(READ_METHODS, lambda: see_other(f"{base}query/?dataset={dataset}"))
            # Of a part of an application, the name stands before.
            words = str(request.endpoint).endswith("query_words")
            return by_method(
                READ_METHODS, lambda: self._words(base) if words else self._file(base, file)
            )

        for name, resource in QUERY_PAGE_RESOURCES.items():
            blueprint.add_url_rule(
                resource.rule, name, view, methods=ALL_METHODS, provide_automatic_options=False
            )
        return blueprint

    def _words(self, base: str) -> Response:
        endpoints = self._site.endpoints(base)
        names = dict.fromkeys(request.args.getlist("dataset")) or self._site.datasets
        chosen = [(self._site.dataset(name), endpoints[name]) for name in names]
        response = json_answer(vocabulary(chosen, self._site.clock.now()))
        response.headers["Cache-Control"] = "max-age=10"
        return response

    def _file(self, base: str, name: str) -> Response:
        if self._files is None:
            # Put together when somebody first wants it: most workers serve fragments alone.
            self._files = PageFiles(self._page_settings)
        files = self._files
        if name == "page.json":
            urls = [base + each for each in self._site.datasets]
            files = PageFiles(self._page_settings.over(urls))
        if name not in files:
            raise NotFoundError(f"the page has no {name}")
        status, headers, body = files.answer(request.environ, name)
        content = b"" if request.method == "HEAD" else body
        more = [NO_SNIFFING, ("Vary", "Accept-Encoding")]
        return AsGiven(f"{status.value} {status.phrase}", [*headers, *more], content)
