"""The HTML page of a fragment: form, matches, their freshness, links to further pages."""

from datetime import datetime
from urllib.parse import quote, urlencode, urljoin

from markupsafe import Markup, escape

from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Label
from annotations.namespaces import DCTERMS, FOAF, RDF_TYPE, RDFS
from annotations.terms import (
    QuadPattern,
    Term,
    iri_value,
    is_iri,
    is_literal,
    is_variable,
    literal_parts,
)
from annotations.urls import parameter_of_term
from tpf_server.fragments.dataset import EVERYTHING
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import Fragment, PinnedRequest
from tpf_server.fragments.pattern import POSITIONS
from tpf_server.fragments.request import FragmentRequest
from tpf_server.fragments.writers import WRITERS
from tpf_server.web.html import TermCells, render, sparkline, table_rows

_NAMES = [
    Term(f"<{iri}>")
    for iri in (
        f"{RDFS}label",
        "http://www.w3.org/2004/02/skos/core#prefLabel",
        "http://schema.org/name",
        f"{FOAF}name",
        f"{DCTERMS}title",
    )
]
"""Predicates whose value names a subject, the best first."""
_MOST_SHOWN = 30
"""Predicates and classes on the front of a dataset."""
HINTS = {
    "subject": "an IRI",
    "predicate": "an IRI",
    "object": 'an IRI or "text"',
    "graph": "an IRI",
    "at": "now, or 2026-01-01T12:00:00Z",
    "known": "by what was published until then; now",
}


class HtmlWriter:
    """Write HTML."""

    name = "HTML"
    suffix = "html"
    media_types = ("text/html",)

    def __init__(self, title: str, query_page: str = "") -> None:
        self._title = title
        self._query_page = query_page
        self._cells: dict[Endpoint, TermCells] = {}

    def write(self, fragment: Fragment) -> str:
        """See `Writer`."""
        query = fragment.query
        endpoint, request = query.endpoint, query.request
        fields = POSITIONS if query.snapshot is None else (*POSITIONS, "at", "known")
        has_graphs = any(fragment.rows.columns.graphs)
        until = renewed = None
        if query.state.next_change is not None:
            until = _badge("changes at", query.state.next_change, query)
            if not _pinned(fragment):
                renewed = _milliseconds(query.state.next_change)
        subject = request.pattern.subject
        heading = _label(fragment) if is_iri(subject) else ""
        return render(
            "fragment.html",
            title=f"{heading or endpoint.title} – {self._title}",
            site_title=self._title,
            base=endpoint.base,
            endpoint=endpoint,
            heading=heading or (iri_value(subject) if is_iri(subject) else endpoint.title),
            one_subject=is_iri(subject),
            renewed=renewed,
            now=_milliseconds(query.now),
            original=request.original_url,
            front=None if request.parameters else self._front(fragment),
            form=[(name, request.parameters.get(name, "")) for name in fields],
            hints=HINTS,
            counts=_counts(fragment),
            total=fragment.total,
            dynamic=f"{fragment.dynamic:,}" if fragment.dynamic else "",
            pinned=_pinned(fragment),
            until=until,
            has_graphs=has_graphs or not is_variable(request.pattern.graph),
            rows=table_rows(self._rows(fragment)),
            pages=_pages(fragment, "pages"),
            pages_below=_pages(fragment, "pages, below the table"),
            downloads=[(writer.name, _suffixed(fragment, writer.suffix)) for writer in WRITERS],
            views=_views(endpoint, request.query),
            elsewhere=_elsewhere(endpoint, request),
            watch=self._asked(endpoint, request.pattern),
        )

    def _asked(self, endpoint: Endpoint, pattern: QuadPattern) -> str:
        """Return the URL at which the page of queries asks for a pattern; empty: there is none."""
        page = self._query_page and urljoin(_root(endpoint), self._query_page)
        return page and f"{page}#{_watching(pattern)}"

    def _front(self, fragment: Fragment) -> dict[str, object]:
        """Return what the front of a dataset says, above its first facts."""
        query = fragment.query
        endpoint, dataset = query.endpoint, query.endpoint.dataset
        static, live = dataset.static, dataset.live
        counts: dict[Term, list[int]] = {}
        for predicate, count in () if static is None else static.frequent():
            counts.setdefault(predicate, [0, 0])[0] = count
        if live is not None and query.snapshot is not None:
            for predicate, count in live.predicates(query.snapshot):
                counts.setdefault(predicate, [0, 0])[1] = count
        cell = self._cells_of(endpoint).cell
        open_pattern = query.request.pattern
        predicates = [
            {
                "cell": table_rows([cell("predicate", predicate)]),
                "static": f"{known:,}" if known else "",
                "live": f"{changing:,}" if changing else "",
                "watch": self._asked(endpoint, open_pattern._replace(predicate=predicate)),
            }
            for predicate, (known, changing) in sorted(
                counts.items(), key=lambda item: (item[1][1] == 0, -sum(item[1]), item[0])
            )[:_MOST_SHOWN]
        ]
        classes = [] if static is None else static.frequent(RDF_TYPE)
        return {
            "settings": dataset.settings,
            "static": static.count(EVERYTHING) if static is not None else None,
            "live": fragment.dynamic if live is not None else None,
            "updates": sparkline(live.updates(query.now)) if live is not None else "",
            "predicates": predicates,
            "more": len(counts) > _MOST_SHOWN,
            "classes": [
                (table_rows([cell("object", term)]), f"{count:,}")
                for term, count in classes[:_MOST_SHOWN]
            ],
        }

    def _rows(self, fragment: Fragment) -> list[str]:
        query = fragment.query
        cell = self._cells_of(query.endpoint).cell
        pattern_graph = query.request.pattern.graph
        graphs = not is_variable(pattern_graph) or any(fragment.rows.columns.graphs)
        lines = []
        columns, labels = fragment.rows
        one_subject = is_iri(query.request.pattern.subject)
        before: Term | None = None
        for subject, predicate, value, graph, label in zip(*columns, labels, strict=True):
            line = "<tr>"
            if not one_subject:
                line += f"<td>{cell('subject', subject)}</td>"
            # Values of one predicate stand below each other.
            again = one_subject and predicate == before
            line += f"<td>{'' if again else cell('predicate', predicate)}</td>"
            line += f"<td>{cell('object', value)}</td>"
            before = predicate
            if graphs:
                line += f"<td>{cell('graph', graph)}</td>"
            if fragment.dynamic:
                line += f"<td>{_validity(label, query)}</td>"
            lines.append(f"{line}</tr>\n")
        return lines

    def _cells_of(self, endpoint: Endpoint) -> TermCells:
        entry = self._cells.get(endpoint)
        if entry is None:
            if len(self._cells) >= 64:
                self._cells.clear()
            entry = self._cells[endpoint] = TermCells(
                endpoint.url, endpoint.base, endpoint.prefixes
            )
        return entry


