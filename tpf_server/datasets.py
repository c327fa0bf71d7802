"""Opens the stores of the datasets that the settings name."""

from contextlib import ExitStack

from tpf_server.fragments.dataset import Dataset
from tpf_server.settings import Configuration, DatasetSettings, Settings
from tpf_server.sources import distinct, live_settings, log_place, static_store
from tpf_server.store.live_store import open_live_store
from tpf_server.store.opening import open_store


def open_datasets(configuration: Configuration) -> list[Dataset]:
    """Open all datasets, or none.

    Raises:
        SettingsError: two datasets have one name.
        StoreError: a store cannot be opened.
    """
    with ExitStack() as opened:
        datasets = []
        for settings in distinct(configuration.datasets):
            dataset = open_one(settings, configuration.server)
            opened.callback(dataset.close)
            datasets.append(dataset)
        opened.pop_all()
        return datasets


def open_one(settings: DatasetSettings, server: Settings) -> Dataset:
    """Open the stores of one dataset; an RDF file is indexed first, once.

    Raises:
        StoreError: a store cannot be opened.
    """
    place = log_place(settings, server)
    store = static_store(settings, server)
    static = None if store is None else open_store(store)
    try:
        live = None
        if place is not None:
            live = open_live_store(place, live_settings(settings), settings.name)
    except BaseException:
        if static is not None:
            static.close()
        raise
    return Dataset(settings, static, live)
