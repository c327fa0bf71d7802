"""RDF in the body of a request."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph

from annotations.errors import NestingError
from annotations.nesting import check_nesting
from annotations.terms import Quad, Term
from tpf_server.errors import BodyError, MediaTypeError
from tpf_server.store.static.ox_terms import parsed_quad, text_of
from tpf_server.store.static.rdf_files import NOWHERE, relative_iri
from tpf_server.web.growth import check_growth

MOST_CHARACTERS: Final = 64 * 2**20
MOST_GROWTH: Final = 8
"""How much the terms of a body may come to, written out: so many characters, and so many times its
bytes. A long prefix, base or vocabulary that every term repeats would take all memory."""


def parse_body(body: bytes, media_type: str) -> list[Quad]:
    """The quads of a body.

    Raises:
        MediaTypeError: an unknown format.
        BodyError: the body is malformed (the message names the line), nested too deep, or much
            larger when its prefixes are written out.
    """
    rdf_format = pyoxigraph.RdfFormat.from_media_type(media_type) if media_type else None
    if rdf_format is None:
        raise MediaTypeError(
            f"{media_type or 'no Content-Type'} is not a format of RDF that is read here; "
            "take application/n-quads, application/trig, text/turtle or application/ld+json"
        )
    check_body(body, rdf_format.media_type)
    base = NOWHERE if rdf_format == pyoxigraph.RdfFormat.JSON_LD else None
    # Blank nodes of two bodies are different nodes.
    parsed = pyoxigraph.parse(body, format=rdf_format, base_iri=base, rename_blank_nodes=True)
    try:
        quads = list(_bounded(map(parsed_quad, parsed), MOST_CHARACTERS + MOST_GROWTH * len(body)))
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise BodyError(f"{line}{error.msg}") from None
    for quad in quads if base else ():
        relative = relative_iri(quad)
        if relative is not None:
            raise BodyError(f"a relative IRI: {relative!r}")
    return quads


def check_body(body: bytes, media_type: str) -> None:
    """See to it that a body can be parsed without harm.

    Raises:
        BodyError: it is nested too deep, or would grow when it is read; the message names the line.
    """
    try:
        check_nesting((body,), media_type)
    except NestingError as error:
        raise BodyError(str(error)) from None
    check_growth(body, media_type)


def check_terms(terms: Iterable[Term]) -> None:
    """See to it that terms which no parser has made are what a parser would make of them.

    Raises:
        BodyError: one of them is malformed, or not in canonical form.
    """
    for term in terms:
        line = f"<urn:x> <urn:x> {term} .".encode()
        try:
            (triple,) = pyoxigraph.parse(line, format=pyoxigraph.RdfFormat.N_TRIPLES)
        except (SyntaxError, ValueError):
            triple = None
        if triple is None or text_of(triple.object) != term:
            raise BodyError(f"not a term: {term}")


def _bounded(quads: Iterable[Quad], most: int) -> Iterator[Quad]:
    characters = 0
    for quad in quads:
        subject, predicate, value, graph = quad
        characters += len(subject) + len(predicate) + len(value) + len(graph)
        if characters > most:
            raise BodyError(f"with its prefixes written out, the body has more than {most} bytes")
        yield quad
