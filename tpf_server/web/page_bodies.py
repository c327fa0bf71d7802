"""Bodies of live pages that are still right.

When facts expire, everybody who looks at them asks for the same page. It is made, and compressed,
once for all who ask before the next label of it begins or ends and before the next batch: then its
entity tag is another one. The page says itself at which instant it was made, as its tag does; how
long that is ago, ``Server-Timing`` says, so that clients can tell the time by it.
"""

import threading
from typing import Final, NamedTuple

from cachetools import LRUCache

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

    def get(self, tag: str, instant: int, seconds: float) -> SentPage | None:
        """The page with this entity tag, or one from before that still says the same.

        Args:
            tag: of the page as it would be made now.
            instant: of its snapshot, in microseconds.
            seconds: how old it may be: its links are pinned to its instant, and must lead on.
        """
        with self._lock:
            made = self._kept.get(_content(tag))
        if made is None or not 0 <= instant - made.instant <= seconds * 1_000_000:
            return None
        return made

    def put(self, made: SentPage) -> None:
        """Keep a page, for as long as there is room."""
        if len(made.body) + _OVERHEAD > _BYTES:
            return
        with self._lock:
            self._kept[_content(made.tag)] = made


def _content(tag: str) -> str:
    return tag.partition(".")[0]
