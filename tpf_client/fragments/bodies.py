"""From the bytes of a response to quads."""

import math
from collections.abc import Callable

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.nesting import check_nesting
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_client.errors import ClosedError, PageTooLargeError, ParseError
from tpf_client.fragments.documentation import with_hydra_context

_BETWEEN = 1_000
"""Quads between two looks whether somebody still wants them."""
_TERM = 100
"""Bytes of memory that a term takes beside its characters."""


def essence(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def parse_page_body(
    body: bytes,
    media_type: str,
    url: str,
    most: float = math.inf,
    over: Callable[[], bool] = lambda: False,
) -> list[Quad]:
    """The quads of a body, with blank nodes as in the document.

    Args:
        body: what the server sent, decompressed.
        media_type: its ``Content-Type``; parameters are ignored.
        url: base for relative IRIs, and the URL that errors name.
        most: bytes of memory that the quads may take.
        over: whether nobody wants them any more; asked again and again.

    Raises:
        ParseError: not RDF, or not of the announced type.
        PageTooLargeError: it takes more memory.
        ClosedError: nobody wants them any more.
    """
    kind = essence(media_type)
    rdf_format = ox.RdfFormat.from_media_type(kind) if kind else None
    if rdf_format is None:
        raise ParseError(url, f"answered with {kind or 'no media type'} instead of RDF")
    graphs: dict[object, Term] = {}
    quads: list[Quad] = []
    size = 0
    if rdf_format == ox.RdfFormat.JSON_LD:
        body = with_hydra_context(body)
    try:
        for quad in quads_of_body(body, rdf_format, url):
            name = quad.graph_name
            graph = graphs.get(name)
            if graph is None:
                default = isinstance(name, ox.DefaultGraph)
                graph = graphs[name] = DEFAULT_GRAPH if default else Term(str(name))
            read = quad_of(quad, graph)
            size += quad_size(read)
            if size > most:
                # A prefix may stand for much.
                raise PageTooLargeError(url, f"a page that takes more than {most} bytes of memory")
            quads.append(read)
            if len(quads) % _BETWEEN == 0 and over():
                raise ClosedError(f"{url}: the request was cancelled")
    except NestingError as error:
        raise ParseError(url, f"{kind} that is not read: {error}") from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ParseError(url, f"malformed {kind}: {reason}") from error
    return quads


def quads_of_body(body: bytes, rdf_format: ox.RdfFormat, url: str) -> ox.QuadParser:
    """Parse a body; all RDF that the client reads comes through here.

    Raises:
        NestingError: it cannot be parsed without harm.
        SyntaxError: it is malformed; raised while it is iterated over.
        ValueError: the URL is no IRI.
    """
    check_nesting((body,), rdf_format.media_type, base=url)
    return ox.parse(body, rdf_format, base_iri=url)


def quad_of(parsed: ox.Quad, graph: Term) -> Quad:
    """What was parsed as a quad of ours, in this graph."""
    value = parsed.object
    object_ = _triple_term(value) if isinstance(value, ox.Triple) else Term(str(value))
    return Quad(Term(str(parsed.subject)), Term(str(parsed.predicate)), object_, graph)


def quad_size(quad: Quad) -> int:
    """Bytes of memory that a quad takes."""
    return len(quad[0]) + len(quad[1]) + len(quad[2]) + 3 * _TERM


def _triple_term(triple: ox.Triple) -> Term:
    subject, object_ = triple.subject, triple.object
    inner = _triple_term(object_) if isinstance(object_, ox.Triple) else str(object_)
    return Term(f"<<( {subject} {triple.predicate} {inner} )>>")
