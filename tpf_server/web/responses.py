"""Bodies and common header fields of answers."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Request, Response, request
from werkzeug.datastructures import Headers, MIMEAccept
from werkzeug.http import parse_date

from tpf_server.errors import MethodNotAllowedError, RequestError
from tpf_server.fragments.writers.base import LONGEST_ACCEPT, types_in_accept
from tpf_server.settings import Settings
from tpf_server.web.html import CONTENT_SECURITY_POLICY

# The URL that a client knows the server under.

_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def base_of(environ: WSGIEnvironment, settings: Settings) -> str:
    """Return the URL of the server for the client, by the settings or a trusted proxy."""
    if settings.trust_forwarded:
        host = _last(environ.get("HTTP_X_FORWARDED_HOST", ""))
        scheme = _last(environ.get("HTTP_X_FORWARDED_PROTO", "http"))
        if _HOST.fullmatch(host) and scheme in ("http", "https"):
            return f"{scheme}://{host}/"
    return settings.base


def client_of(environ: WSGIEnvironment, settings: Settings) -> str:
    """Return the address of the client, also as a trusted proxy states it."""
    forwarded = _last(environ.get("HTTP_X_FORWARDED_FOR", "")) if settings.trust_forwarded else ""
    return forwarded or str(environ.get("REMOTE_ADDR", ""))


def query_string(environ: WSGIEnvironment) -> str:
    """Return the query of the URL, in which any text may stand unescaped."""
    raw: str = environ.get("QUERY_STRING", "")
    if raw.isascii():
        return raw
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError("the query string is not UTF-8") from None


def _last(field: str) -> str:
    return field.rpartition(",")[2].strip()


JSON = "application/json"
EVENTS = "text/event-stream"
"""Server-sent events (HTML standard)."""
READ_METHODS = ("GET", "HEAD", "OPTIONS")
ALL_METHODS = (*READ_METHODS, "POST", "PUT", "PATCH", "DELETE")

NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
"""What keeps a browser from taking data for a page with scripts."""
ANY_ORIGIN = ("Access-Control-Allow-Origin", "*")
PUBLIC = (ANY_ORIGIN, ("Access-Control-Expose-Headers", "*"))
"""What lets scripts of any origin read an answer."""
COMMON = (*PUBLIC, NO_SNIFFING)


class Whole(Response):
    """A response with its body as a list, which servers send at once."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body, status, headers = self.get_wsgi_response(environ)
        start_response(status, headers)
        chunks = list(body)
        self.close()
        return chunks


class AsGiven(Whole):
    """A response with the header fields that it was given, and no others."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        super().__init__([body], status)
        self.headers = Headers(headers)

    def get_wsgi_headers(self, _: WSGIEnvironment) -> Headers:
        return self.headers


def http_date(instant: datetime) -> str:
    """Format an instant for a header field."""
    # A fraction could be rounded up, perhaps to the year 10000.
    return http_second(int(instant.replace(microsecond=0).timestamp()))


def http_instant(field: str) -> datetime | None:
    """Return the instant of a header field, or ``None``."""
    try:
        instant = parse_date(field)
        return None if instant is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):  # a time zone of days, the year 10000
        return None


@lru_cache(maxsize=256)
def http_second(second: int) -> str:
    """Format a second of Unix time for a header field."""
    return formatdate(second, usegmt=True)


@lru_cache(maxsize=16)
def documentation_link(base: str) -> str:
    """Return the ``Link`` to the documentation of the interface, on every answer."""
    return f'<{base}api-doc>; rel="http://www.w3.org/ns/hydra/core#apiDocumentation"'


def answer(body: str | bytes, media_type: str, status: int = 200) -> Response:
    """Answer with a whole body."""
    data = body.encode() if isinstance(body, str) else body
    return Whole(data, status, {"Content-Type": media_type})


def json_answer(value: object, status: int = 200, media_type: str = JSON) -> Response:
    """Answer with a JSON document."""
    return answer(json.dumps(value, ensure_ascii=False, indent=1) + "\n", media_type, status)


def accepted_types(asked: Request) -> MIMEAccept:
    """Return what a request accepts: anything where it says nothing, or too much."""
    header = asked.headers.get("Accept", "")
    return types_in_accept(header if 0 < len(header) <= LONGEST_ACCEPT else "*/*")


def wants_html(asked: Request) -> bool:
    """True for a browser; programs get JSON, also where they do not care."""
    return accepted_types(asked).best_match([JSON, "text/html"], JSON) != JSON


def html_answer(body: str) -> Response:
    """Answer with a page for people."""
    return answer(body, "text/html; charset=utf-8")


def without_body(status: int = 200) -> Response:
    """Answer with header fields only, without a length."""
    response = Whole(iter(()), status)
    del response.headers["Content-Type"]
    return response


def see_other(url: str) -> Response:
    """Redirect to the description of a thing."""
    response = without_body(303)
    response.headers["Location"] = url
    response.headers["Cache-Control"] = "public, max-age=3600"
    return response


def options(allowed: tuple[str, ...]) -> Response:
    """Answer ``OPTIONS``: allowed methods, and headers for other origins."""
    response = without_body(204)
    response.headers["Allow"] = ", ".join(allowed)
    readable = [method for method in allowed if method in READ_METHODS]
    response.headers["Access-Control-Allow-Methods"] = ", ".join(readable)
    response.headers["Access-Control-Allow-Headers"] = (
        "Accept, Accept-Datetime, Cache-Control, If-None-Match, Last-Event-ID, Range"
    )
    response.headers["Access-Control-Max-Age"] = "86400"
    return response


def by_method(allowed: tuple[str, ...], answer: Callable[[], Response]) -> Response:
    """Answer the current request, or raise `MethodNotAllowedError`."""
    if request.method == "OPTIONS":
        return options(allowed)
    if request.method not in allowed:
        raise MethodNotAllowedError(request.method, allowed)
    return answer()


def dress(response: Response, now: datetime, base: str, public: bool) -> Response:
    """Add the header fields of every answer: date, documentation, access for other origins."""
    if isinstance(response, AsGiven):
        return response
    headers = response.headers
    if headers.get("Content-Type", "").startswith("text/html"):
        headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    headers.extend(
        [
            ("Date", http_date(now)),
            ("Link", documentation_link(base)),
            NO_SNIFFING,
            *(PUBLIC if public else ()),
        ]
    )
    return response
