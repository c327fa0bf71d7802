"""A SPARQL endpoint of the client on loopback, as `tpf-query serve` runs it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.app.serving import close_server, make_server


@contextmanager
def serving(endpoint: SparqlEndpoint, servers: list[Any] | None = None) -> Iterator[str]:
    """Return the URL of a running endpoint; its server is put into `servers`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = make_server(endpoint, listener)
    if servers is not None:
        servers.append(server)
    over = threading.Event()
    maintenance = server.maintenance

    def look(now: float) -> None:
        # Runs in the thread of the server's loop, which nothing else may end.
        if over.is_set():
            raise SystemExit
        maintenance(now)

    server.maintenance = look
    server.adj.cleanup_interval = 0
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/sparql"
    finally:
        endpoint.close()
        over.set()
        server.pull_trigger()
        thread.join(60)
        close_server(server)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, 30 seconds at most."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)
