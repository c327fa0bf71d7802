"""Many datasets behind one loopback port, each under a number of its own."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from annotations.instants import parse_instant
from annotations.terms import Quad
from tests.support.live_server import LiveServer
from tests.support.loopback import Loopback


class Shelf:
    """Servers in this process that other processes can ask; a context manager.

    ``/advance/INSTANT`` moves their manual clocks.

    Args:
        folder: for their stores.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, LiveServer] = {}
        self.away = False
        """Whether each request is answered with 503."""
        self._loopback = Loopback(self._answer)

    def __enter__(self) -> "Shelf":
        return self

    def __exit__(self, *problem: object) -> None:
        self._loopback.close()
        for server in self._servers.values():
            server.close()

    def add(self, quads: Iterable[Quad] = (), **options: Any) -> tuple[str, LiveServer]:
        """Serve quads; the URL of the dataset, and its server."""
        number = str(len(self._servers))
        folder = self._folder / number
        folder.mkdir()
        base = f"http://127.0.0.1:{self._loopback.port}/{number}/"
        settings = {"base_url": base, **options.pop("server", {})}
        server = LiveServer(folder, quads, server=settings, **options)
        self._servers[number] = server
        return server.url, server

    def _answer(self, environ: Any, start: Any) -> Any:
        if self.away:
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        number, _, rest = environ["PATH_INFO"].lstrip("/").partition("/")
        if number == "advance":
            for server in self._servers.values():
                server.clock.advance_to(parse_instant(rest))
            start("204 No Content", [("Access-Control-Allow-Origin", "*")])
            return []
        return self._servers[number].app({**environ, "PATH_INFO": f"/{rest}"}, start)
