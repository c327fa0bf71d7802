"""``GET /{dataset}/ldes``: publications and withdrawals as a Linked Data Event Stream."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode

from flask import Request, Response

from annotations.instants import format_instant, from_micros, instant_term
from annotations.labels import Interval
from annotations.methods.names import minted
from annotations.namespaces import (
    ACTIVITY,
    DCTERMS,
    DEFAULT_VOCABULARY,
    LDES,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    TREE,
    VOID,
    XSD,
    integer,
)
from annotations.terms import Term, Triple
from tpf_server.errors import NotFoundError, RequestError, SnapshotExpired
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.fragment import entity_tag, matching_tag, short_digest
from tpf_server.fragments.pattern import POSITIONS
from tpf_server.fragments.writers import WRITERS
from tpf_server.fragments.writers.base import Chosen
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import BatchRun, FactEvent
from tpf_server.web.html import TermCells, markup, render
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.problems import rdf_answer
from tpf_server.web.responses import html_answer, without_body

# The nodes of a Linked Data FactEvent Stream: which batches are on which, and their triples.
#
# Batches are numbered, so a node is a run of numbers: a *leaf* has the members of `LEAF` batches,
# a *block* leads to `BLOCK` leaves, and the root leads to all blocks but the newest, and to the
# leaves of that one. So a node that is full never changes. A member is a version of a labelled
# fact: its statement from an instant on, or its end.
#
# Sources: *Linked Data FactEvent Streams*, version 1.0; the TREE hypermedia specification.

LEAF: Final = 64
"""Batches of a leaf."""
BLOCK: Final = 64
"""Leaves of a block."""
MEMBERS: Final = 1_000
"""Members of a page; a leaf that has more goes on."""
_CREATED: Final = Term(f"<{DCTERMS}created>")
_VERSION_OF: Final = Term(f"<{DCTERMS}isVersionOf>")
_DELETE: Final = Term(f"<{ACTIVITY}Delete>")
_SHACL: Final = "http://www.w3.org/ns/shacl#"


def _ldes(name: str) -> Term:
    return Term(f"<{LDES}{name}>")


def _tree(name: str) -> Term:
    return Term(f"<{TREE}{name}>")


class _Link(NamedTuple):
    """A relation of TREE to another node; `value`: the instant that bounds its members."""

    target: str
    kind: str = "Relation"
    value: int | None = None


class _Node(NamedTuple):
    """A node: its content, the state that it depends on; `full`: it changes by retention only."""

    query: str
    members: Sequence[FactEvent]
    links: Sequence[_Link]
    state: tuple[int, ...]
    full: bool = False


class _EventNodes:
    def __init__(self, endpoint: Endpoint, keep: timedelta) -> None:
        self._endpoint = endpoint
        self._keep = keep
        self._url = endpoint.ldes_url
        self._root = Term(f"<{self._url}>")
        self._stream = Term(f"<{self._url}#stream>")

    def triples(self, node: _Node) -> Iterator[Triple]:
        here = Term(f"<{self._url}{node.query}>")
        if node.query:
            yield from self._about(here)
        else:
            yield from self._front()
        # Where a member stands on its leaf is part of its name, and not on which part.
        page = f"{self._url}{node.query.partition('&')[0]}"
        for event in node.members:
            yield from self._member(Term(f"<{page}#{event.sequence}-{event.place}>"), event)
        for link in node.links:
            yield from self._link(here, link)

    def _front(self) -> Iterator[Triple]:
        endpoint, stream, root = self._endpoint, self._stream, self._root
        yield Triple(stream, RDF_TYPE, _ldes("EventStream"))
        yield Triple(stream, Term(f"<{DCTERMS}source>"), endpoint.iri)
        yield from self._about(root)
        if endpoint.vocabulary != DEFAULT_VOCABULARY:
            namespace = Term(f"<{endpoint.vocabulary.temporal}>")
            yield Triple(stream, Term(f"<{VOID}vocabulary>"), namespace)
        yield Triple(stream, _ldes("timestampPath"), _CREATED)
        yield Triple(stream, _ldes("versionOfPath"), _VERSION_OF)
        yield Triple(stream, _ldes("versionDeletePath"), RDF_TYPE)
        yield Triple(stream, _ldes("versionDeleteObject"), _DELETE)
        yield Triple(stream, _ldes("pollingInterval"), integer(max(1, int(endpoint.max_age))))
        retention = Term(f"<{self._url}#retention>")
        duration = Term(f'"PT{int(self._keep.total_seconds())}S"^^<{XSD}duration>')
        yield Triple(root, _ldes("retentionPolicy"), retention)
        yield Triple(retention, RDF_TYPE, _ldes("RetentionPolicy"))
        yield Triple(retention, _ldes("fullLogDuration"), duration)
        yield from self._shape()

    def links(self, spans: Sequence[BatchRun], kind: str) -> list[_Link]:
        """Return the links to runs of batches: blocks, or pages."""
        size = LEAF if kind == "page" else LEAF * BLOCK
        results = []
        for span in spans:
            target = f"{self._url}?{kind}={span.number}"
            results.append(_Link(target, "GreaterThanOrEqualToRelation", span.begin))
            if span.last == (span.number + 1) * size:
                results.append(_Link(target, "LessThanOrEqualToRelation", span.end))
        return results

    def next_part(self, number: int, part: int) -> _Link:
        return _Link(f"{self._url}?page={number}&part={part}")

    def _about(self, node: Term) -> Iterator[Triple]:
        yield Triple(self._stream, _tree("view"), node)
        yield Triple(node, RDF_TYPE, _tree("Node"))

    def _member(self, member: Term, event: FactEvent) -> Iterator[Triple]:
        endpoint, fact = self._endpoint, event.fact
        tmp, quad = endpoint.vocabulary, endpoint.skolemizer.quad(fact.quad)
        yield Triple(self._stream, _tree("member"), member)
        yield Triple(member, _VERSION_OF, minted("statement", fact, endpoint.view.naming))
        yield Triple(member, _CREATED, instant_term(from_micros(event.published)))
        yield Triple(member, RDF_TYPE, RDF_STATEMENT)
        yield Triple(member, RDF_SUBJECT, quad.subject)
        yield Triple(member, RDF_PREDICATE, quad.predicate)
        yield Triple(member, RDF_OBJECT, quad.object)
        if quad.graph:
            yield Triple(member, tmp.graph, quad.graph)
        if event.gone:
            yield Triple(member, RDF_TYPE, _DELETE)
        if isinstance(fact.label, Interval):
            yield Triple(member, tmp.initial, instant_term(fact.label.start))
            yield Triple(member, tmp.final, instant_term(fact.label.end))
        elif fact.label is not None:
            yield Triple(member, tmp.expiration, instant_term(fact.label.end))

    def _link(self, node: Term, link: _Link) -> Iterator[Triple]:
        name = f"{link.kind}-{link.target.rpartition('?')[2]}"
        relation = Term(f"<{node[1:-1].partition('#')[0]}#{name}>")
        yield Triple(node, _tree("relation"), relation)
        yield Triple(relation, RDF_TYPE, _tree(link.kind))
        yield Triple(relation, _tree("node"), Term(f"<{link.target}>"))
        if link.value is not None:
            yield Triple(relation, _tree("path"), _CREATED)
            yield Triple(relation, _tree("value"), instant_term(from_micros(link.value)))

    def _shape(self) -> Iterator[Triple]:
        shape = Term(f"<{self._url}#shape>")
        yield Triple(self._stream, _tree("shape"), shape)
        yield Triple(shape, RDF_TYPE, Term(f"<{_SHACL}NodeShape>"))
        kinds = {
            "version": (_VERSION_OF, "nodeKind", Term(f"<{_SHACL}IRI>")),
            "created": (_CREATED, "datatype", Term(f"<{XSD}dateTime>")),
        }
        for name, (path, constraint, value) in kinds.items():
            node = Term(f"<{self._url}#shape-{name}>")
            yield Triple(shape, Term(f"<{_SHACL}property>"), node)
            yield Triple(node, Term(f"<{_SHACL}path>"), path)
            yield Triple(node, Term(f"<{_SHACL}minCount>"), integer(1))
            yield Triple(node, Term(f"<{_SHACL}maxCount>"), integer(1))
            yield Triple(node, Term(f"<{_SHACL}{constraint}>"), value)


# A node of an event stream, for people.

_BOUNDS: Final = {"GreaterThanOrEqualToRelation": "from", "LessThanOrEqualToRelation": "until"}


def _event_page(endpoint: Endpoint, node: _Node, path: str, title: str) -> str:
    links: dict[str, list[str]] = {}
    for target, kind, value in node.links:
        bounds = links.setdefault(target, [])
        if value is not None:
            bounds.append(f"{_BOUNDS[kind]} {format_instant(from_micros(value))}")
    return render(
        "events.html",
        title=f"{endpoint.title}: what was said – {title}",
        site_title=title,
        base=endpoint.base,
        endpoint=endpoint,
        path=path,
        links=[(url, " ".join(bounds)) for url, bounds in links.items()],
        rows=list(_rows(endpoint, node.members)),
        formats=[(writer.name, writer.media_types[0]) for writer in WRITERS],
    )


def _rows(endpoint: Endpoint, members: Sequence[FactEvent]) -> Iterator[list[str]]:
    cells = TermCells(endpoint.url, endpoint.base, endpoint.prefixes)
    for event in members:
        quad, label = endpoint.skolemizer.quad(event.fact.quad), event.fact.label
        assert label is not None
        valid = format_instant(label.end)
        if label.start is not None:
            valid = f"{format_instant(label.start)} to {valid}"
        shown = [markup(cells.cell(name, term)) for name, term in zip(POSITIONS, quad, strict=True)]
        published = format_instant(from_micros(event.published))
        yield [published, "withdrawn" if event.gone else "said", *shown, valid]


_ALL: Final = 2**62
"""Batches of one run that has all of them."""
_NUMBER: Final = re.compile("[0-9]{1,12}")
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_PARAMETERS: Final = ("page", "block", "part")


def event_stream(endpoint: Endpoint, request: Request, chosen: Chosen, title: str = "") -> Response:
    """Return a node of the stream of a dataset."""
    live, keep = endpoint.dataset.live, endpoint.dataset.settings.event_stream
    if live is None or keep is None:
        raise NotFoundError(f"dataset {endpoint.dataset.settings.name} has no event stream")
    asked = _parameters(request)
    nodes = _EventNodes(endpoint, timedelta(seconds=keep))
    if "page" in asked:
        node = _leaf(live, nodes, asked["page"], asked.get("part", 1))
    elif "block" in asked:
        node = _block(live, nodes, asked["block"])
    else:
        node = _root(live, nodes)
    people = isinstance(chosen.writer, HtmlWriter)
    text = repr((endpoint.version, chosen.media_type, sorted(asked.items()), node.state))
    tag = entity_tag(short_digest(text), None)
    field = request.headers.get("If-None-Match")
    if field is not None and matching_tag(field, tag) is not None:
        response = without_body(304)
    else:
        response = (
            html_answer(_event_page(endpoint, node, urlencode(asked), title))
            if people
            else rdf_answer(list(nodes.triples(node)), chosen)
        )
    # Programs need not ask for a full node again; how people see it may change.
    recent = f"public, max-age={int(endpoint.max_age)}"
    response.headers["Cache-Control"] = _FOR_EVER if node.full and not people else recent
    response.headers["ETag"] = tag
    response.headers["Vary"] = "Accept"
    return response


def _parameters(request: Request) -> Mapping[str, int]:
    asked = {}
    for name in request.args:
        values = request.args.getlist(name)
        if name not in _PARAMETERS:
            raise RequestError(f"there is no parameter {name!r} here; there are page, block, part")
        if len(values) > 1 or not _NUMBER.fullmatch(values[0]):
            raise RequestError(f"{name} is a number, not {', '.join(map(repr, values))}")
        asked[name] = int(values[0])
    if "part" in asked and ("page" not in asked or not asked["part"]):
        raise RequestError("part is of a page, from 1: ?page=0&part=1")
    if "page" in asked and "block" in asked:
        raise RequestError("a node is a page or a block, not both")
    return asked


def _root(live: LiveStore, nodes: _EventNodes) -> _Node:
    blocks = live.spans(LEAF * BLOCK)
    leaves: Sequence[BatchRun] = ()
    if blocks:
        leaves = live.spans(LEAF, blocks[-1].number * LEAF * BLOCK)
    state = (blocks[0].first, blocks[-1].last) if blocks else ()
    links = [*nodes.links(blocks[:-1], "block"), *nodes.links(leaves, "page")]
    return _Node("", (), links, state)


def _block(live: LiveStore, nodes: _EventNodes, number: int) -> _Node:
    size = LEAF * BLOCK
    after = number * size
    leaves = live.spans(LEAF, after, after + size)
    if not leaves:
        raise _missing(live, after)
    first, last = leaves[0].first, leaves[-1].last
    full = (first, last) == (after + 1, after + size)
    return _Node(f"?block={number}", (), nodes.links(leaves, "page"), (first, last), full)


def _leaf(live: LiveStore, nodes: _EventNodes, number: int, part: int) -> _Node:
    after = number * LEAF
    spans = live.spans(LEAF, after, after + LEAF)
    if not spans:
        raise _missing(live, after)
    first, last = spans[0].first, spans[0].last
    events = live.events(after, last, (part - 1) * MEMBERS, MEMBERS + 1)
    if part > 1 and not events:
        raise NotFoundError(f"page {number} has no part {part}")
    more = len(events) > MEMBERS
    query = f"?page={number}" if part == 1 else f"?page={number}&part={part}"
    links = [nodes.next_part(number, part + 1)] if more else []
    full = first == after + 1 and (more or last == after + LEAF)
    # A part that has all it can have stays as it is while the leaf goes on.
    return _Node(query, events[:MEMBERS], links, () if full else (first, last), full)


def _missing(live: LiveStore, after: int) -> NotFoundError | SnapshotExpired:
    if live.spans(_ALL, after):
        return SnapshotExpired("what was published then is not kept any more")
    return NotFoundError("nothing was published that far yet")
