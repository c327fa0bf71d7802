"""Make the application: `create_app`, `create_blueprint` to embed it, `factory` for the workers."""

import atexit
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

import click
from flask import Blueprint, Flask

from annotations.clock import Clock, SystemClock
from annotations.follower_slots import FollowerSlots
from tpf_server.claimed_port import mark_worker
from tpf_server.configuration import Configuration
from tpf_server.connections import Connections
from tpf_server.errors import ServerError, StoreClosedError, StoreError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.fragments.writers import WRITERS
from tpf_server.fragments.writers.base import Negotiator
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.sources import (
    MadeApplication,
    Reloading,
    each_name_once,
    live_settings,
    log_location,
    static_store,
)
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore, open_live_store
from tpf_server.store.static.columnar import open_store
from tpf_server.web.change_feed import ChangeFeeds
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.index import QUERY_PAGE_RESOURCES, QueryPage, read_examples
from tpf_server.web.metrics import Metrics
from tpf_server.web.read import PageMiddleware
from tpf_server.web.routes import AnyMethod, routes
from tpf_server.web.site import Site
from tpf_server.workers import ADDRESS_VARIABLE, WORKER_VARIABLE

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from tpf_server.continuous.service.continuous_service import ContinuousService


# Opens the stores of the datasets that the settings name.

_LiveKey: TypeAlias = tuple[Path | str, LiveSettings, str]


class DatasetOpener:
    """Open datasets, anew whenever the settings change."""

    def __init__(self) -> None:
        # A store that was closed is not kept in memory.
        self._live: WeakValueDictionary[_LiveKey, LiveStore] = WeakValueDictionary()

    def open(self, configuration: Configuration) -> list[OpenDataset]:
        """Open all datasets, or none."""
        with ExitStack() as opened:
            datasets = []
            for settings in each_name_once(configuration.datasets):
                dataset = self.open_one(settings, configuration.server)
                opened.callback(dataset.close)
                datasets.append(dataset)
            opened.pop_all()
            return datasets

    def open_one(self, settings: DatasetSettings, server: Settings) -> OpenDataset:
        """Open the stores of one dataset; an RDF file is indexed first, once."""
        with ExitStack() as opened:
            static = live = None
            store = static_store(settings, server)
            if store is not None:
                static = open_store(store)
                opened.callback(static.close)
            location = log_location(settings, server)
            if location is not None:
                live = self._live_store((location, live_settings(settings), settings.name))
                opened.callback(live.close)
            dataset = OpenDataset(settings, static, live)
            opened.pop_all()
            return dataset

    def _live_store(self, key: _LiveKey) -> LiveStore:
        open_store = self._live.get(key)
        if open_store is not None:
            try:
                return open_store.share()
            except StoreClosedError:
                pass
        store = self._live[key] = open_live_store(*key)
        return store


# Ends what is followed when its process is told to stop.
#
# Who follows keeps a request under way for ever, and a server that stops gracefully waits for
# requests under way. The server has signal handlers of its own; what Python writes to the wakeup
# file descriptor it writes whoever handles the signal.

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})


_PATIENCE: Final = 5.0
_SETTLING: Final = 0.1


class Followed(Protocol):
    """Something that requests follow in the slots that it has."""

    slots: FollowerSlots

    def close(self) -> None:
        """Let all followers end."""


def close_on_signals(*services: Followed) -> None:
    """Close services at SIGTERM or SIGINT, from a thread; call it once, in the main thread."""
    for service in services:
        atexit.register(_wait_for_followers, service)
    here, there = socket.socketpair()
    there.setblocking(False)
    signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        with here, there:
            while received := here.recv(64):
                if _STOPPING.intersection(received):
                    for service in services:
                        service.close()

    threading.Thread(target=wait, name="signals", daemon=True).start()


def _wait_for_followers(service: Followed) -> None:
    """Let the threads of followers end before the interpreter does."""
    service.close()
    if service.slots.wait_until_empty(_PATIENCE):
        # What the server does with a thread after its last word is out of our sight.
        time.sleep(_SETTLING)


_TIDY_SECONDS: Final = 1.0
_END_SECONDS: Final = 5
"""How long an orphaned worker may take to finish what is under way."""


def create_app(
    settings: Settings,
    datasets: Iterable[OpenDataset],
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    service: "ContinuousService | None" = None,
    connections: Connections | None = None,
    changes: ChangeFeeds | None = None,
) -> Flask:
    """Return the fragment server as a Flask application.

    It does not close the stores of the datasets; parts that are not given are made.
    """
    app = Flask("tpf_server", static_folder=None)
    app.url_rule_class = AnyMethod
    metrics = metrics or Metrics()
    watched = None if connections is None else connections.exchange_with
    site = Site(settings, datasets, clock, watched, changes)
    negotiator = _negotiator(settings)
    app.extensions["tpf_server"] = site
    service = _add_resources(app, site, negotiator, metrics, service)
    if service is not None:
        app.extensions["tpf_server.continuous"] = service
    if settings.direct_pages:
        app.wsgi_app = PageMiddleware(app.wsgi_app, site, negotiator, metrics)  # type: ignore[method-assign]
    return app


