"""Servers of the standard library and of werkzeug in a thread."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


@contextmanager
def http_server(
    answer: Callable[[BaseHTTPRequestHandler], object],
    version: str = "HTTP/1.0",
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """Answer GET requests by a function; the port of the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = version

        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    with in_thread(server):
        yield server.server_port
