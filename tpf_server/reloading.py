"""A worker's application, exchanged for another one while requests are under way.

Nothing of a reload can be seen on a connection: the process stays, and so do its sockets. (A new
process for every reload would lose connections: those that wait to be accepted by the old one, and
those on which a client sends just when the old one closes them.)
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import click

from tpf_server.configuration import Configuration
from tpf_server.errors import ServerError

LOOK_SECONDS: Final = 0.2
"""How often somebody looks whether something has been asked for."""


class MadeApplication(NamedTuple):
    """An application.

    Args:
        app: answers requests.
        close: closes what it needs; called once no request is under way any more.
    """

    app: WSGIApplication
    close: Callable[[], None]


class _Generation:
    """An application, and how many requests of it are under way."""

    __slots__ = ("made", "requests", "retired")

    def __init__(self, made: MadeApplication) -> None:
        self.made = made
        self.requests = 0
        self.retired = False


class Reloading:
    """A WSGI application: the one of the settings in a file, made anew when that is replaced.

    Args:
        file: the settings, as `Configuration.to_json` writes them; replaced as a whole.
        make: makes the application of some settings.

    Raises:
        ServerError: `make` cannot make the first one.
    """

    def __init__(self, file: Path, make: Callable[[Configuration], MadeApplication]) -> None:
        self._file = file
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._generation = _Generation(self._made())

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request by the application of now."""
        with self._lock:
            generation = self._generation
            generation.requests += 1
        try:
            return generation.made.app(environ, start_response)
        finally:
            with self._lock:
                generation.requests -= 1
                over = generation.retired and not generation.requests
            if over:
                generation.made.close()

    def look(self) -> bool:
        """Exchange the application if the file has been replaced; whether it has been.

        Raises:
            ServerError: there is no application of these settings; the old one stays.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        new = _Generation(self._made())
        with self._lock:
            old, self._generation = self._generation, new
            old.retired = True
            idle = not old.requests
        if idle:
            old.made.close()
        return True

    def follow(self) -> None:
        """Look again and again, in a thread that ends with the process."""
        threading.Thread(target=self._follow, name="settings", daemon=True).start()

    def _follow(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                self.look()
            except (ServerError, OSError) as error:
                click.echo(f"tpf-server: a worker keeps its settings: {error}", err=True)
            except Exception:
                # Otherwise no later settings would be taken.
                logging.getLogger("tpf_server").exception("a worker keeps its settings")

    def _made(self) -> MadeApplication:
        return self._make(Configuration.from_json(self._file.read_text(encoding="utf-8")))

    def _stamp(self) -> tuple[int, int]:
        status = self._file.stat()
        return status.st_ino, status.st_mtime_ns
