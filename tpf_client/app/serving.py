"""``tpf-query serve``: a local SPARQL endpoint over fragments."""

import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Annotated, Any

import typer
from waitress.channel import HTTPChannel
from waitress.server import create_server

from annotations.seconds import seconds_from
from tpf_client.app.endpoint import PATH, EndpointLimits, SparqlEndpoint, StartResponse
from tpf_client.app.page_command import (
    ExampleFiles,
    TilesAttribution,
    TilesTemplate,
    offers,
)
from tpf_client.client import Client
from tpf_client.fragments.destinations import is_file, not_a_url
from tpf_client.planner.budget import Allowance
from tpf_client.protocol import MAX_BODY, WsgiEnvironment

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class _Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """A connection that does not wait for ever for a slow reader."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cut = False
        self._when_gone: list[Callable[[], None]] = []

    def when_gone(self, action: Callable[[], None]) -> None:
        """Call `action`, in the server's loop, when the reader has gone."""
        self._when_gone.append(action)
        if not self.connected:
            self._tell()

    def _tell(self) -> None:
        actions, self._when_gone = self._when_gone, []
        for action in actions:
            action()

    def handle_read(self) -> None:
        super().handle_read()
        if not self.connected:
            self._tell()

    def handle_close(self) -> None:
        super().handle_close()
        self._tell()

    def write_soon(self, data: Any) -> int:
        if not self.total_outbufs_len:
            # Only from now on can its reader be late.
            self.last_activity = time.time()
        return int(super().write_soon(data))

    def cut_off(self) -> None:
        """Close it without the rest of the answer, from any thread."""
        self._cut = True
        self.server.pull_trigger()

    def readable(self) -> bool:
        stalled = time.time() - self.last_activity > self.adj.channel_timeout
        if self._cut or (self.total_outbufs_len and stalled):
            self.handle_close()
        return self.connected and bool(super().readable())

    def writable(self) -> bool:
        return self.connected and bool(super().writable())


def make_server(endpoint: SparqlEndpoint, listener: socket.socket) -> Any:
    """Make a server of the endpoint, which closes its listener."""
    # Who waits for a place is told so by nobody but our log.
    logging.getLogger("waitress").setLevel(logging.ERROR)

    def answer(environ: WsgiEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        channel: _Channel = environ["waitress.client_disconnected"].__self__
        ours = {"tpf_client.cut_off": channel.cut_off, "tpf_client.when_gone": channel.when_gone}
        return endpoint({**environ, **ours}, start_response)

    server = create_server(
        answer,
        sockets=[listener],
        # Whoever follows an answer takes a thread, which mostly sleeps.
        threads=endpoint.threads,
        connection_limit=endpoint.threads + 100,
        asyncore_use_poll=True,
        ident="tpf-query",
        # What is read while a query runs tells whether its reader is still there.
        channel_request_lookahead=1,
        # As many and one are refused there already.
        max_request_body_size=MAX_BODY + 1,
        max_request_header_size=MAX_BODY,
        channel_timeout=30,
        cleanup_interval=10,
        outbuf_high_watermark=2**20,
        log_socket_errors=False,
    )
    server.channel_class = _Channel
    return server


def close_server(server: Any) -> None:
    """Close a stopped server and its connections."""
    for channel in list(server.active_channels.values()):
        channel.handle_close()
    server.close()


def run_until_stopped(endpoint: SparqlEndpoint, server: Any, message: str = "") -> None:
    """Answer until SIGTERM or SIGINT, in the main thread; print `message` once ready."""
    # By itself: this thread may hold just then what ending a follower takes.
    ending = threading.Thread(target=endpoint.close, name="ending", daemon=True)

    def stop(_number: int, _frame: FrameType | None) -> None:
        if ending.ident is None:
            ending.start()
        raise SystemExit

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    sys.stderr.write(message)
    sys.stderr.flush()
    # Ends without an error when a handler raises.
    server.run()
    if ending.ident is not None:
        ending.join()
    close_server(server)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; `OSError` or `UnicodeError` if it cannot."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=128)


@app.command(no_args_is_help=True)
def serve(
    urls: Annotated[
        list[str], typer.Argument(help="URLs of datasets, or RDF files", metavar="URL...")
    ],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0: a free one")] = 8890,
    seconds: Annotated[
        float,
        typer.Option(
            parser=seconds_from(0.001), metavar="SECONDS", help="time for the answer of one query"
        ),
    ] = 60.0,
    rows: Annotated[int, typer.Option(min=1, help="solutions of one query")] = 1_000_000,
    memory: Annotated[
        int, typer.Option(min=1, help="MiB that the process may grow by while a query is answered")
    ] = 1024,
    queries: Annotated[
        int, typer.Option(min=1, help="queries that are answered at the same time")
    ] = 8,
    streams: Annotated[
        int, typer.Option(min=1, help="readers that follow answers at the same time")
    ] = 200,
    streams_per_reader: Annotated[
        int, typer.Option(min=1, help="how many of these one address may have")
    ] = 50,
    min_interval: Annotated[
        float,
        typer.Option(
            parser=seconds_from(0.1),
            metavar="SECONDS",
            help="seconds between two evaluations of a followed answer, at least",
        ),
    ] = 1.0,
    allow_service: Annotated[
        list[str] | None,
        typer.Option(help="a URL that SERVICE may ask, beside the datasets; can be repeated"),
    ] = None,
    allow_link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="an origin that links, forms and redirects may lead to, beside that of each "
            "dataset; can be repeated",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="an origin whose web pages may ask, or *; can be repeated"),
    ] = None,
    example: ExampleFiles = None,
    map_tiles: TilesTemplate = "",
    map_attribution: TilesAttribution = "",
    signal_: Annotated[
        bool,
        typer.Option("--signal", help="evaluate at once when a server says that facts changed"),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="refuse queries with functions that are not known")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="a name that this endpoint is known by; can be repeated"),
    ] = None,
) -> None:
    """Answer the SPARQL protocol at /sparql, over Triple Pattern Fragments; a page for it at /."""
    origins = {*(allow_origin or ())} - {"*", "null"}
    for url in (*urls, *(allow_service or ()), *(allow_link or ()), *origins):
        if not is_file(url) and (wrong := not_a_url(url)):
            raise typer.BadParameter(wrong, param_hint="URL")
    examples, tiles = offers(example, map_tiles, map_attribution)
    allowance = Allowance(seconds, rows, memory * 2**20)
    links = allow_link or ()
    with Client(
        *urls, services=allow_service or (), allowed_origins=links, strict=strict, signal=signal_
    ) as client:
        try:
            listener = listen(host, port)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            sys.stderr.write(f"tpf-query: {host}:{port}: {reason}\n")
            raise typer.Exit(1) from error
        endpoint = SparqlEndpoint(
            client,
            allowance,
            hosts=[*(allow_host or ()), host],
            origins=allow_origin or (),
            limits=EndpointLimits(queries, streams, streams_per_reader, min_interval),
            examples=examples,
            tiles=tiles,
        )
        server = make_server(endpoint, listener)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}{PATH}"
        run_until_stopped(endpoint, server, f"tpf-query: {url}\n")
