"""RDF in the body of a request."""

import pyoxigraph

from annotations.errors import NestingError
from annotations.nesting import check_nesting
from annotations.terms import Quad, Term, Triple, triple_term
from tpf_server.errors import BodyError, MediaTypeError
from tpf_server.store.rdf_files import NOWHERE, relative_iri


def parse_body(body: bytes, media_type: str) -> list[Quad]:
    """The quads of a body.

    Raises:
        MediaTypeError: an unknown format.
        BodyError: the body is malformed; the message names the line.
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
        quads = [
            Quad(
                Term(str(quad.subject)),
                Term(str(quad.predicate)),
                _object(quad.object),
                Term("")
                if isinstance(quad.graph_name, pyoxigraph.DefaultGraph)
                else Term(str(quad.graph_name)),
            )
            for quad in parsed
        ]
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


def _object(term: object) -> Term:
    if isinstance(term, pyoxigraph.Triple):
        return triple_term(Triple(*[_object(part) for part in term]))
    return Term(str(term))
