"""Opens the stores of the datasets that the settings name."""

import re
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from tpf_server.errors import SettingsError
from tpf_server.fragments.dataset import Dataset
from tpf_server.settings import Configuration, DatasetSettings, Settings
from tpf_server.store.live_settings import LiveSettings
from tpf_server.store.live_store import POSTGRESQL, open_live_store
from tpf_server.store.opening import open_dataset

_SUFFIX = re.compile(
    r"(\.(nt|nq|ttl|trig|rdf|owl|xml|jsonld|json|n3|gz|bz2|zst|xz|store))+$", re.IGNORECASE
)


def dataset_of_path(source: str) -> DatasetSettings:
    """The settings of a dataset that is named on the command line: called after its file.

    Raises:
        SettingsError: no name can be made of the file's.
    """
    name = _SUFFIX.sub("", Path(source).resolve().name)
    return DatasetSettings(name=re.sub(r"[^A-Za-z0-9_~.-]", "-", name).lstrip(".-"), source=source)


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
    folder = Path(server.data_dir)
    static = open_dataset(Path(settings.source), folder / "indexes") if settings.source else None
    try:
        place = _log_of(settings, server)
        live = None
        if place is not None:
            if isinstance(place, Path):
                place.parent.mkdir(parents=True, exist_ok=True)
            live = open_live_store(place, _live_settings(settings), settings.name)
    except BaseException:
        if static is not None:
            static.close()
        raise
    return Dataset(settings, static, live)


def _live_settings(settings: DatasetSettings) -> LiveSettings:
    return LiveSettings(
        key="triple" if settings.key == "triple" else "subject-predicate",
        retention=timedelta(seconds=settings.retention),
        history=None if settings.history is None else timedelta(seconds=settings.history),
        accept_past=settings.accept_past,
    )


def distinct(datasets: Iterable[DatasetSettings]) -> list[DatasetSettings]:
    """The datasets, each name once.

    Raises:
        SettingsError: two datasets have one name.
    """
    found: dict[str, DatasetSettings] = {}
    for settings in datasets:
        if settings.name in found:
            raise SettingsError(f"two datasets are called {settings.name!r}")
        found[settings.name] = settings
    return list(found.values())


def _log_of(settings: DatasetSettings, server: Settings) -> Path | str | None:
    """The file or database of the live facts' log; ``None``: there are no live facts."""
    if isinstance(settings.live, str):
        is_database = settings.live.startswith(POSTGRESQL)
        return settings.live if is_database else Path(settings.live)
    wanted = settings.live
    if wanted is None:
        wanted = bool(settings.token or server.publish_token)
    return Path(server.data_dir) / "live" / f"{settings.name}.sqlite" if wanted else None
