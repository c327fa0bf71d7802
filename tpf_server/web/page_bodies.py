"""Bodies of pages: encodings, a cache, and deltas between pages.

A page is made and encoded once for all who ask before it changes. A client that accepts ``dcz``
names the page that it has by SHA-256, and gets the delta. Sources: RFC 9110, section 12.5.3; RFC
9842; RFC 8878.
"""

import re
import threading
import zlib
from base64 import b64decode
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import brotli
from cachetools import LRUCache
from werkzeug.http import parse_accept_header

from tpf_server.fragments.writers.base import LONGEST_ACCEPT

if TYPE_CHECKING:
    from backports import zstd
else:
    try:
        from compression import zstd
    except ImportError:  # before Python 3.14
        from backports import zstd

_SMALLEST: Final = 860
"""Bytes below which the header fields outweigh what is saved."""
_GZIP_LEVEL, _BROTLI_QUALITY, _ZSTD_LEVEL = 5, 4, 9
_GZIP: Final = 16
"""Added to the bits of a window: the format is gzip."""
_LEAST_BITS: Final = 10
DELTA: Final = "dcz"
"""The encoding of a delta: Zstandard with a page of before as dictionary."""


class Codings(NamedTuple):
    """The encodings of a body that a request allows.

    Args:
        whole: the best one of a whole body; ``None``: as it is.
        dictionaries: the client may keep a page as a dictionary.
        deltas: the client can take a delta.
    """

    whole: str | None
    dictionaries: bool = False
    deltas: bool = False


def accepted_codings(accept: str) -> Codings:
    """Read an ``Accept-Encoding`` header."""
    return _accepted(accept) if 0 < len(accept) <= LONGEST_ACCEPT else Codings(None)


@lru_cache(maxsize=64)
def _accepted(accept: str) -> Codings:
    accepted = parse_accept_header(accept)
    best = max(("br", "zstd", "gzip"), key=lambda name: accepted[name])
    explicit = accepted[best] > 0 and accepted[best] >= (accepted["identity"] or 0)
    # An asterisk stands for encodings that need no dictionary.
    named = {name for name, quality in accepted if quality > 0}
    return Codings(best if explicit else None, bool(named & {"zstd", DELTA}), DELTA in named)


def encoded(body: bytes, coding: str | None) -> bytes | None:
    """Encode a body; ``None`` where that is not worth it."""
    if coding is None or len(body) < _SMALLEST:
        return None
    packed: bytes
    if coding == "br":
        packed = brotli.compress(body, quality=_BROTLI_QUALITY)
    elif coding == "zstd":
        packed = zstd.compress(body, level=_ZSTD_LEVEL)
    else:
        # To clear the tables of a large window takes most of the time of a small page.
        bits = min(max(len(body).bit_length(), _LEAST_BITS), zlib.MAX_WBITS)
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP + bits, memLevel=bits - 7)
        packed = packer.compress(body) + packer.flush()
    return packed


# Dictionaries (RFC 9842).

_MAGIC: Final = b"\x5e\x2a\x4d\x18\x20\x00\x00\x00"
_HASH = re.compile(r"\s*:([A-Za-z0-9+/]{43}=):\s*")
_SPECIAL = re.compile(r"[\\*+?:{}()]")
_MATCHED: Final = 8
"""Characters at the end of a parameter that a dictionary matches."""
_LONGEST_MATCH: Final = 1024
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: _ZSTD_LEVEL,
    # Four bytes, so that a damaged delta is never taken for a page.
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.dict_id_flag: 0,
}


def available_dictionary(field: str) -> bytes | None:
    """Return the SHA-256 in an ``Available-Dictionary`` header, or ``None``."""
    match = _HASH.fullmatch(field)
    return None if match is None else b64decode(match[1])


def dictionary_field(url: str) -> tuple[str, str] | None:
    """Return the ``Use-As-Dictionary`` header for the next page of the same URL.

    Only the ends of long parameters are matched. ``None``: the URL has too many.
    """
    query = "&".join(
        ("*" if len(part) > _MATCHED else "")
        + _SPECIAL.sub(lambda sign: "\\" + sign[0], part[-_MATCHED:])
        for part in urlsplit(url).query.split("&")
    )
    if len(query) >= _LONGEST_MATCH or not query.isascii() or not query.isprintable():
        return None
    quoted = query.replace("\\", "\\\\").replace('"', '\\"')
    return "Use-As-Dictionary", f'match="?{quoted}"'


def delta(dictionary: bytes, body: bytes) -> bytes:
    """Encode a body as its difference from a dictionary."""
    prefix = zstd.ZstdDict(dictionary, is_raw=True).as_prefix
    frame = zstd.compress(body, options=_OPTIONS, zstd_dict=prefix)
    return _MAGIC + sha256(dictionary).digest() + frame


# What is kept.

_BYTES: Final = 8 * 2**20
_OVERHEAD: Final = 400
_REMEMBERED: Final = 16_384
"""Contents that were asked for once."""


class SentPage(NamedTuple):
    """A page as it is sent; the instant of its snapshot is in microseconds."""

    tag: str
    instant: int
    encoding: str | None
    body: bytes


class PageBodies:
    """The last used pages, by content and encoding; `again`: from the second use on."""

    def __init__(self, *, again: bool = False) -> None:
        self._once: set[int] | None = set() if again else None
        self._lock = threading.Lock()
        self._pages: LRUCache[tuple[str, str | None], SentPage] = LRUCache(
            _BYTES, getsizeof=lambda page: len(page.body) + _OVERHEAD
        )
        self._dictionaries: LRUCache[bytes, bytes] = LRUCache(_BYTES, getsizeof=len)

    def get(
        self, content: str, encoding: str | None, instant: int, seconds: float
    ) -> SentPage | None:
        """Return a page, if it is cached, at most so many seconds older than this instant."""
        with self._lock:
            page = self._pages.get((content, encoding))
        if page is None or not 0 <= instant - page.instant <= seconds * 1_000_000:
            return None
        return page

    def put(self, content: str, encoding: str | None, page: SentPage) -> None:
        if self._once is not None and (key := hash((content, encoding))) not in self._once:
            if len(self._once) >= _REMEMBERED:
                self._once.clear()
            self._once.add(key)
            return
        if len(page.body) + _OVERHEAD <= _BYTES:
            with self._lock:
                self._pages[content, encoding] = page

    def keep_dictionary(self, body: bytes) -> None:
        """Keep the text of a page that clients may name as their dictionary."""
        if len(body) <= _BYTES:
            digest = sha256(body).digest()
            with self._lock:
                self._dictionaries[digest] = body

    def dictionary(self, digest: bytes) -> bytes | None:
        """Return the text with this SHA-256, if it is kept."""
        with self._lock:
            return self._dictionaries.get(digest)