def _validity(label: Label | None, query: PinnedRequest) -> str:
    return "" if label is None else _badge("valid until", label.end, query, label.start)


def _badge(what: str, end: datetime, query: PinnedRequest, start: datetime | None = None) -> Markup:
    now = query.now
    shown = f"{end:%H:%M:%S} UTC" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M} UTC"
    if query.request.snapshot is not None:
        # A page of a past instant never changes, so nothing counts down on it.
        return Markup('<time datetime="{}">{} {:%Y-%m-%d %H:%M:%S} UTC</time>').format(
            format_instant(end), what, end
        )
    left = max(0, round((end - now).total_seconds()))
    begun = Markup() if start is None else Markup(' data-start="{}"').format(_milliseconds(start))
    return Markup(
        '<time class="until" datetime="{}" data-end="{}" data-now="{}"{}>'
        "{} {}<span>, in {} s</span></time>"
    ).format(format_instant(end), _milliseconds(end), _milliseconds(now), begun, what, shown, left)


def _milliseconds(instant: datetime) -> int:
    return to_micros(instant) // 1000


def _elsewhere(endpoint: Endpoint, request: FragmentRequest) -> list[tuple[str, str]]:
    subject, predicate, object_, _ = request.pattern
    results = []
    for term, asked, what in (
        (subject, "object", "Facts that lead to it"),
        (predicate, "subject", "Facts about the predicate"),
        (object_, "subject", "Facts about the object"),
    ):
        if is_iri(term):
            value = quote(parameter_of_term(term), safe="")
            results.append((what, f"{endpoint.url}?{asked}={value}"))
    return results


def _watching(pattern: QuadPattern) -> str:
    """Return the pattern for the URL of the page that watches queries."""
    # Variables without a name have one that nobody can write.
    subject, predicate, object_, graph = [
        f"?its_{term[2:]}" if term.startswith("?.") else term for term in pattern
    ]
    triple = f"{subject} {predicate} {object_} ."
    if graph and not is_variable(graph):
        triple = f"GRAPH {graph} {{ {triple} }}"
    if not any(is_variable(term) for term in (subject, predicate, object_)):
        triple += " BIND (true AS ?holds)"
    return urlencode({"query": f"SELECT * WHERE {{\n  {triple}\n}}\nLIMIT 1000"}, quote_via=quote)


def _label(fragment: Fragment) -> str:
    """Return the name of the subject of a page, where its facts have one."""
    columns = fragment.rows.columns
    for name in _NAMES:
        for predicate, value in zip(columns.predicates, columns.objects, strict=True):
            if predicate == name and is_literal(value):
                return literal_parts(value).lexical
    return ""


def _counts(fragment: Fragment) -> str:
    if not fragment.rows.labels:
        return f"{fragment.total:,} items"
    request = fragment.query.request
    first = (request.page - 1) * request.limit + 1
    last = first + len(fragment.rows.labels) - 1
    return f"items {first:,}–{last:,} of {fragment.total:,}"


def _pinned(fragment: Fragment) -> str:
    """Return the instant that a page is about; empty: now."""
    request = fragment.query.request
    if request.snapshot is not None:
        return format_instant(from_micros(request.snapshot.instant))
    instant = request.at or request.known
    return "" if instant is None else format_instant(instant)


def _pages(fragment: Fragment, label: str) -> Markup:
    names = [name for name in ("first", "previous", "next", "last") if name in fragment.links]
    if not {"previous", "next"} & set(names):
        return Markup()  # there is one page only
    links = [f'<a href="{escape(fragment.links[name])}" rel="{name}">{name}</a>' for name in names]
    joined = Markup(" ".join(links))  # noqa: S704 - made of escaped parts
    return Markup('<nav aria-label="{}">{}</nav>\n').format(label, joined)


def _suffixed(fragment: Fragment, suffix: str) -> str:
    request, url = fragment.query.request, fragment.query.endpoint.url
    _, _, query = request.page_url.partition("?")
    return f"{url}.{suffix}" + (f"?{query}" if query else "")


def _views(endpoint: Endpoint, query: str) -> list[tuple[str, str]]:
    dataset = endpoint.dataset
    suffix = f"?{query}" if query else ""
    return [(name, f"{_root(endpoint)}{name}{suffix}") for name in dataset.views]


def _root(endpoint: Endpoint) -> str:
    return f"{endpoint.base}{endpoint.dataset.settings.name}/"
