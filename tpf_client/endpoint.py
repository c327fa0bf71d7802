"""A SPARQL endpoint over fragments, for tools that speak the SPARQL protocol."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from ipaddress import ip_address
from itertools import chain, islice
from time import monotonic
from typing import TypeAlias
from urllib.parse import urlsplit

import rdflib

from tpf_client.client import Client
from tpf_client.errors import (
    ClientError,
    ClosedError,
    LimitError,
    QueryError,
    QuerySyntaxError,
)
from tpf_client.planner.budget import Allowance, Budget, Watch
from tpf_client.protocol import METHODS, Environment, RefusedError, negotiated, query_of
from tpf_client.solutions import Solutions, graph_text
from tpf_client.sparql.results import BOOLEAN_WRITERS, MEDIA_TYPES, ResultError

Headers: TypeAlias = list[tuple[str, str]]
StartResponse: TypeAlias = Callable[[str, Headers], object]

PATH = "/sparql"
"""Where queries are answered."""

GRAPH_TYPES = {
    "text/turtle": "turtle",
    "application/n-triples": "nt",
    "application/rdf+xml": "xml",
    "application/ld+json": "json-ld",
}
_SOLUTION_TYPES = {media: name for name, media in MEDIA_TYPES.items()}
_SOLUTION_ALIASES = {"application/json": "json", "application/xml": "xml", "text/xml": "xml"}
_CHUNK = 2**14
_PAUSE = 0.2

_log = logging.getLogger(__name__)


class Endpoint:
    """A WSGI application that answers SPARQL queries by a client; thread-safe.

    Close it when it is not needed any more: that stops the queries under way.

    Args:
        client: who answers.
        allowance: what each query may take.
        hosts: names that requests may call this server by, beside ``localhost`` and IP addresses;
            so no web page can reach it by a name of its own (DNS rebinding).
        origins: origins (``https://example.org``) whose web pages may ask; ``*``: any.
    """

    def __init__(
        self,
        client: Client,
        allowance: Allowance | None = None,
        *,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._client = client
        self._allowance = allowance or Allowance()
        self._hosts = frozenset(name.lower() for name in ("localhost", *hosts))
        self._origins = frozenset(each.lower() for each in origins)
        self._watch = Watch()

    @property
    def under_way(self) -> int:
        """How many queries are being answered."""
        return len(self._watch)

    def close(self) -> None:
        """Stop the queries under way."""
        self._watch.close()

    def __call__(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""
        headers: Headers = [("Vary", "Accept, Origin"), ("X-Content-Type-Options", "nosniff")]
        try:
            headers += self._welcome(environ)
            if environ["REQUEST_METHOD"] == "OPTIONS":
                start_response("204 No Content", [*headers, ("Allow", METHODS)])
                return []
            status = HTTPStatus.OK
            media_type, body = self._answer(environ)
        except (RefusedError, ClientError) as error:
            status, text = _failure(error)
            media_type, body = "text/plain; charset=utf-8", text.encode()
            if status is HTTPStatus.METHOD_NOT_ALLOWED:
                headers.append(("Allow", METHODS))
        headers.append(("Content-Type", media_type))
        if isinstance(body, bytes):
            headers.append(("Content-Length", str(len(body))))
        start_response(f"{status.value} {status.phrase}", headers)
        if environ["REQUEST_METHOD"] == "HEAD":
            if isinstance(body, _Streamed):
                body.close()
            return []
        return [body] if isinstance(body, bytes) else body

    def _welcome(self, environ: Environment) -> Headers:
        """Headers for whoever asks, where he may.

        Raises:
            RefusedError: he may not, or there is nothing here.
        """
        host = environ.get("HTTP_HOST", "localhost")
        if not self._is_ours(host):
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, f"this is not {_shown(host)}; see --allow-host"
            )
        headers: Headers = []
        origin = environ.get("HTTP_ORIGIN")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            if not self._origins & {"*", origin.lower()}:
                raise RefusedError(
                    HTTPStatus.FORBIDDEN,
                    f"pages of {_shown(origin)} may not ask here; see --allow-origin",
                )
            headers.append(("Access-Control-Allow-Origin", "*" if "*" in self._origins else origin))
            if "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
                headers += [
                    ("Access-Control-Allow-Methods", METHODS),
                    ("Access-Control-Allow-Headers", "Accept, Content-Type"),
                    ("Access-Control-Max-Age", "86400"),
                ]
        if environ.get("PATH_INFO", PATH) != PATH:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"queries are answered at {PATH}")
        return headers

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            # A page's own name can be made to mean our address, but an address cannot.
            ip_address(name)
        except ValueError:
            return False
        return True

    def _answer(self, environ: Environment) -> "tuple[str, bytes | _Streamed]":
        """The media type and the body of an answer."""
        text, at = query_of(environ)
        gone = environ.get("waitress.client_disconnected", lambda: False)
        budget = Budget(self._client.clock, self._allowance, gone)
        self._watch.add(budget)
        accept = environ.get("HTTP_ACCEPT", "*/*")
        streamed = False
        try:
            found = self._client.query(text, at=at, budget=budget)
            if isinstance(found, rdflib.Graph):
                media_type = negotiated(accept, GRAPH_TYPES, {})
                return media_type, graph_text(found, GRAPH_TYPES[media_type]).encode()
            if isinstance(found, bool):
                types = {MEDIA_TYPES[name]: name for name in BOOLEAN_WRITERS}
                media_type = negotiated(accept, types, _SOLUTION_ALIASES)
                return media_type, BOOLEAN_WRITERS[types[media_type]](found).encode()
            with ExitStack() as failing:
                failing.callback(found.close)
                media_type = negotiated(accept, _SOLUTION_TYPES, _SOLUTION_ALIASES)
                pieces = _begun(found, _SOLUTION_TYPES[media_type])
                ending = failing.pop_all()
            ending.callback(self._watch.remove, budget)
            if "tpf_client.cut_off" in environ:
                # Whoever waits for a reader cannot be told that the time is over.
                budget.on_stop(environ["tpf_client.cut_off"])
            streamed = True
            return media_type, _Streamed(pieces, ending.close)
        finally:
            if not streamed:
                self._watch.remove(budget)


def _begun(solutions: Solutions, form: str) -> Iterator[str]:
    """The text of solutions, whose first one is there: what goes wrong before has a status."""
    pieces = solutions.pieces(form)
    return chain(list(islice(pieces, 3)), pieces)


class _Streamed:
    """The body of an answer that is not complete yet.

    Args:
        pieces: its text.
        done: called at the end.
    """

    def __init__(self, pieces: Iterator[str], done: Callable[[], None]) -> None:
        self._pieces = pieces
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        """The body in chunks that are worth sending, none held back for long."""
        waiting: list[str] = []
        size, sent = 0, monotonic() - _PAUSE
        try:
            for piece in self._pieces:
                waiting.append(piece)
                size += len(piece)
                if size >= _CHUNK or monotonic() - sent >= _PAUSE:
                    yield "".join(waiting).encode()
                    waiting, size, sent = [], 0, monotonic()
            if waiting:
                yield "".join(waiting).encode()
        except ClientError as error:
            # The status is gone already: only a connection that breaks off can tell.
            _log.warning("an answer was cut off: %s", error)
            raise ConnectionAbortedError(str(error)) from error

    def close(self) -> None:
        """Stop what is under way."""
        self._done()


def _failure(error: RefusedError | ClientError) -> tuple[HTTPStatus, str]:
    """The status and the text that say what went wrong."""
    match error:
        case RefusedError():
            return error.status, str(error)
        case QuerySyntaxError():
            return HTTPStatus.BAD_REQUEST, f"{error}\n{error.pointed}"
        case QueryError() | ResultError():
            return HTTPStatus.BAD_REQUEST, str(error)
        case ClosedError() | LimitError():
            return HTTPStatus.SERVICE_UNAVAILABLE, str(error)
        case _:
            # A fragment server failed, not we.
            return HTTPStatus.BAD_GATEWAY, str(error)


def _shown(text: str) -> str:
    return ascii(text[:100])[1:-1]
