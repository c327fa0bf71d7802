"""Pages kept for reuse, bounded in bytes."""

import threading

from cachetools import LRUCache

from tpf_client.fragments.page import Page

_OVERHEAD = 5
"""A parsed page takes about this many times the bytes of its body."""
_LINES = 8
"""What is remembered of its lines takes about so many times them beside that."""


class PageCache:
    """The pages read last, up to a number of bytes. Thread-safe.

    It keeps stale pages as well: their entity tag saves the body when they are asked again.

    Args:
        capacity: bytes of memory, estimated from the sizes of the bodies.
    """

    def __init__(self, capacity: int) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._pages: LRUCache[str, Page] = LRUCache(max(capacity, 1), getsizeof=_weight)

    def get(self, url: str) -> Page | None:
        """The page of this URL, fresh or stale."""
        with self._lock:
            return self._pages.get(url)

    def put(self, page: Page) -> None:
        """Keep a page, in place of the older one of its URL."""
        with self._lock:
            if _weight(page) <= self._capacity:
                self._pages[page.url] = page
            else:
                self._pages.pop(page.url, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._pages.clear()

    @property
    def size(self) -> int:
        """Estimated bytes in use."""
        return int(self._pages.currsize)


def _weight(page: Page) -> int:
    lines = page.known is not None and page.known.lines.texts
    return 1024 + (_OVERHEAD + _LINES if lines else _OVERHEAD) * page.size
