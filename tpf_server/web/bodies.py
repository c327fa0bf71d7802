"""Read request bodies: whole, within a limit, and few at a time."""

import hmac
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import pyoxigraph
from flask import Request
from werkzeug.exceptions import ClientDisconnected

from annotations.errors import NestingError
from annotations.terms import Quad, Term
from tpf_server.errors import (
    BodyError,
    BodyTooLargeError,
    BusyError,
    ForbiddenError,
    LengthRequiredError,
    MediaTypeError,
    UnauthorizedError,
)
from tpf_server.store.static.ox_terms import parse_rdf, read_quads, text_of
from tpf_server.store.static.rdf_files import NOWHERE, relative_iri
from tpf_server.workers import MOST_AT_ONCE

# RDF in the body of a request.


def parse_body(body: bytes, media_type: str) -> list[Quad]:
    """Return the quads of a body."""
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
    """Refuse terms that no parser has checked and that are malformed or not canonical."""
    for term in terms:
        line = f"<urn:x> <urn:x> {term} .".encode()
        try:
            (triple,) = parse_rdf(line, pyoxigraph.RdfFormat.N_TRIPLES)
        except (SyntaxError, ValueError):
            triple = None
        if triple is None or text_of(triple.object) != term:
            raise BodyError(f"not a term: {term}")


# Bearer tokens (RFC 6750): who may change what, and see what is not for everybody.


def authorize(request: Request, token: str, what: str) -> None:
    """Check the bearer token of a request; `ForbiddenError` where none is configured."""
    if not token:
        raise ForbiddenError(f"{what} is off: the server has no publish_token")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthorizedError(f"{what} needs Authorization: Bearer TOKEN")
    if not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise UnauthorizedError("this is not the right token")


class BodyReader:
    """Read the bodies of requests of one worker.

    `limit` is the most bytes; `watched` bounds the time in which bodies are exchanged.
    """

    def __init__(
        self, limit: int, watched: Callable[[str], AbstractContextManager[None]] | None = None
    ) -> None:
        self.limit = limit
        self.watched = watched or nullcontext
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def read(self, request: Request) -> bytes:
        _check_encoding(request)
        length = request.content_length
        if length is None:
            raise LengthRequiredError("a body needs its Content-Length; it cannot be chunked")
        if length > self.limit:
            raise BodyTooLargeError(f"a body has at most {self.limit} bytes, not {length}")
        if not self._free.acquire(blocking=False):
            raise BusyError(f"{MOST_AT_ONCE} bodies are arriving already; try again")
        try:
            with self.watched(request.remote_addr or ""):
                body = request.stream.read(length)
        except (ClientDisconnected, OSError):
            body = b""
        finally:
            self._free.release()
        if len(body) < length:
            raise BodyError(f"the body ended before its Content-Length of {length} bytes")
        return body


def _check_encoding(request: Request) -> None:
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding != "identity":
        raise MediaTypeError(f"a body cannot be encoded ({coding}) here: send it as it is")
    # All formats of RDF are UTF-8; read as that, another encoding could be taken for other text.
    charset = request.mimetype_params.get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "us-ascii"):
        raise MediaTypeError(f"a body is in UTF-8, not in {charset}")
