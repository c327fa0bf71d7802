"""gzip and br for clients that accept them (RFC 9110, section 12.5.3)."""

import zlib
from functools import lru_cache

import brotli
from flask import Request, Response
from werkzeug.http import parse_accept_header

# Below this many bytes the header fields outweigh what is saved.
_SMALLEST = 860
_GZIP_LEVEL, _BROTLI_QUALITY = 5, 4
_GZIP_WINDOW = 31


@lru_cache(maxsize=64)
def chosen_encoding(accept: str) -> str | None:
    """The encoding that an ``Accept-Encoding`` header likes best; ``None``: as it is."""
    accepted = parse_accept_header(accept)
    best = max(("br", "gzip"), key=lambda name: accepted[name])
    explicit = accepted[best] > 0 and accepted[best] >= (accepted["identity"] or 0)
    return best if explicit else None


def encoding_of(request: Request) -> str | None:
    """The encoding that a client likes best."""
    header = request.environ.get("HTTP_ACCEPT_ENCODING")
    return chosen_encoding(header) if header else None


def compress(response: Response, encoding: str) -> None:
    """Compress the body, if it is worth it."""
    body = response.get_data()
    if len(body) < _SMALLEST:
        return
    if encoding == "br":
        response.set_data(brotli.compress(body, quality=_BROTLI_QUALITY))
    else:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
        response.set_data(packer.compress(body) + packer.flush())
    response.headers["Content-Encoding"] = encoding
