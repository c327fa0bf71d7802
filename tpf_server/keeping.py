"""``tpf-server backup`` and ``tpf-server restore``: copies of the live facts of a dataset."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from annotations.clock import SystemClock
from annotations.instants import to_micros
from tpf_server.configuration import read_configuration
from tpf_server.errors import SettingsError
from tpf_server.settings import DatasetSettings
from tpf_server.sources import log_place
from tpf_server.store.live.backups import back_up, restore

_OPTIONS: Final = (
    click.Option(["--config"], type=click.Path(exists=True, dir_okay=False), help="TOML file"),
    click.Option(["--data-dir"], help="where the logs of live facts are kept"),
)


def _place(dataset: str, config: str | None, flags: Mapping[str, Any]) -> Path | str:
    """Where the log of a dataset is, by the settings that the server has."""
    server, datasets = read_configuration(Path(config) if config else None, os.environ, flags)
    known = {each.name: each for each in datasets}
    if datasets and dataset not in known:
        raise SettingsError(f"there is no dataset {dataset!r}; there are {', '.join(known)}")
    settings = known.get(dataset) or DatasetSettings(name=dataset, live=True)
    place = log_place(settings, server)
    if place is None:
        raise SettingsError(f"dataset {dataset!r} has no live facts")
    return place


def _backup(dataset: str, file: str, config: str | None, **flags: Any) -> None:
    newest = back_up(_place(dataset, config, flags), Path(file), dataset)
    click.echo(f"tpf-server: {file} holds {dataset} up to batch {newest}", err=True)


def _restore(dataset: str, file: str | None, config: str | None, **flags: Any) -> None:
    place = _place(dataset, config, flags)
    now = to_micros(SystemClock().now())
    newest = restore(place, Path(file) if file else None, now, dataset)
    click.echo(f"tpf-server: {dataset} goes on behind batch {newest}", err=True)


KEEPING_COMMANDS: Final = {
    "backup": click.Command(
        "backup",
        params=[click.Argument(["dataset"]), click.Argument(["file"]), *_OPTIONS],
        callback=_backup,
        help="Write the live facts of DATASET to a new FILE, while the server runs.",
    ),
    "restore": click.Command(
        "restore",
        params=[
            click.Argument(["dataset"]),
            click.Argument(["file"], required=False, type=click.Path(exists=True, dir_okay=False)),
            *_OPTIONS,
        ],
        callback=_restore,
        help="Put the backup FILE in the place of the live facts of DATASET; without FILE, go on "
        "with what is left of them where some were lost. Servers that run show it at once, unless "
        "the log could not be read (it is put aside then): start them again. Numbers of batches "
        "that were given are not given again.",
    ),
}
"""The commands, by what stands first on the command line."""
