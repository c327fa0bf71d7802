"""Convert terms of pyoxigraph. `parse_rdf` refuses input that would harm the parser."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import TypeAlias

import pyoxigraph as ox

from annotations.nesting import (
    bounded_statements,
    check_nesting,
    short_terms,
    without_versions,
)
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    Triple,
    is_blank_node,
    is_iri,
    is_literal,
    is_triple_term,
    literal_parts,
    triple_of_term,
    triple_term,
)

OxTerm: TypeAlias = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def ox_term(term: Term) -> OxTerm:
    """Return the pyoxigraph term of a canonical text."""
    if is_iri(term):
        return ox.NamedNode(term[1:-1])
    if is_literal(term):
        lexical, language, datatype = literal_parts(term)
        if language is None:
            return ox.Literal(lexical, datatype=ox.NamedNode(datatype))
        tag, _, direction = language.partition("--")
        if direction:
            side = ox.BaseDirection.RTL if direction == "rtl" else ox.BaseDirection.LTR
            return ox.Literal(lexical, language=tag, direction=side)
        return ox.Literal(lexical, language=tag)
    if is_blank_node(term):
        return ox.BlankNode(term[2:])
    assert is_triple_term(term)
    return ox.Triple(*(ox_term(part) for part in triple_of_term(term)))  # type: ignore[arg-type]


def text_of(term: OxTerm) -> Term:
    """Return the canonical text of a pyoxigraph term."""
    if isinstance(term, ox.Triple):
        # As a text of its own it has no brackets.
        parts = (text_of(term.subject), text_of(term.predicate), text_of(term.object))
        return triple_term(Triple(*parts))
    return Term(str(term))


def _parsed_quad(quad: ox.Quad) -> Quad:
    graph = quad.graph_name
    return Quad(
        Term(str(quad.subject)),
        Term(str(quad.predicate)),
        text_of(quad.object),
        DEFAULT_GRAPH if isinstance(graph, ox.DefaultGraph) else Term(str(graph)),
    )


def parse_rdf(
    content: bytes, rdf_format: ox.RdfFormat, *, base: str | None = None, rename: bool = False
) -> Iterator[ox.Quad]:
    """Parse a document in memory; iterating raises `SyntaxError` where it is malformed."""
    content = without_versions(content.removeprefix(BOM_UTF8), rdf_format.media_type)
    check_nesting((content,), rdf_format.media_type, base=base or "")
    parsed = ox.parse(content, rdf_format, base_iri=base, rename_blank_nodes=rename)
    return short_terms(parsed, content)


def read_quads(
    content: bytes, rdf_format: ox.RdfFormat, *, base: str | None = None, rename: bool = False
) -> Iterator[Quad]:
    """Return the quads of a document, unless they are much larger than it; see `parse_rdf`."""
    parsed = parse_rdf(content, rdf_format, base=base, rename=rename)
    return bounded_statements(map(_parsed_quad, parsed), len(content))