def create_blueprint(
    settings: Settings, datasets: Iterable[OpenDataset], clock: Clock, name: str = "fragments"
) -> Blueprint:
    """Return the fragment server as a part of another Flask application.

    All paths below its ``url_prefix`` (part of `base_url`) are its own. Nobody closes the stores.
    ``app.extensions["tpf_server.continuous"]`` is the service of continuous queries, if any:
    `start` it to read remote graphs by a timer, and `close` it in the end.
    """
    blueprint = Blueprint(name, __name__)
    site = Site(settings, datasets, clock)
    service = _add_resources(blueprint, site, _negotiator(settings), Metrics())
    if service is not None:
        held = {"tpf_server.continuous": service}
        blueprint.record_once(lambda state: state.app.extensions.update(held))
    return blueprint


def _negotiator(settings: Settings) -> Negotiator:
    examples = [(each.title, each.query) for each in read_examples(settings)]
    return Negotiator((*WRITERS, HtmlWriter(settings.title, settings.watched_at, examples)))


def _add_resources(
    target: Flask | Blueprint,
    site: Site,
    negotiator: Negotiator,
    metrics: Metrics,
    service: "ContinuousService | None" = None,
) -> "ContinuousService | None":
    others = QUERY_PAGE_RESOURCES
    if site.settings.continuous:
        # A plain server does not load the engine.
        from tpf_server.continuous.service.assembly import continuous_service
        from tpf_server.continuous.service.web import CONTINUOUS_RESOURCES, continuous_blueprint

        datasets = list(site.datasets.values())
        service = service or continuous_service(site.settings, datasets, site.clock)
        target.register_blueprint(continuous_blueprint(service, site.bodies, site.settings))
        others = {**CONTINUOUS_RESOURCES, **others}
    target.register_blueprint(QueryPage(site).blueprint())
    routes(target, site, negotiator, metrics, others)
    return service


class _Worker:
    """The parts of a worker that outlive a change of settings."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._opener = DatasetOpener()
        self._metrics = Metrics()
        self._service: ContinuousService | None = None
        self._datasets: list[OpenDataset] = []
        self._connections: Connections | None = None
        self._changes: ChangeFeeds | None = None

    def make(self, configuration: Configuration) -> MadeApplication:
        settings = configuration.server
        if self._connections is None:
            self._connections = Connections(settings.port, settings.body_timeout, _say)
            self._connections.follow()
            self._changes = ChangeFeeds(
                self._clock,
                settings.change_followers,
                settings.followers_per_address,
                self._connections.exchange_with,
            )
        with ExitStack() as opened:
            datasets = self._opener.open(configuration)
            for dataset in datasets:
                opened.callback(dataset.close)
            app = create_app(
                settings,
                datasets,
                self._clock,
                metrics=self._metrics,
                service=self._service,
                connections=self._connections,
                changes=self._changes,
            )
            if settings.continuous:
                from tpf_server.continuous.service.assembly import live_stores, static_graphs

                if self._service is None:
                    self._start(app.extensions["tpf_server.continuous"])
                else:
                    # From now on its queries read these stores, so that the old ones may be closed.
                    self._service.exchange_static(
                        static_graphs(settings, datasets), live_stores(settings, datasets)
                    )
            self._datasets = datasets
            return MadeApplication(app.wsgi_app, opened.pop_all().close)

    def tidy_up(self) -> None:
        """Retire live facts and add up requests in a thread: readers need no writable log."""
        threading.Thread(target=self._tidy_up, name="tidying", daemon=True).start()

    def _tidy_up(self) -> None:
        failing: dict[str, str] = {}
        while True:
            time.sleep(_TIDY_SECONDS)
            self._metrics.add_up()
            for dataset in self._datasets:
                name = dataset.settings.name
                try:
                    if dataset.live is not None:
                        dataset.live.retire(self._clock.now())
                    failing.pop(name, None)
                except StoreClosedError:
                    pass  # the settings have changed just now
                except Exception as error:  # noqa: BLE001 - nothing would be retired any more
                    reason = str(error) if isinstance(error, StoreError) else repr(error)
                    if failing.get(name) != reason:
                        failing[name] = reason
                        _say(f"dataset {name}: {reason}")

    def _start(self, service: "ContinuousService") -> None:
        from tpf_server.continuous.service.assembly import Ticker

        for each in service.queries():
            if each.running.error is not None:
                _say(f"query {each.id} cannot be begun again: {each.running.error}")
        Ticker(service, self._clock).start()
        service.start()
        self._service = service

    def end_with_signals(self) -> None:
        followed: list[Followed] = []
        if self._changes is not None and self._changes.slots.limit:
            followed.append(self._changes)
        if self._service is not None:
            followed.append(self._service)
        if followed:
            close_on_signals(*followed)


def _say(line: str) -> None:
    click.echo(f"tpf-server: {line}", err=True)


def factory() -> Reloading:
    """Return the application of one worker process; exit where it cannot be made."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        host, _, port = os.environ[ADDRESS_VARIABLE].rpartition("/")
        mark_worker(host, int(port))
        # Ctrl-C in a terminal reaches every process of the group. The one that watches over the
        # workers ends them; a worker that is told twice would hang in granian's shutdown.
        os.setpgid(0, 0)
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    try:
        worker = _Worker()
        app = Reloading(Path(os.environ[WORKER_VARIABLE]), worker.make)
    except ServerError as error:
        click.echo(f"tpf-server: a worker cannot start: {error}", err=True)
        raise SystemExit(1) from None
    app.follow()
    worker.tidy_up()
    worker.end_with_signals()
    return app


def _end_with(parent: "BaseProcess") -> None:
    """Stop when the supervising process is gone: the next server has the same port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)
