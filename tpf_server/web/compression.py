"""gzip and br for clients that accept them (RFC 9110, section 12.5.3)."""

import zlib
from functools import lru_cache

import brotli
from werkzeug.http import parse_accept_header

from tpf_server.fragments.negotiation import LONGEST_ACCEPT

# Below this many bytes the header fields outweigh what is saved.
_SMALLEST = 860
_GZIP_LEVEL, _BROTLI_QUALITY = 5, 4
_GZIP_WINDOW = 31


def chosen_encoding(accept: str) -> str | None:
    """The encoding that an ``Accept-Encoding`` header likes best; ``None``: as it is."""
    return _chosen(accept) if 0 < len(accept) <= LONGEST_ACCEPT else None


@lru_cache(maxsize=64)
def _chosen(accept: str) -> str | None:
    accepted = parse_accept_header(accept)
    best = max(("br", "gzip"), key=lambda name: accepted[name])
    explicit = accepted[best] > 0 and accepted[best] >= (accepted["identity"] or 0)
    return best if explicit else None


def compressed(body: bytes, encoding: str) -> bytes | None:
    """The body in an encoding; ``None`` where that is not worth it."""
    if len(body) < _SMALLEST:
        return None
    packed: bytes
    if encoding == "br":
        packed = brotli.compress(body, quality=_BROTLI_QUALITY)
    else:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
        packed = packer.compress(body) + packer.flush()
    return packed
