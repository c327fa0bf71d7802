"""``tpf-query serve``: a local SPARQL endpoint over fragments."""

import socketserver
import sys
from typing import Annotated, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import typer

from tpf_client.client import Client
from tpf_client.endpoint import Endpoint

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class ThreadingServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread per request."""

    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    """Does not write a line per request."""

    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called there
        """Nothing."""


def make_server(client: Client, host: str, port: int) -> ThreadingServer:
    """A server of the endpoint; `serve_forever` runs it.

    Raises:
        OSError: it cannot listen there.
    """
    server = ThreadingServer((host, port), _QuietHandler)
    server.set_app(Endpoint(client))
    return server


@app.command(no_args_is_help=True)
def serve(
    urls: Annotated[list[str], typer.Argument(help="URLs of datasets", metavar="URL...")],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0: a free one")] = 8890,
) -> None:
    """Answer the SPARQL protocol at /sparql, over Triple Pattern Fragments."""
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise typer.BadParameter(f"not an http(s) URL: {url}", param_hint="URL")
    with Client(*urls) as client:
        try:
            server = make_server(client, host, port)
        except OSError as error:
            sys.stderr.write(f"tpf-query: {host}:{port}: {error.strerror}\n")
            raise typer.Exit(1) from error
        with server:
            sys.stderr.write(f"tpf-query: http://{host}:{server.server_port}/sparql\n")
            sys.stderr.flush()
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return
