"""Pages as deltas to the page before: the client's part of RFC 9842.

A server announces a page as the dictionary of the next (``Use-As-Dictionary``); the next request
names it by SHA-256, and the answer is a Zstandard frame.
"""

import threading
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

if TYPE_CHECKING:
    from backports import zstd
else:
    try:
        from compression import zstd
    except ImportError:  # before Python 3.14
        try:
            from backports import zstd
        except ImportError:
            zstd = None

DELTA_CODING: Final = "dcz"
"""The encoding of a delta."""
_MAGIC: Final = b"\x5e\x2a\x4d\x18\x20\x00\x00\x00"
_WINDOW_LOG: Final = 23
"""RFC 9842, section 4: a frame needs a window of 8 MB, or of the size of its dictionary."""
_BYTES: Final = 16 * 2**20


class DeltaError(ValueError):
    """A delta that is malformed, or of another dictionary."""


class Dictionaries:
    """The texts of pages for deltas. Thread-safe.

    `most` bounds the bytes of a page, `capacity` those of all.
    """

    def __init__(self, most: int, capacity: int = _BYTES) -> None:
        self._most = most
        self._capacity = capacity
        self._lock = threading.Lock()
        self._texts: LRUCache[str, bytes] = LRUCache(capacity, getsizeof=len)

    def of(self, url: str) -> bytes | None:
        with self._lock:
            return self._texts.get(url)

    def keep(self, url: str, headers: Mapping[str, str], text: bytes) -> None:
        """Keep the text of a page, if its server can use it."""
        if zstd is None or "Use-As-Dictionary" not in headers or len(text) > self._capacity:
            return
        with self._lock:
            self._texts[url] = text

    def forget(self, url: str) -> None:
        with self._lock:
            self._texts.pop(url, None)

    def read(self, body: bytes, dictionary: bytes | None) -> bytes:
        if dictionary is None:
            raise DeltaError("a delta, although no dictionary was named")
        if body[:40] != _MAGIC + sha256(dictionary).digest():
            raise DeltaError("the delta is not of the page that was named")
        prefix = zstd.ZstdDict(dictionary, is_raw=True).as_prefix
        window = max(_WINDOW_LOG, (len(dictionary) * 5 // 4).bit_length())
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: window}
        unpacker = zstd.ZstdDecompressor(zstd_dict=prefix, options=options)
        try:
            text = unpacker.decompress(body[40:], self._most + 1)
        except zstd.ZstdError as error:
            raise DeltaError(f"the delta is damaged: {error}") from None
        if len(text) > self._most or not unpacker.eof or unpacker.unused_data:
            raise DeltaError("the delta is cut off, or longer than a page may be")
        return text


def accepted(encodings: str) -> str:
    """Add deltas to an ``Accept-Encoding`` header, if they can be read here."""
    return encodings if zstd is None or encodings == "identity" else f"{encodings}, {DELTA_CODING}"


def available(dictionary: bytes) -> tuple[str, str]:
    """The header that names a dictionary."""
    return "Available-Dictionary", f":{b64encode(sha256(dictionary).digest()).decode()}:"
