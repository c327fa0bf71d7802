"""Settings, datasets by URL, clock and body reader, shared by all views."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from annotations.clock import Clock
from tpf_server.errors import NotFoundError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader
from tpf_server.web.change_feed import ChangeFeeds
from tpf_server.web.page_bodies import PageBodies

_MAX_BASES = 16


class Site:
    """The served datasets, by path."""

    def __init__(
        self,
        settings: Settings,
        datasets: Iterable[OpenDataset],
        clock: Clock,
        watched: Callable[[str], AbstractContextManager[None]] | None = None,
        changes: ChangeFeeds | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.bodies = BodyReader(settings.max_body, watched)
        self.changes = changes or ChangeFeeds(
            clock, settings.change_followers, settings.followers_per_address
        )
        self.live_pages, self.static_pages = PageBodies(), PageBodies(again=True)
        self.datasets: Mapping[str, OpenDataset] = {each.settings.name: each for each in datasets}
        self._endpoints: dict[str, dict[str, Endpoint]] = {}

    def dataset(self, name: str) -> OpenDataset:
        """Return the dataset of this name, or raise `NotFoundError`."""
        try:
            return self.datasets[name]
        except KeyError:
            raise NotFoundError(f"there is no dataset {name!r}") from None

    def endpoints(self, base: str) -> Mapping[str, Endpoint]:
        """Return all endpoints by path (``trains``, ``trains/named-graph``), below `base`."""
        entry = self._endpoints.get(base)
        if entry is None:
            entry = {endpoint.path: endpoint for endpoint in self._make(base)}
            if len(self._endpoints) >= _MAX_BASES:
                self._endpoints = {}
            self._endpoints[base] = entry
        return entry

    def _make(self, base: str) -> Iterable[Endpoint]:
        for dataset in self.datasets.values():
            for view in (None, *dataset.views):
                yield Endpoint(dataset, view, self.settings, base)
