"""``python -m tpf_client.beside_server``: the endpoint that a fragment server has beside it.

The server starts this process, hands it what it is to do as a line of JSON on its standard input,
and passes requests on to a Unix socket that nobody else can reach. The process ends when it is told
to, and when its standard input ends: then the server is gone, however that came about.

A request comes with header fields of the server's, in place of any that the reader sent:
``X-Tpf-At``, the URL of the endpoint's root as the reader sees it, ``X-Tpf-Over``, the name of the
dataset that is asked (all where empty), and ``X-Tpf-Reader``, the reader's address.
"""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from tpf_client.client import Client
from tpf_client.endpoint import SparqlEndpoint, StartResponse
from tpf_client.fragments.transport import pooled_session
from tpf_client.map_tiles import map_tiles
from tpf_client.page_files import read_example
from tpf_client.planner.budget import Allowance
from tpf_client.protocol import WsgiEnvironment
from tpf_client.serving import make_server, run_until_told

_END_SECONDS: Final = 5.0
"""How long answers under way may take to end."""
_CONNECTIONS: Final = 8
_SPARE: Final = 8
"""Threads for those who are told that there are too many."""


class Orders(NamedTuple):
    """What the server says.

    Args:
        socket: path of the Unix socket to listen on.
        base: URL of the server as its readers see it, with a slash at its end.
        near: its URL on this machine.
        datasets: names of the datasets to ask.
        continuous: whether it has continuous queries.
        seconds: time for one query.
        rows: solutions of one query.
        memory: MiB that this process may grow by while a query is answered.
        streams: how many may follow answers at the same time.
        streams_per_reader: how many of these one address may have; 0: all.
        examples: files of queries that the page offers.
        map_tiles: template of the URLs of tiles of the page's map; none where empty.
        map_attribution: whose they are.
    """

    socket: str
    base: str
    near: str
    datasets: list[str]
    continuous: bool
    seconds: float
    rows: int
    memory: int
    streams: int
    streams_per_reader: int
    examples: list[str]
    map_tiles: str
    map_attribution: str


class _Near(BaseAdapter):
    """Asks the server on this machine for what its readers find at its public URL.

    Args:
        orders: name both URLs.
        adapter: sends the requests.
    """

    def __init__(self, orders: Orders, adapter: BaseAdapter) -> None:
        super().__init__()
        self._orders = orders
        self._adapter = adapter

    def send(
        self, request: requests.PreparedRequest, *arguments: Any, **options: Any
    ) -> requests.Response:
        """Send a request whose URL begins with the public one."""
        assert request.url is not None
        request.url = self._orders.near + request.url[len(self._orders.base) :]
        return self._adapter.send(request, *arguments, **options)

    def close(self) -> None:
        """Let go of connections."""
        self._adapter.close()


def near_session(orders: Orders) -> requests.Session:
    """A session that asks the server directly, whatever stands between it and its readers."""
    session = pooled_session(_CONNECTIONS)
    session.mount(orders.base, _Near(orders, session.get_adapter(orders.near)))
    return session


class BesideServer:
    """A WSGI application: an endpoint over all datasets, and one over each; made when asked first.

    Args:
        orders: what the server says.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._tiles = map_tiles(orders.map_tiles, orders.map_attribution)
        self._examples = [read_example(Path(file)) for file in orders.examples]
        self._lock = threading.Lock()
        self._session = near_session(orders)
        self._clients: list[Client] = []
        self._endpoints: dict[tuple[str, ...], SparqlEndpoint] = {}
        self.threads = orders.streams + _SPARE
        """How many requests may be under way at the same time."""

    def __call__(self, environ: WsgiEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request that the server passes on."""
        scheme, _, where = environ.get("HTTP_X_TPF_AT", "http://localhost").partition("://")
        # Not taken apart any further: the reader named the host, and the endpoint looks at it.
        host, _, path = where.partition("/")
        over = environ.get("HTTP_X_TPF_OVER", "")
        seen = {
            "wsgi.url_scheme": scheme,
            "HTTP_HOST": host,
            "SCRIPT_NAME": f"/{path}".rstrip("/"),
            "REMOTE_ADDR": environ.get("HTTP_X_TPF_READER", ""),
        }
        return self._endpoint(over)({**environ, **seen}, start_response)

    def _endpoint(self, over: str) -> SparqlEndpoint:
        orders = self._orders
        # One dataset is all there are where there are no others.
        names = (over,) if over else tuple(orders.datasets)
        with self._lock:
            found = self._endpoints.get(names)
            if found is not None:
                return found
            client = Client(
                *[orders.base + name for name in names], session=self._session, services=()
            )
            self._clients.append(client)
            queries = urlsplit(orders.base).path + "queries"
            found = self._endpoints[names] = SparqlEndpoint(
                client,
                Allowance(orders.seconds, orders.rows, orders.memory * 2**20),
                # The server has seen to who calls it what, and lets all pages read.
                hosts=["*"],
                origins=["*"],
                streams=orders.streams,
                streams_per_reader=orders.streams_per_reader,
                examples=self._examples,
                continuous=queries if orders.continuous else "",
                tiles=self._tiles,
            )
            return found

    def close(self) -> None:
        """Stop the queries under way, and end the streams."""
        for endpoint in tuple(self._endpoints.values()):
            endpoint.close()

    def release(self) -> None:
        """Let go of connections, once it is closed."""
        for client in self._clients:
            client.close()
        self._session.close()


def _listener(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    # A connection to a Unix socket beyond these is refused at once, unlike one of TCP.
    listener.listen(4096)
    return listener


def _end_with_input() -> None:
    """Stop when whoever started this process is gone."""
    with suppress(OSError):
        while os.read(0, 2**10):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)


def main() -> None:
    """Do what the line on standard input says."""
    # Without a buffer, which the thread that waits for the end would hold when the process ends.
    with open(0, "rb", buffering=0, closefd=False) as given:
        orders = Orders(**json.loads(given.readline()))
    threading.Thread(target=_end_with_input, name="server", daemon=True).start()
    endpoint = BesideServer(orders)
    run_until_told(endpoint, make_server(endpoint, _listener(orders.socket)))
    endpoint.release()


if __name__ == "__main__":
    main()
