"""Bodies of live pages that were made a moment ago.

When facts expire, everybody who looks at them asks for the same page at about the same time. The
page is made, and compressed, once for all who ask within a quarter of a second; it says itself at
which instant it was made, and its entity tag does.
"""

import threading
from typing import Final, NamedTuple

from cachetools import LRUCache

_MICROS: Final = 250_000
_BYTES: Final = 8 * 2**20
_OVERHEAD: Final = 400


class SentPage(NamedTuple):
    """A page as it was sent.

    Args:
        tag: its entity tag.
        instant: of its snapshot, in microseconds.
        encoding: of the body, if any.
        body: as it was sent.
    """

    tag: str
    instant: int
    encoding: str | None
    body: bytes


class PageBodies:
    """The pages that were made last, by what their entity tags say beside the instant.

    Such tags are equal only where URL, format, encoding, content of the stores and the next change
    by the clock are. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[str, SentPage] = LRUCache(
            _BYTES, getsizeof=lambda made: len(made.body) + _OVERHEAD
        )

    def get(self, tag: str, instant: int) -> SentPage | None:
        """The page with this entity tag, or the same of a moment before."""
        with self._lock:
            made = self._kept.get(_content(tag))
        if made is None or not 0 <= instant - made.instant <= _MICROS:
            return None
        return made

    def put(self, made: SentPage) -> None:
        """Keep a page for a moment."""
        if len(made.body) + _OVERHEAD > _BYTES:
            return
        with self._lock:
            self._kept[_content(made.tag)] = made


def _content(tag: str) -> str:
    return tag.partition(".")[0]
