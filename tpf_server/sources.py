"""Locate and check the data of datasets, without opening them."""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import click

from tpf_server.configuration import Configuration
from tpf_server.errors import ServerError, SettingsError, StoreError, StoreUnreachableError
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.logs import POSTGRESQL, open_log
from tpf_server.store.static.checking import checked_store, is_store
from tpf_server.store.static.fetching import fetch_store, fetched_store, has_changed
from tpf_server.store.static.file_systems import is_store_url, local_path

# A worker's application, exchanged for another one while requests are under way.
#
# Nothing of a reload can be seen on a connection: the process stays, and so do its sockets. (A new
# process for every reload would lose connections: those that wait to be accepted by the old one,
# and those on which a client sends just when the old one closes them.)

LOOK_SECONDS: Final = 0.2
"""How often somebody looks whether something has been asked for."""


class MadeApplication(NamedTuple):
    """An application, and a function that closes it after its last request."""

    app: WSGIApplication
    close: Callable[[], None]


class _Generation:
    __slots__ = ("made", "requests", "retired")

    def __init__(self, made: MadeApplication) -> None:
        self.made = made
        self.requests = 0
        self.retired = False


class Reloading:
    """A WSGI application that is made anew when the file of its settings is replaced."""

    def __init__(self, file: Path, make: Callable[[Configuration], MadeApplication]) -> None:
        self._file = file
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._generation = _Generation(self._made())

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            generation = self._generation
            generation.requests += 1
        try:
            return generation.made.app(environ, start_response)
        finally:
            with self._lock:
                generation.requests -= 1
                over = generation.retired and not generation.requests
            if over:
                generation.made.close()

    def look(self) -> bool:
        """Exchange the application if the file has been replaced; return True if so."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        new = _Generation(self._made())
        with self._lock:
            old, self._generation = self._generation, new
            old.retired = True
            idle = not old.requests
        if idle:
            old.made.close()
        return True

    def follow(self) -> None:
        """Look for new settings periodically, in a daemon thread."""
        threading.Thread(target=self._follow, name="settings", daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except (ServerError, OSError) as error:
                click.echo(f"tpf-server: a worker keeps its settings: {error}", err=True)
            except Exception:
                # Otherwise no later settings would be taken.
                logging.getLogger("tpf_server").exception("a worker keeps its settings")

    def _made(self) -> MadeApplication:
        return self._make(Configuration.from_json(self._file.read_text(encoding="utf-8")))

    def _stamp(self) -> tuple[int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_mtime_ns


_SUFFIX = re.compile(
    r"(\.(nt|nq|ttl|trig|rdf|owl|xml|jsonld|json|n3|gz|bz2|zst|xz|store))+$", re.IGNORECASE
)


def dataset_of_path(source: str) -> DatasetSettings:
    """Return the settings of a dataset on the command line, named after its file."""
    name = _SUFFIX.sub("", Path(source).resolve().name)
    return DatasetSettings(name=re.sub(r"[^A-Za-z0-9_~.-]", "-", name).lstrip(".-"), source=source)


def each_name_once(datasets: Iterable[DatasetSettings]) -> list[DatasetSettings]:
    """Return the datasets; refuse two of one name."""
    results: dict[str, DatasetSettings] = {}
    for settings in datasets:
        if settings.name in results:
            raise SettingsError(f"two datasets are called {settings.name!r}")
        results[settings.name] = settings
    return list(results.values())


def check_sources(configuration: Configuration) -> None:
    """Check that all datasets can be opened; index RDF files, make missing logs."""
    example_files(configuration.server.query_examples)
    for settings in each_name_once(configuration.datasets):
        static_store(settings, configuration.server, fetch=True)
        location = log_location(settings, configuration.server)
        if location is not None:
            open_log(location, live_settings(settings).key, settings.name).close()


def example_files(folder: str) -> list[Path]:
    """Return the queries that the page offers, by name."""
    if not folder:
        return []
    if not Path(folder).is_dir():
        raise SettingsError(f"query_examples: there is no folder {folder}")
    files = [file for file in sorted(Path(folder).iterdir()) if file.suffix == ".rq"]
    for file in files:
        try:
            file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"query_examples: {file}: {error}") from error
    return files


def static_store(
    settings: DatasetSettings, server: Settings, *, fetch: bool = False
) -> Path | None:
    """Return the checked store of a dataset's static data; index an RDF file first, once.

    With `fetch`, a store at a URL is fetched if it has changed. Workers do not, so all have the
    same.
    """
    if not settings.source:
        return None
    indexes = Path(server.data_dir) / "indexes"
    try:
        if not is_store_url(settings.source):
            path = local_path(settings.source) or Path(settings.source)
            return checked_store(path, indexes)
        store = fetched_store(settings.source, indexes)
        if fetch:
            try:
                fetch_store(settings.source, indexes, os.environ)
            except StoreUnreachableError as error:
                if not is_store(store):
                    raise
                click.echo(f"tpf-server: {error}; it is served as it was fetched before", err=True)
        return store
    except OSError as error:
        raise StoreError(f"{error.filename or indexes}: {error.strerror or error}") from error


def sources_changed(configuration: Configuration) -> bool:
    """True where a store at a URL differs from the fetched one."""
    indexes = Path(configuration.server.data_dir) / "indexes"
    urls = [dataset.source for dataset in configuration.datasets if is_store_url(dataset.source)]
    return any(has_changed(url, indexes, os.environ) for url in urls)


def log_location(settings: DatasetSettings, server: Settings) -> Path | str | None:
    """Return the file (in a folder that exists) or database of a log; ``None``: no live facts."""
    if isinstance(settings.live, str):
        if settings.live.startswith(POSTGRESQL):
            return settings.live
        if not settings.live or "://" in settings.live:
            shown = f"dataset {settings.name}: live is a path or postgresql://…"
            raise SettingsError(f"{shown}, not {settings.live!r}")
        location = Path(settings.live)
    else:
        is_live = settings.live
        if is_live is None:
            is_live = bool(settings.token or server.publish_token)
        if not is_live:
            return None
        location = Path(server.data_dir) / "live" / f"{settings.name}.sqlite"
    try:
        location.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{location}: its folder cannot be made: {error.strerror}") from error
    return location


def live_settings(settings: DatasetSettings) -> LiveSettings:
    """Return the settings of a dataset's live store."""
    return LiveSettings(
        key="triple" if settings.key == "triple" else "subject-predicate",
        retention=timedelta(seconds=settings.retention),
        history=None if settings.history is None else timedelta(seconds=settings.history),
        accept_past=settings.accept_past,
        keep_events=None
        if settings.event_stream is None
        else timedelta(seconds=settings.event_stream),
    )
