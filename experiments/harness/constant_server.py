"""The floor: a Flask view on granian that answers ``/N`` with N constant bytes."""

import sys
from functools import cache

from flask import Flask, Response

from tpf_server.workers import THREADS


@cache
def _body(size: int) -> bytes:
    return b"x" * size


def factory() -> Flask:
    """Make the application."""
    app = Flask("constant", static_folder=None)

    @app.get("/<int:size>")
    def constant(size: int) -> Response:
        return Response(_body(size), content_type="application/trig; charset=utf-8")

    return app


def main() -> None:
    """Serve on the port of the command line, as our own server is served."""
    from granian.constants import Interfaces
    from granian.log import LogLevels
    from granian.server import Server

    Server(
        "experiments.harness.constant_server:factory", factory=True, interface=Interfaces.WSGI,
        address="127.0.0.1", port=int(sys.argv[1]), workers=1, blocking_threads=THREADS,
        log_level=LogLevels.warning, websockets=False,
    ).serve()  # fmt: skip


if __name__ == "__main__":
    main()
