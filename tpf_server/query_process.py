"""The process that answers queries beside the workers: started, watched over, and ended.

It is a program of the client's (`tpf_client.beside_server`), which asks the workers for fragments
as any client does. Nothing of it is loaded here.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from tpf_server.configuration import Configuration
from tpf_server.settings import example_files
from tpf_server.workers import Deaths

_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 10.0
_COMMAND: Final = (sys.executable, "-m", "tpf_client.beside_server")
_SECRETS: Final = ("TPF_SERVER_", "TPF_PUBLISH_")
"""How variables begin that the process has no business with."""


class QueryProcess:
    """Keeps the process there, with the orders of the day, until the server ends.

    Args:
        socket: path of the Unix socket that it listens on.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._orders = ""
        self._closed = False
        self._thread: threading.Thread | None = None

    def order(self, given: Mapping[str, object]) -> None:
        """Let it work by these `orders` from now on; a process with others is replaced."""
        self._orders = json.dumps(given)

    def start(self, is_stopping: Callable[[], bool]) -> None:
        """Begin, in a thread.

        Args:
            is_stopping: whether the server is about to end, and the process with it.
        """
        arguments = (lambda: self._closed or is_stopping(),)
        self._thread = threading.Thread(target=self._watch, args=arguments, daemon=True)
        self._thread.start()

    def is_ready(self) -> bool:
        """Whether it listens."""
        return Path(self.socket).is_socket()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()

    def _watch(self, is_stopping: Callable[[], bool]) -> None:
        deaths = Deaths(lambda: True, is_stopping)
        while not is_stopping():
            given = self._orders
            deaths[0] = time.monotonic()
            try:
                process = self._begun(given)
            except OSError as error:  # no memory or no process is left just now
                click.echo(f"tpf-server: what answers queries cannot start: {error}", err=True)
                deaths.get(0)
                continue
            while process.poll() is None and given == self._orders and not is_stopping():
                time.sleep(_LOOK_SECONDS)
            status = process.poll()
            _end(process)
            if status is not None and not is_stopping():
                click.echo(
                    f"tpf-server: what answers queries ended with status {status}; again", err=True
                )
                deaths.get(0)

    def _begun(self, given: str) -> "subprocess.Popen[bytes]":
        environment = {n: v for n, v in os.environ.items() if not n.startswith(_SECRETS)}
        # A session of its own: a Ctrl-C is for the server, which ends it.
        process = subprocess.Popen(  # noqa: S603
            _COMMAND, stdin=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead already, which is noticed soon
            process.stdin.write(given.encode() + b"\n")
            process.stdin.flush()
        return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # nobody read the orders
        process.stdin.close()


def orders(configuration: Configuration, socket: str) -> dict[str, object]:
    """What the process is to do.

    Args:
        configuration: of the server.
        socket: path of the Unix socket that it listens on.

    Raises:
        SettingsError: there are no such examples.
    """
    settings = configuration.server
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    return {
        "socket": socket,
        "base": settings.base,
        "near": f"http://{host}:{settings.port}/",
        "datasets": [dataset.name for dataset in configuration.datasets],
        "continuous": settings.continuous,
        "seconds": settings.query_seconds,
        "rows": settings.query_rows,
        "memory": settings.query_memory,
        "streams": settings.followers,
        "streams_per_reader": settings.followers_per_address,
        "examples": [str(file) for file in example_files(settings.query_examples)],
        "map_tiles": settings.query_map_tiles,
        "map_attribution": settings.query_map_attribution,
    }
