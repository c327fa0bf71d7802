"""The URL that a client knows the server under."""

import re
from wsgiref.types import WSGIEnvironment

from tpf_server.settings import Settings

_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def base_of(environ: WSGIEnvironment, settings: Settings) -> str:
    """The URL that the client knows the server under, with a slash at its end.

    A client could forge what it calls us, so only the settings count, or a proxy that the
    settings trust.
    """
    if settings.trust_forwarded:
        host = _last(environ.get("HTTP_X_FORWARDED_HOST", ""))
        scheme = _last(environ.get("HTTP_X_FORWARDED_PROTO", "http"))
        if _HOST.fullmatch(host) and scheme in ("http", "https"):
            return f"{scheme}://{host}/"
    return settings.base


def client_of(environ: WSGIEnvironment, settings: Settings) -> str:
    """The address of the client, as a proxy says that the settings trust."""
    said = _last(environ.get("HTTP_X_FORWARDED_FOR", "")) if settings.trust_forwarded else ""
    return said or str(environ.get("REMOTE_ADDR", ""))


def _last(field: str) -> str:
    """What the nearest proxy said."""
    return field.rpartition(",")[2].strip()
