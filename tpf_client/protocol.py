"""Requests of the SPARQL 1.1 Protocol (section 2.1): query, dataset, accepted types."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qs

from annotations.errors import InstantError, TermError
from annotations.instants import parse_instant
from annotations.terms import Term, iri

WsgiEnvironment: TypeAlias = Mapping[str, Any]

ALLOWED_METHODS = "GET, HEAD, POST, OPTIONS"

_SECONDS = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?", re.ASCII)

MAX_BODY = 2**18
"""Bytes of a request's body at most."""
_LONGEST_ACCEPT = 4096
"""Characters of what a request accepts at most: it takes time."""


class RefusedError(Exception):
    """A refused request, with its status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Asked(NamedTuple):
    """The query of a request, its instant (``None``: now) and its dataset."""

    text: str
    at: datetime | None
    default: tuple[Term, ...]
    named: tuple[Term, ...]


def query_of(environ: WsgiEnvironment) -> Asked:
    """Parse the query of a request."""
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
            raise RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "a query comes as application/x-www-form-urlencoded or application/sparql-query",
            )
    else:
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not GET or POST")
    if text is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "there is no parameter query")
    if "update" in parameters:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "update is not offered")
    default = _graphs(parameters, "default-graph-uri")
    named = _graphs(parameters, "named-graph-uri")
    at = _only(parameters, "at")
    try:
        return Asked(text, None if at is None else parse_instant(at), default, named)
    except InstantError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"at: {error}") from error


def asks_nothing(environ: WsgiEnvironment) -> bool:
    """True for a request of the service description."""
    return environ["REQUEST_METHOD"] in ("GET", "HEAD") and not environ.get("QUERY_STRING")


def is_set(environ: WsgiEnvironment, name: str) -> bool:
    """Read a boolean parameter."""
    text = _only(_parameters(environ.get("QUERY_STRING", "")), name) or "false"
    if text not in ("true", "false"):
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"{name}: not true or false: {text[:100]!a}")
    return text == "true"


def seconds_of(environ: WsgiEnvironment, name: str, least: float, most: float) -> float | None:
    """Read a parameter in seconds; ``None``: absent."""
    text = _only(_parameters(environ.get("QUERY_STRING", "")), name)
    if text is None:
        return None
    if not _SECONDS.fullmatch(text) or not least <= float(text) <= most:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST,
            f"{name}: not a number of seconds from {least:g} to {most:.7g}: {text[:100]!a}",
        )
    return float(text)


def _parameters(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"malformed parameters: {error}") from error


def _graphs(parameters: dict[str, list[str]], name: str) -> tuple[Term, ...]:
    graphs = []
    for each in parameters.get(name, ()):
        try:
            graphs.append(iri(each))
        except TermError as error:
            reason = f"{name}: {str(error)[:200]}"
            raise RefusedError(HTTPStatus.BAD_REQUEST, reason) from error
    return tuple(graphs)


def _only(parameters: dict[str, list[str]], name: str) -> str | None:
    values = parameters.get(name, [])
    if len(values) > 1:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"parameter {name} is given twice")
    return values[0] if values else None


def _body(environ: WsgiEnvironment) -> str:
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdecimal()):
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body needs its length")
    if len(length) > 18 or int(length) > MAX_BODY:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body of more than {MAX_BODY} bytes"
        )
    try:
        text: str = environ["wsgi.input"].read(int(length)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "the body is not UTF-8") from error
    return text


def weighted(accept: str) -> Iterator[tuple[str, float]]:
    """Yield what a field accepts, in lower case, with its weight (RFC 9110, section 12.4.2)."""
    for part in accept.split(","):
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        with suppress(ValueError):
            yield kind, float(weight)


def negotiated(accept: str, offered: Mapping[str, str], aliases: Mapping[str, str]) -> str:
    """Negotiate the media type (RFC 9110, section 12.5.1), by default our first."""
    if len(accept) > _LONGEST_ACCEPT:
        reason = f"Accept has more than {_LONGEST_ACCEPT} characters"
        raise RefusedError(HTTPStatus.BAD_REQUEST, reason)
    ranges = list(weighted(accept))

    def quality(media_type: str) -> float:
        names = {media_type, *(a for a, name in aliases.items() if name == offered[media_type])}
        main = media_type.partition("/")[0]
        for kinds in (names, {f"{main}/*"}, {"*/*", "*"}):
            weights = [weight for kind, weight in ranges if kind in kinds]
            if weights:
                return max(weights)
        return 0.0

    best = max(offered, key=quality)
    if quality(best) <= 0:
        raise RefusedError(HTTPStatus.NOT_ACCEPTABLE, f"there is {', '.join(offered)}")
    return best
