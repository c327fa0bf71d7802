"""The HTML page of a fragment: form, matches, their freshness, links to further pages."""

from datetime import datetime
from urllib.parse import quote, urlencode, urljoin

from markupsafe import Markup, escape

from annotations.instants import format_instant, from_micros, to_micros
from annotations.labels import Label
from annotations.terms import QuadPattern, is_iri, is_variable
from annotations.urls import parameter_of_term
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import Fragment, PinnedRequest
from tpf_server.fragments.pattern import POSITIONS
from tpf_server.fragments.request import FragmentRequest
from tpf_server.fragments.writers import WRITERS
from tpf_server.web.html import TermCells, render, table_rows

_HINTS = {
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
        until = None
        if query.state.next_change is not None:
            until = _badge("changes at", query.state.next_change, query)
        return render(
            "fragment.html",
            title=f"{endpoint.title} – {self._title}",
            site_title=self._title,
            base=endpoint.base,
            endpoint=endpoint,
            form=[(name, request.parameters.get(name, "")) for name in fields],
            hints=_HINTS,
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
            watch=self._query_page
            and f"{urljoin(_root(endpoint), self._query_page)}#{_watching(request.pattern)}",
        )

    def _rows(self, fragment: Fragment) -> list[str]:
        query = fragment.query
        cell = self._cells_of(query.endpoint).cell
        pattern_graph = query.request.pattern.graph
        graphs = not is_variable(pattern_graph) or any(fragment.rows.columns.graphs)
        lines = []
        columns, labels = fragment.rows
        for subject, predicate, value, graph, label in zip(*columns, labels, strict=True):
            line = (
                f"<tr><td>{cell('subject', subject)}</td><td>{cell('predicate', predicate)}</td>"
                f"<td>{cell('object', value)}</td>"
            )
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


def _counts(fragment: Fragment) -> str:
    if not fragment.rows.labels:
        return f"{fragment.total:,} items"
    request = fragment.query.request
    first = (request.page - 1) * request.limit + 1
    last = first + len(fragment.rows.labels) - 1
    return f"items {first:,}–{last:,} of {fragment.total:,}"


def _pinned(fragment: Fragment) -> str:
    snapshot = fragment.query.request.snapshot
    return "" if snapshot is None else format_instant(from_micros(snapshot.instant))


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
