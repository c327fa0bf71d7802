"""Opens the stores of the datasets that the settings name."""

from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from tpf_server.configuration import Configuration
from tpf_server.errors import StoreClosedError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.sources import each_name_once, live_settings, log_place, static_store
from tpf_server.store.live.settings import LiveSettings
from tpf_server.store.live.store import IndexedLiveStore, open_live_store
from tpf_server.store.static.opening import open_store

_LiveKey: TypeAlias = tuple[Path | str, LiveSettings, str]


class DatasetOpener:
    """Opens datasets, anew whenever the settings change.

    A live store that is open already is shared: opening it would read all its facts once more.
    """

    def __init__(self) -> None:
        # A store that was closed is not kept in memory.
        self._live: WeakValueDictionary[_LiveKey, IndexedLiveStore] = WeakValueDictionary()

    def open(self, configuration: Configuration) -> list[OpenDataset]:
        """Open all datasets, or none.

        Raises:
            SettingsError: two datasets have one name.
            StoreError: a store cannot be opened.
        """
        with ExitStack() as opened:
            datasets = []
            for settings in each_name_once(configuration.datasets):
                dataset = self.open_one(settings, configuration.server)
                opened.callback(dataset.close)
                datasets.append(dataset)
            opened.pop_all()
            return datasets

    def open_one(self, settings: DatasetSettings, server: Settings) -> OpenDataset:
        """Open the stores of one dataset; an RDF file is indexed first, once.

        Raises:
            StoreError: a store cannot be opened.
        """
        with ExitStack() as opened:
            static = live = None
            store = static_store(settings, server)
            if store is not None:
                static = open_store(store)
                opened.callback(static.close)
            place = log_place(settings, server)
            if place is not None:
                live = self._live_store((place, live_settings(settings), settings.name))
                opened.callback(live.close)
            dataset = OpenDataset(settings, static, live)
            opened.pop_all()
            return dataset

    def _live_store(self, key: _LiveKey) -> IndexedLiveStore:
        known = self._live.get(key)
        if known is not None:
            try:
                return known.share()
            except StoreClosedError:
                pass
        store = self._live[key] = open_live_store(*key)
        return store
