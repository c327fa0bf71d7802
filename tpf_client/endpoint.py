"""A SPARQL endpoint over fragments, for tools that speak the SPARQL protocol.

Source: SPARQL 1.1 Protocol, section 2.1 (query operation) and 2.1.4 (the dataset of a request).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import rdflib

from annotations.errors import InstantError
from annotations.instants import parse_instant
from tpf_client.client import Client
from tpf_client.errors import ClientError, ClosedError, QueryError, QuerySyntaxError
from tpf_client.solutions import Solutions
from tpf_client.sparql.results import BOOLEAN_WRITERS, MEDIA_TYPES, ResultError

Environment: TypeAlias = Mapping[str, Any]
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]

MAX_BODY = 2**20
"""Bytes of a request's body at most."""

GRAPH_TYPES = {
    "text/turtle": "turtle",
    "application/n-triples": "nt",
    "application/rdf+xml": "xml",
    "application/ld+json": "json-ld",
}
_SOLUTION_TYPES = {media: name for name, media in MEDIA_TYPES.items()}
_SOLUTION_ALIASES = {"application/json": "json", "application/xml": "xml", "text/xml": "xml"}


class _RefusedError(Exception):
    """A request that is not answered, with the status that says why."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class _Answer:
    media_type: str
    body: bytes


class Endpoint:
    """A WSGI application that answers SPARQL queries by a client; thread-safe.

    Args:
        client: who answers.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(self, environ: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""
        headers = [("Access-Control-Allow-Origin", "*"), ("Vary", "Accept")]
        try:
            answer = self._answer(environ)
            status = HTTPStatus.OK
        except _RefusedError as error:
            status, answer = error.status, _text(str(error))
            if status is HTTPStatus.METHOD_NOT_ALLOWED:
                headers.append(("Allow", "GET, HEAD, POST"))
        except QuerySyntaxError as error:
            status, answer = HTTPStatus.BAD_REQUEST, _text(f"{error}\n{error.pointed}")
        except (QueryError, ResultError) as error:
            status, answer = HTTPStatus.BAD_REQUEST, _text(str(error))
        except ClosedError as error:
            status, answer = HTTPStatus.SERVICE_UNAVAILABLE, _text(str(error))
        except ClientError as error:
            # A fragment server failed, not we.
            status, answer = HTTPStatus.BAD_GATEWAY, _text(str(error))
        headers += [("Content-Type", answer.media_type), ("Content-Length", str(len(answer.body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def _answer(self, environ: Environment) -> _Answer:
        text, at = _query_of(environ)
        accept = environ.get("HTTP_ACCEPT", "*/*")
        found = self._client.query(text, at=at)
        if isinstance(found, rdflib.Graph):
            media_type = _negotiated(accept, GRAPH_TYPES, {})
            return _Answer(media_type, found.serialize(format=GRAPH_TYPES[media_type]).encode())
        if isinstance(found, Solutions):
            try:
                media_type = _negotiated(accept, _SOLUTION_TYPES, _SOLUTION_ALIASES)
            except _RefusedError:
                found.close()
                raise
            return _Answer(media_type, found.serialize(_SOLUTION_TYPES[media_type]).encode())
        types = {MEDIA_TYPES[name]: name for name in BOOLEAN_WRITERS}
        media_type = _negotiated(accept, types, _SOLUTION_ALIASES)
        return _Answer(media_type, BOOLEAN_WRITERS[types[media_type]](found).encode())


def _query_of(environ: Environment) -> tuple[str, datetime | None]:
    """The query of a request, and the instant that it is asked for."""
    method = environ["REQUEST_METHOD"]
    parameters = _parameters(environ.get("QUERY_STRING", ""))
    text: str | None = None
    if method in ("GET", "HEAD"):
        text = _only(parameters, "query")
    elif method == "POST":
        kind = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded":
            parameters |= _parameters(_body(environ))
            text = _only(parameters, "query")
        elif kind == "application/sparql-query":
            text = _body(environ)
        else:
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "a query comes as application/x-www-form-urlencoded or application/sparql-query",
            )
    else:
        raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not GET or POST")
    if text is None:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "there is no parameter query")
    for name in ("default-graph-uri", "named-graph-uri", "update"):
        if name in parameters:
            raise _RefusedError(
                HTTPStatus.BAD_REQUEST, f"{name} is not offered: write FROM in the query"
            )
    at = _only(parameters, "at")
    try:
        return text, None if at is None else parse_instant(at)
    except InstantError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"at: {error}") from error


def _parameters(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"malformed parameters: {error}") from error


def _only(parameters: dict[str, list[str]], name: str) -> str | None:
    values = parameters.get(name, [])
    if len(values) > 1:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"parameter {name} is given twice")
    return values[0] if values else None


def _body(environ: Environment) -> str:
    length = environ.get("CONTENT_LENGTH") or ""
    if not length.isdecimal():
        raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body needs its length")
    if int(length) > MAX_BODY:
        raise _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than {MAX_BODY} bytes"
        )
    try:
        text: str = environ["wsgi.input"].read(int(length)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is not UTF-8") from error
    return text


def _negotiated(accept: str, offered: Mapping[str, str], aliases: Mapping[str, str]) -> str:
    """The media type that the client likes best; the first of ours where it does not care.

    Source: RFC 9110, section 12.5.1.
    """
    ranges = []
    for part in accept.split(","):
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            ranges.append((kind, float(weight)))
        except ValueError:
            continue

    def quality(media_type: str) -> float:
        names = {media_type, *(a for a, name in aliases.items() if name == offered[media_type])}
        main = media_type.partition("/")[0]
        for wanted in (names, {f"{main}/*"}, {"*/*", "*"}):
            found = [weight for kind, weight in ranges if kind in wanted]
            if found:
                return max(found)
        return 0.0

    best = max(offered, key=quality)
    if quality(best) <= 0:
        raise _RefusedError(HTTPStatus.NOT_ACCEPTABLE, f"there is {', '.join(offered)}")
    return best


def _text(message: str) -> _Answer:
    return _Answer("text/plain; charset=utf-8", message.encode())
