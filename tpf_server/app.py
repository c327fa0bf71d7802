"""The application: `create_app` for tests and embedding, `factory` for the workers of a server."""

import multiprocessing
import os
from collections.abc import Iterable

from flask import Flask

from annotations.clock import Clock, SystemClock
from tpf_server.datasets import open_datasets
from tpf_server.fragments.dataset import Dataset
from tpf_server.settings import Configuration, Settings
from tpf_server.web.routes import routes
from tpf_server.web.site import Site
from tpf_server.workers import WORKER_VARIABLE


def create_app(settings: Settings, datasets: Iterable[Dataset], clock: Clock) -> Flask:
    """The fragment server as a Flask application.

    Args:
        settings: the server's settings; `base_url` is what the URLs in pages start with.
        datasets: what is served; the application does not close their stores.
        clock: tells the time of every answer.
    """
    app = Flask("tpf_server", static_folder=None)
    datasets = list(datasets)
    site = Site(settings, datasets, clock)
    app.extensions["tpf_server"] = site
    if settings.continuous:
        # A plain server does not load the engine.
        from tpf_server.continuous.assembly import continuous_service
        from tpf_server.continuous.web import continuous_blueprint

        service = continuous_service(settings, datasets, clock)
        app.extensions["tpf_server.continuous"] = service
        app.register_blueprint(continuous_blueprint(service, site.bodies, settings))
    routes(app, site)
    return app


def factory() -> Flask:
    """The application of one worker process, with stores of its own.

    Raises:
        StoreError: a store cannot be opened.
    """
    if multiprocessing.parent_process() is not None:
        # Ctrl-C in a terminal reaches every process of the group. The one that watches over the
        # workers ends them; a worker that is told twice would hang in granian's shutdown.
        os.setpgid(0, 0)
    configuration = Configuration.from_json(os.environ[WORKER_VARIABLE])
    clock = SystemClock()
    app = create_app(configuration.server, open_datasets(configuration), clock)
    if configuration.server.continuous:
        from tpf_server.continuous.stopping import close_on_signals
        from tpf_server.continuous.ticker import Ticker

        service = app.extensions["tpf_server.continuous"]
        Ticker(service, clock).start()
        close_on_signals(service)
    return app
