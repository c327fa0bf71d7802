"""What the views share: settings, datasets by their URLs, the clock, a reader of bodies."""

import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cachetools import LRUCache

from annotations.clock import Clock
from tpf_server.errors import NotFoundError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader
from tpf_server.web.change_feed import ChangeFeeds

# Bodies of live pages that are still right.
#
# When facts expire, everybody who looks at them asks for the same page. It is made, and
# compressed, once for all who ask before the next label of it begins or ends and before the next
# batch: then its entity tag is another one. The page says itself at which instant it was made, as
# its tag does; how long that is ago, ``Server-Timing`` says, so that clients can tell the time by
# it.

_BYTES: Final = 8 * 2**20
_OVERHEAD: Final = 400


class SentPage(NamedTuple):
    """A page as it was sent.

    Args:
        tag: its entity tag.
        instant: of its snapshot, in microseconds.
        encoding: of the body, if any.
        body: its bytes.
    """

    tag: str
    instant: int
    encoding: str | None
    body: bytes


class PageBodies:
    """The last pages, by their entity tags without the instant.

    Such tags are equal only where URL, format, encoding, content of the stores and the next change
    by the clock are. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[str, SentPage] = LRUCache(
            _BYTES, getsizeof=lambda made: len(made.body) + _OVERHEAD
        )

    def get(self, tag: str, instant: int, seconds: float) -> SentPage | None:
        """Return the page with this entity tag, or an earlier one that is still fresh."""
        with self._lock:
            made = self._kept.get(_content(tag))
        if made is None or not 0 <= instant - made.instant <= seconds * 1_000_000:
            return None
        return made

    def put(self, made: SentPage) -> None:
        """Cache a page, for as long as there is room."""
        if len(made.body) + _OVERHEAD > _BYTES:
            return
        with self._lock:
            self._kept[_content(made.tag)] = made


def _content(tag: str) -> str:
    return tag.partition(".")[0]


_MAX_BASES = 16


class Site:
    """The served datasets, by path."""

    def __init__(
        self,
        settings: Settings,
        datasets: Iterable[OpenDataset],
        clock: Clock,
        bodies: BodyReader | None = None,
        changes: ChangeFeeds | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.bodies = bodies or BodyReader(settings.max_body)
        self.changes = changes or ChangeFeeds(
            clock, settings.change_followers, settings.followers_per_address
        )
        self.pages = PageBodies()
        self._datasets: dict[str, OpenDataset] = {}
        self._endpoints: dict[str, dict[str, Endpoint]] = {}
        self.serve(datasets)

    @property
    def datasets(self) -> Mapping[str, OpenDataset]:
        """The datasets by name."""
        return self._datasets

    def serve(self, datasets: Iterable[OpenDataset]) -> None:
        """Serve these datasets from the next request on; running requests keep the old ones."""
        self._datasets = {dataset.settings.name: dataset for dataset in datasets}
        self._endpoints = {}

    def dataset(self, name: str) -> OpenDataset:
        """Return the dataset of this name, or raise `NotFoundError`."""
        try:
            return self._datasets[name]
        except KeyError:
            raise NotFoundError(f"there is no dataset {name!r}") from None

    def endpoints(self, base: str) -> Mapping[str, Endpoint]:
        """Return all endpoints by path (``trains``, ``trains/named-graph``), below `base`."""
        found = self._endpoints.get(base)
        if found is None:
            found = {endpoint.path: endpoint for endpoint in self._make(base)}
            if len(self._endpoints) >= _MAX_BASES:
                self._endpoints = {}
            self._endpoints[base] = found
        return found

    def _make(self, base: str) -> Iterable[Endpoint]:
        for dataset in self._datasets.values():
            for view in (None, *dataset.views):
                yield Endpoint(dataset, view, self.settings, base)
