"""``tpf-server backup`` and ``tpf-server restore``: copies of the live facts of a dataset."""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from annotations.clock import SystemClock
from annotations.instants import to_micros
from tpf_server.configuration import read_configuration
from tpf_server.errors import CorruptStoreError, SettingsError, StoreError
from tpf_server.settings import DatasetSettings
from tpf_server.sources import log_location
from tpf_server.store.live.log import Contents, decode
from tpf_server.store.live.logs import is_postgresql, open_log
from tpf_server.store.live.sqlite_log import SqliteLog
from tpf_server.store.live.sqlite_tables import read_backup

# Backups of live stores, and going on with what they hold.


def back_up(location: str | Path, file: Path, name: str = "live") -> int:
    """Write the log of a live store to a new file; return the number of its newest batch."""
    if not is_postgresql(location) and not Path(location).exists():
        raise StoreError(f"there is no live store {location}")
    with closing(open_log(location, None, name)) as log:
        log.save(file)
    batches = read_backup(file).batches
    return batches[-1][0] if batches else 0


def restore(location: str | Path, file: Path | None, published: int, name: str = "live") -> int:
    """Replace the log of a live store by a backup; without a file, by what is left in it.

    Returns the number that the log goes on behind. A log that cannot be read is renamed to
    ``.damaged``; running servers must then be restarted.
    """
    log = open_log(location, None, name) if is_postgresql(location) else None
    with closing(log or _what_is_left(Path(location), aside=file is not None)) as result:
        contents = read_backup(file) if file is not None else result.contents()
        _check(contents, str(file or name))
        made_with = contents.settings["key"]
        # A new log takes it over.
        key = result.setting("key", made_with)
        if key != made_with:
            raise StoreError(f"{file} was made with key {made_with!r}, {name} with {key!r}")
        return result.replace(contents, published)


def _what_is_left(path: Path, *, aside: bool) -> SqliteLog:
    try:
        return SqliteLog(path)
    except CorruptStoreError:
        pass
    try:
        log = SqliteLog(path, refuse_loss=False)
        log.contents()
        return log
    except StoreError:
        if not aside:
            raise
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(part.with_name(f"{part.name}.damaged"))
    return SqliteLog(path, refuse_loss=False)


def _check(contents: Contents, where: str) -> None:
    for sequence, published, _, payload in contents.batches:
        decode(sequence, published, payload)
    if "key" not in contents.settings:
        raise StoreError(f"{where} is no live store")


_OPTIONS: Final = (
    click.Option(["--config"], type=click.Path(exists=True, dir_okay=False), help="TOML file"),
    click.Option(["--data-dir"], help="where the logs of live facts are kept"),
)


def _log_of(dataset: str, config: str | None, flags: Mapping[str, Any]) -> Path | str:
    server, datasets = read_configuration(Path(config) if config else None, os.environ, flags)
    by_name = {each.name: each for each in datasets}
    if datasets and dataset not in by_name:
        raise SettingsError(f"there is no dataset {dataset!r}; there are {', '.join(by_name)}")
    settings = by_name.get(dataset) or DatasetSettings(name=dataset, live=True)
    location = log_location(settings, server)
    if location is None:
        raise SettingsError(f"dataset {dataset!r} has no live facts")
    return location


def _backup(dataset: str, file: str, config: str | None, **flags: Any) -> None:
    newest = back_up(_log_of(dataset, config, flags), Path(file), dataset)
    click.echo(f"tpf-server: {file} holds {dataset} up to batch {newest}", err=True)


def _restore(dataset: str, file: str | None, config: str | None, **flags: Any) -> None:
    location = _log_of(dataset, config, flags)
    now = to_micros(SystemClock().now())
    newest = restore(location, Path(file) if file else None, now, dataset)
    click.echo(f"tpf-server: {dataset} continues after batch {newest}", err=True)


BACKUP_COMMANDS: Final = {
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
        help="Replace the live facts of DATASET by the backup FILE; without FILE, continue with "
        "what is left of a log that lost batches. Running servers show the result at once; if the "
        "log could not be read (it is renamed to .damaged), restart them. Batch numbers are never "
        "reused.",
    ),
}
"""The commands, by what stands first on the command line."""
