"""The real application in the process of its client, on one clock, its share of the CPU apart.

So a day of trains is played in seconds, and what is counted is exact: with one thread, the CPU of
the process minus the CPU inside the application is the client's.
"""

import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import requests
from requests.adapters import BaseAdapter
from werkzeug.test import run_wsgi_app

from annotations.clock import ManualClock
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import IndexedLiveStore, open_live_store
from tpf_server.store.static.columnar import open_dataset

_BASE = "http://server.example/"
_DATASET = "trains"


@dataclass(slots=True)
class ServerWork:
    """What the application did: requests, bytes of bodies, seconds of CPU and of time."""

    requests: int = 0
    bytes: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the CPU and the time of a block."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall


@dataclass(slots=True)
class InProcess(BaseAdapter):
    """A transport of requests that calls the application.

    Args:
        app: the application.
        work: adds up what it did.
    """

    app: Any
    work: ServerWork = field(default_factory=ServerWork)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """Answer a request from the application, at once and whole."""
        environ = _environ(request)
        with self.work.measured():
            chunks, status, fields = run_wsgi_app(self.app, environ, buffered=True)
            body = b"".join(chunks)
        self.work.requests += 1
        self.work.bytes += len(body)
        code, reason = status.split(" ", 1)
        response = requests.Response()
        response.status_code = int(code)
        response.reason = reason
        response.headers.update(fields.items())
        response.url = request.url or ""
        response.request = request
        response.raw = io.BytesIO(body)
        return response

    def close(self) -> None:
        """Nothing is open."""


def _environ(request: requests.PreparedRequest) -> dict[str, Any]:
    url = urlsplit(request.url or "")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.path or "/").decode("latin-1"),
        "QUERY_STRING": url.query,
        "SERVER_NAME": url.hostname,
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": url.netloc,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        # Bodies are compared as they are; who compresses them pays for it elsewhere.
        if name.lower() != "accept-encoding":
            environ["HTTP_" + name.upper().replace("-", "_")] = str(value)
    return environ


@dataclass(frozen=True, slots=True)
class Application:
    """The application with one dataset.

    Args:
        clock: its clock.
        live: where facts are published to.
        session: asks it.
        work: what it did for the session.
    """

    clock: ManualClock
    live: IndexedLiveStore
    session: requests.Session
    work: ServerWork

    def url(self, view: str = "") -> str:
        """The URL of the dataset, or of one of its views."""
        return _BASE + _DATASET + (f"/{view}" if view else "")


@contextmanager
def application(
    folder: Path, static: Path, start: datetime, **dataset: Any
) -> Iterator[Application]:
    """The application with a dataset of static and live facts.

    Args:
        folder: a folder of its own.
        static: the store of the static facts.
        start: where its clock stands at first.
        dataset: further settings of the dataset.
    """
    folder.mkdir(parents=True)
    clock = ManualClock(start)
    live = open_live_store(folder / "live.sqlite", LiveSettings())
    served = OpenDataset(
        DatasetSettings(name=_DATASET, **dataset), open_dataset(static, folder), live
    )
    try:
        adapter = InProcess(create_app(Settings(base_url=_BASE), [served], clock))
        with requests.Session() as session:
            session.mount(_BASE, adapter)
            yield Application(clock, live, session, adapter.work)
    finally:
        served.close()
