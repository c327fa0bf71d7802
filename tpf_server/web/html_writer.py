"""HTML of a fragment: the front of a dataset, the page of a subject, the matches of a pattern."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urljoin

from markupsafe import Markup

from annotations.instants import format_instant, from_micros
from annotations.labels import Interval
from annotations.methods.base import FactPattern
from annotations.namespaces import DCTERMS, FOAF, RDF_TYPE, RDFS
from annotations.terms import (
    Quad,
    QuadPattern,
    Term,
    TermOrVariable,
    iri_value,
    is_iri,
    is_literal,
    is_variable,
    literal_parts,
)
from annotations.urls import parameter_of_term
from tpf_server.fragments.dataset import EVERYTHING
from tpf_server.fragments.endpoint import Endpoint, made_once
from tpf_server.fragments.fragment import Fragment, PinnedRequest, evaluate, last_modified
from tpf_server.fragments.pattern import POSITIONS
from tpf_server.fragments.request import FragmentRequest
from tpf_server.fragments.view import VIEW_METHODS
from tpf_server.fragments.writers import WRITERS
from tpf_server.settings import PLAIN
from tpf_server.web.html import (
    FormField,
    TermCells,
    instant_field,
    markup,
    render,
    sparkline,
    time_line,
)

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
_LANGUAGES = (None, "", "en")
"""Languages of names that are preferred."""
_MOST_NAMES = 20
"""Names of a term that are looked at."""
_MOST_SHOWN = 30
"""Predicates and classes on the front of a dataset."""
_MOST_VERSIONS = 500
"""Versions of the facts about a subject that its page shows."""
_MOST_INCOMING = 20
_FIRST_QUERY = "SELECT * WHERE { ?s ?p ?o } LIMIT 10"
HINTS = {
    "subject": "an IRI",
    "predicate": "an IRI",
    "object": 'an IRI or "text"',
    "graph": "an IRI",
}


class HtmlWriter:
    """Write HTML. `query_page`: where queries are asked, a URL or relative to each dataset."""

    name = "HTML"
    suffix = "html"
    media_types = ("text/html",)

    def __init__(
        self, title: str, query_page: str = "", examples: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._title = title
        self._query_page = query_page
        self._examples = examples

    def write(self, fragment: Fragment) -> str:
        query = fragment.query
        endpoint, request = query.endpoint, query.request
        subject = request.pattern.subject
        heading, is_subject = endpoint.title, is_iri(subject)
        if is_subject:
            heading = _cells_of(endpoint).name_of(Term(subject)) or _label(fragment)
        has_graphs = any(fragment.rows.columns.graphs) or not is_variable(request.pattern.graph)
        common: dict[str, Any] = {
            "title": f"{heading or endpoint.title} – {self._title}",
            "site_title": self._title,
            "base": endpoint.base,
            "endpoint": endpoint,
            "heading": heading or iri_value(subject),
            "renewed": _renewed(query),
            "now": query.now,
            "form": _form(query),
            "has_graphs": has_graphs,
            "downloads": [(writer.name, _suffixed(fragment, writer.suffix)) for writer in WRITERS],
            "views": _views(endpoint, request.query),
            "watch": self._asked(endpoint, _watching(request.pattern)),
        }
        if not request.parameters:
            return render("front.html", **common, **self._front(fragment))
        return render(
            "fragment.html",
            **common,
            subject=iri_value(subject) if is_subject else "",
            original=request.original_url,
            counts=_counts(fragment),
            total=fragment.total,
            dynamic=f"{fragment.dynamic:,}" if fragment.dynamic else "",
            pinned=_pinned(fragment),
            past=request.snapshot is not None,
            until=query.state.next_change,
            rows=[] if is_subject else list(self._rows(fragment, POSITIONS[: 3 + has_graphs])),
            groups=self._groups(fragment) if is_subject else {},
            history=self._history(query) if is_subject else [],
            incoming=self._incoming(query),
            pages=_pages(fragment),
            elsewhere=_elsewhere(endpoint, request),
            timemap=_timemap(query),
        )

    def _asked(self, endpoint: Endpoint, text: str) -> str:
        """The URL of the query page for a query; empty: there is none."""
        page = self._query_page and urljoin(_root(endpoint), self._query_page)
        return page and f"{page}#{urlencode({'query': text}, quote_via=quote)}"

    def _front(self, fragment: Fragment) -> dict[str, object]:
        query = fragment.query
        endpoint, dataset = query.endpoint, query.endpoint.dataset
        static, live = dataset.static, dataset.live
        figures: dict[Term, list[int]] = {}
        for predicate, count in () if static is None else static.frequent():
            figures[predicate] = [count, 0, 0]
        if live is not None and query.snapshot is not None:
            for predicate, *counts in live.predicates(query.snapshot):
                figures.setdefault(predicate, [0, 0, 0])[1:] = counts
        cells = _cells_of(endpoint)
        modified = last_modified(query)

        def shown(pattern: QuadPattern, position: str, other: str) -> dict[str, object]:
            example = _example(query, pattern)
            return {
                "cell": markup(cells.cell(position, getattr(pattern, position))),
                "example": markup(cells.cell(other, getattr(example, other), named=True))
                if example
                else "",
                "watch": self._asked(endpoint, _watching(pattern)),
            }

        order = sorted(figures, key=lambda each: (not any(figures[each][1:]), -sum(figures[each])))
        predicates = [
            shown(EVERYTHING._replace(predicate=each), "predicate", "object")
            | {"counts": figures[each]}
            for each in order[:_MOST_SHOWN]
        ]
        frequent = () if static is None else static.frequent(RDF_TYPE)
        classes = [
            shown(EVERYTHING._replace(predicate=RDF_TYPE, object=each), "object", "subject")
            | {"count": count}
            for each, count in frequent[:_MOST_SHOWN]
        ]
        return {
            "settings": dataset.settings,
            "static": static.count(EVERYTHING) if static is not None else None,
            "live": fragment.dynamic if live is not None else None,
            "labels": " and ".join(f"{each}s" for each in fragment.labellings),
            "updates": sparkline(live.updates(query.now)) if live is not None else "",
            "modified": "" if modified is None else f"{modified:%Y-%m-%d %H:%M:%S}",
            "predicates": predicates,
            "more": len(figures) > _MOST_SHOWN,
            "classes": classes,
            "examples": [(title, self._asked(endpoint, text)) for title, text in self._examples]
            if self._query_page
            else [],
            "example": next((text.strip() for _, text in self._examples), _FIRST_QUERY),
        }

    def _rows(
        self, fragment: Fragment, positions: Sequence[str]
    ) -> Iterator[tuple[Markup, object]]:
        """Return the cells of each row, and its label."""
        cell = _cells_of(fragment.query.endpoint).cell
        columns = [
            [cell(position, term) for term in terms]
            for position, terms in zip(positions, fragment.rows.columns, strict=False)
        ]
        for label, *cells in zip(fragment.rows.labels, *columns, strict=True):
            yield markup(f"<td>{'</td><td>'.join(cells)}</td>"), label

    def _groups(self, fragment: Fragment) -> dict[Markup, list[tuple[Markup, Markup, object]]]:
        """Return the objects of each predicate, with their graphs and labels."""
        cell = _cells_of(fragment.query.endpoint).cell
        columns, labels = fragment.rows
        groups: dict[Markup, list[tuple[Markup, Markup, object]]] = {}
        for predicate, value, graph, label in zip(*columns[1:], labels, strict=True):
            shown = markup(cell("object", value, named=True))
            groups.setdefault(markup(cell("predicate", predicate)), []).append(
                (shown, markup(cell("graph", graph)), label)
            )
        return groups

    def _history(self, query: PinnedRequest) -> list[dict[str, object]]:
        """Each fact about a subject with its intervals, and a time line."""
        endpoint, live, snapshot = query.endpoint, query.endpoint.dataset.live, query.snapshot
        if live is None or snapshot is None:
            return []
        # Whatever the view shows, the history is that of the facts themselves.
        asked = VIEW_METHODS[PLAIN].match(query.request.pattern, endpoint.view.naming)[0].facts
        lines: dict[tuple[Term, ...], list[tuple[Interval, Term]]] = {}
        for quad, label in live.history(asked, snapshot, _MOST_VERSIONS):
            assert isinstance(label, Interval)
            _, predicate, value, graph = endpoint.skolemizer.quad(quad)
            key = (predicate, graph) if endpoint.fact_key != "triple" else (predicate, graph, value)
            values = lines.setdefault(key, [])
            if values and values[-1][1] == value and values[-1][0].end == label.start:
                label = Interval(values.pop()[0].start, label.end)
            values.append((label, value))
        now = from_micros(snapshot.instant)
        begin = min((values[0][0].start for values in lines.values()), default=now)
        cells = _cells_of(endpoint)
        return [
            {
                "cell": markup(cells.cell("predicate", predicate)),
                "line": time_line(values, begin, now),
                "begin": begin,
                "now": now,
                "versions": [
                    (markup(cells.cell("object", value, named=True)), label)
                    for label, value in reversed(values)
                ],
            }
            for (predicate, *_), values in lines.items()
        ]

    def _incoming(self, query: PinnedRequest) -> dict[str, object] | None:
        leading = incoming(query)
        if leading is None:
            return None
        fragment = evaluate(leading)
        cell = _cells_of(query.endpoint).cell
        return {
            "total": fragment.total,
            "url": leading.request.page_url,
            "rows": [
                (markup(cell("subject", subject, named=True)), markup(cell("predicate", predicate)))
                for subject, predicate in zip(*fragment.rows.columns[:2], strict=True)
            ],
        }


@made_once
def _cells_of(endpoint: Endpoint) -> TermCells:
    name_of = _names_in(endpoint)
    return TermCells(endpoint.url, endpoint.base, endpoint.prefixes, name_of)


def incoming(query: PinnedRequest) -> PinnedRequest | None:
    """Return the request for what leads to a subject, where its own page is asked for."""
    pattern, endpoint = query.request.pattern, query.endpoint
    alone = is_iri(pattern.subject) and all(map(is_variable, pattern[1:]))
    if not alone or query.request.page > 1 or len(query.request.patterns) != 1:
        return None
    leading = EVERYTHING._replace(object=pattern.subject)
    request = query.request._replace(
        pattern=leading,
        patterns=(leading,),
        limit=_MOST_INCOMING,
        page_url=f"{endpoint.url}?object={_quoted(pattern.subject)}",
    )
    state = endpoint.view.state((leading,), query.snapshot)
    return query._replace(request=request, state=state)


def as_shown(query: PinnedRequest) -> PinnedRequest:
    """Return a request that is fresh until all that its page for people shows changes."""
    leading = incoming(query)
    changes = [each.state.next_change for each in (query, leading) if each is not None]
    first = min((each for each in changes if each is not None), default=None)
    return query._replace(state=query.state._replace(next_change=first))


def _names_in(endpoint: Endpoint) -> Callable[[Term], str]:
    """Return what names terms by the static facts of a dataset; empty: nothing does."""
    static = endpoint.dataset.static
    if static is None:
        return lambda _: ""
    named = [EVERYTHING._replace(predicate=name) for name in _NAMES]
    patterns = [pattern for pattern in named if static.count(pattern)]

    def name(term: Term) -> str:
        if not is_iri(term):
            return ""
        for pattern in patterns:
            values = static.columns(pattern._replace(subject=term), 0, _MOST_NAMES).objects
            parts = [literal_parts(value) for value in values if is_literal(value)]
            for part in sorted(parts, key=lambda each: each.language not in _LANGUAGES):
                if part.lexical.strip():
                    return part.lexical
        return ""

    return lru_cache(4096)(name)


def _example(query: PinnedRequest, pattern: QuadPattern) -> Quad | None:
    static, live = query.endpoint.dataset.static, query.endpoint.dataset.live
    quads = () if static is None else static.quads(pattern, 0, 1)
    if not quads and live is not None and query.snapshot is not None:
        facts = live.facts(FactPattern(predicate=Term(pattern.predicate)), query.snapshot, 0, 1)
        quads = [fact.quad for fact in facts]
    return query.endpoint.skolemizer.quad(quads[0]) if quads else None


def _form(query: PinnedRequest) -> list[FormField]:
    request = query.request
    fields = [FormField(name, request.parameters.get(name, ""), HINTS[name]) for name in POSITIONS]
    if query.snapshot is not None:
        for name, instant in (("at", request.at), ("known", request.known)):
            fields.append(instant_field(name, instant))
    return fields


def _renewed(query: PinnedRequest) -> datetime | None:
    """Return when a page is to be read again; pages of the past never are."""
    past = query.request.snapshot or query.request.at or query.request.known
    return None if past else query.state.next_change


def _elsewhere(endpoint: Endpoint, request: FragmentRequest) -> list[tuple[str, str]]:
    _, predicate, object_, _ = request.pattern
    return [
        (f"Facts about the {what}", f"{endpoint.url}?subject={_quoted(term)}")
        for what, term in (("predicate", predicate), ("object", object_))
        if is_iri(term)
    ]


def _quoted(term: TermOrVariable) -> str:
    return quote(parameter_of_term(Term(term)), safe="")


def _timemap(query: PinnedRequest) -> str:
    _, mark, rest = query.request.original_url.partition("?")
    return "" if query.snapshot is None else f"{query.endpoint.url}/timemap{mark}{rest}"


def _watching(pattern: QuadPattern) -> str:
    # Variables without a name have one that nobody can write.
    subject, predicate, object_, graph = [
        f"?its_{term[2:]}" if term.startswith("?.") else term for term in pattern
    ]
    triple = f"{subject} {predicate} {object_} ."
    if graph and not is_variable(graph):
        triple = f"GRAPH {graph} {{ {triple} }}"
    if not any(is_variable(term) for term in (subject, predicate, object_)):
        triple += " BIND (true AS ?holds)"
    return f"SELECT * WHERE {{\n  {triple}\n}}\nLIMIT 1000"


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
    request = fragment.query.request
    if request.snapshot is not None:
        return format_instant(from_micros(request.snapshot.instant))
    instant = request.at or request.known
    return "" if instant is None else format_instant(instant)


def _pages(fragment: Fragment) -> list[tuple[str, str]]:
    """Return the links to other pages; none where there is one page only."""
    links = fragment.links
    if not {"previous", "next"} & set(links):
        return []
    return [(name, links[name]) for name in ("first", "previous", "next", "last") if name in links]


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
