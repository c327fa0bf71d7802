"""The application: `create_app` for tests and embedding, `factory` for the workers of a server."""

from collections.abc import Iterable

from flask import Flask

from annotations.clock import Clock
from tpf_server.fragments.dataset import Dataset
from tpf_server.settings import Settings
from tpf_server.web.routes import routes
from tpf_server.web.site import Site


def create_app(settings: Settings, datasets: Iterable[Dataset], clock: Clock) -> Flask:
    """The fragment server as a Flask application.

    Args:
        settings: the server's settings; `base_url` is what the URLs in pages start with.
        datasets: what is served; the application does not close their stores.
        clock: tells the time of every answer.
    """
    app = Flask("tpf_server", static_folder=None)
    site = Site(settings, datasets, clock)
    app.extensions["tpf_server"] = site
    routes(app, site)
    return app
