"""Servers of the standard library and of werkzeug in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer


@contextmanager
def in_thread(server: BaseServer) -> Iterator[None]:
    """Serve, and close the server at the end; by default it sleeps half a second before."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
