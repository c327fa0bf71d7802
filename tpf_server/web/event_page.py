"""A node of an event stream, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from markupsafe import escape

from annotations.namespaces import (
    ACTIVITY,
    DCTERMS,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_SUBJECT,
    RDF_TYPE,
    TREE,
)
from annotations.terms import Term, Triple, literal_parts
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.writers import WRITERS
from tpf_server.web.html import render
from tpf_server.web.html_terms import TermCells, table_rows

_CREATED: Final = Term(f"<{DCTERMS}created>")
_NODE: Final = Term(f"<{TREE}node>")
_VALUE: Final = Term(f"<{TREE}value>")
_DELETE: Final = Term(f"<{ACTIVITY}Delete>")
_BOUNDS: Final = {"GreaterThanOrEqualToRelation": "from", "LessThanOrEqualToRelation": "until"}

_Described = Mapping[Term, Mapping[Term, Sequence[Term]]]


def event_page(endpoint: Endpoint, triples: Sequence[Triple], path: str, title: str) -> str:
    """The page of a node.

    Args:
        endpoint: the dataset at its own URL.
        triples: of the node.
        path: what is asked for, relative to the stream: ``?page=3``.
        title: of the site.
    """
    described: dict[Term, dict[Term, list[Term]]] = {}
    for subject, predicate, value in triples:
        described.setdefault(subject, {}).setdefault(predicate, []).append(value)
    return render(
        "events.html",
        title=f"{endpoint.title}: what was said – {title}",
        site_title=title,
        base=endpoint.base,
        endpoint=endpoint,
        path=path,
        links=list(_links(described)),
        rows=table_rows(list(_rows(endpoint, described))),
        formats=[(writer.name, writer.media_types[0]) for writer in WRITERS],
    )


def _links(described: _Described) -> Iterator[tuple[str, str]]:
    """Where the node leads to, and what is said of that."""
    found: dict[str, list[str]] = {}
    for about in described.values():
        for target in about.get(_NODE, ()):
            bounds = found.setdefault(target[1:-1], [])
            instant = _text(about, _VALUE)
            name = about[RDF_TYPE][0][len(TREE) + 1 : -1]
            if instant and name in _BOUNDS:
                bounds.append(f"{_BOUNDS[name]} {instant}")
    for url, bounds in found.items():
        yield url, " ".join(bounds)


def _rows(endpoint: Endpoint, described: _Described) -> Iterator[str]:
    cells, tmp = TermCells(endpoint.url, endpoint.base, endpoint.prefixes), endpoint.vocabulary
    for about in described.values():
        if RDF_SUBJECT not in about:
            continue
        places = (("subject", RDF_SUBJECT), ("predicate", RDF_PREDICATE), ("object", RDF_OBJECT))
        shown = [cells.cell(position, about[name][0]) for position, name in places]
        shown.append(cells.cell("graph", about[tmp.graph][0]) if tmp.graph in about else "")
        start, end = _text(about, tmp.initial), _text(about, tmp.final)
        valid = f"{start} to {end}" if start else _text(about, tmp.expiration)
        what = "withdrawn" if _DELETE in about[RDF_TYPE] else "said"
        cells_of_row = (escape(_text(about, _CREATED)), what, *shown, escape(valid))
        yield "<tr>" + "".join(f"<td>{each}</td>" for each in cells_of_row) + "</tr>\n"


def _text(about: Mapping[Term, Sequence[Term]], name: Term) -> str:
    values = about.get(name)
    return literal_parts(values[0])[0] if values else ""
