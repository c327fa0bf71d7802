"""RDF in the body of a request."""

from collections.abc import Iterable

import pyoxigraph

from annotations.errors import NestingError
from annotations.terms import Quad, Term
from tpf_server.errors import BodyError, MediaTypeError
from tpf_server.store.static.ox_terms import parse_rdf, read_quads, text_of
from tpf_server.store.static.rdf_files import NOWHERE, relative_iri


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
    base = NOWHERE if rdf_format == pyoxigraph.RdfFormat.JSON_LD else None
    try:
        # Blank nodes of two bodies are different nodes.
        quads = list(read_quads(body, rdf_format, base=base, rename=True))
    except NestingError as error:
        raise BodyError(str(error)) from None
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise BodyError(f"{line}{error.msg}") from None
    for quad in quads if base else ():
        relative = relative_iri(quad)
        if relative is not None:
            raise BodyError(f"a relative IRI: {relative!r}")
    return quads


def check_terms(terms: Iterable[Term]) -> None:
    """See to it that terms which no parser has made are what a parser would make of them.

    Raises:
        BodyError: one of them is malformed, or not in canonical form.
    """
    for term in terms:
        line = f"<urn:x> <urn:x> {term} .".encode()
        try:
            (triple,) = parse_rdf(line, pyoxigraph.RdfFormat.N_TRIPLES)
        except (SyntaxError, ValueError):
            triple = None
        if triple is None or text_of(triple.object) != term:
            raise BodyError(f"not a term: {term}")
