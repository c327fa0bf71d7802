"""A server of facts that keeps posted facts and fails on demand."""

import io
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

import requests

from annotations.clock import Clock, SystemClock
from annotations.instants import parse_instant
from tests.support.eventually import eventually
from tests.support.threaded import in_thread


@dataclass
class Posted:
    """An accepted batch."""

    at: datetime
    batch: str
    label: dict[str, datetime]
    lines: list[str]


@dataclass
class FactsServer:
    """The publishing interface of a server, over a list.

    Args:
        clock: of the server.
        faults: for each coming request: a status (the batch is refused), or ``"lost"`` (it
            is taken, and
            the connection breaks before the answer).
        takes: called with every request; may let time pass.
    """

    clock: Clock
    faults: list[int | str] = field(default_factory=list)
    accepted: list[Posted] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    requests: int = 0
    takes: Callable[[], None] = lambda: None
    headers: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests += 1
        self.takes()
        fault = self.faults.pop(0) if self.faults else None
        query = {k: v[0] for k, v in parse_qs(environ["QUERY_STRING"]).items()}
        if environ.get("HTTP_AUTHORIZATION") != "Bearer secret":
            return self._answer(start_response, 401, b"who are you?")
        if isinstance(fault, int):
            return self._answer(start_response, fault, b"a fault\nwith details")
        batch = query.pop("batch")
        label = {name: parse_instant(value) for name, value in query.items()}
        ends = label.get("expiration", label.get("final"))  # or the facts are annotated
        if ends is not None and ends <= self.clock.now():
            return self._answer(start_response, 400, b"the label has ended")
        if batch in {posted.batch for posted in self.accepted}:
            self.repeated.append(batch)
        else:
            lines = environ["wsgi.input"].read().decode().splitlines()
            self.accepted.append(Posted(self.clock.now(), batch, label, lines))
        if fault == "lost":
            raise requests.ConnectionError("connection broken")
        return self._answer(start_response, 201, b"")

    def _answer(self, start_response: Any, status: int, body: bytes) -> Iterable[bytes]:
        start_response(f"{status} Status", [("Content-Length", str(len(body))), *self.headers])
        return [body]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def listening(application: Callable[[dict[str, Any], Any], Iterable[bytes]]) -> Iterator[str]:
    """Serve an application on loopback; return its root URL."""

    def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # The input of this server does not end at the end of the body.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:  # whoever sent it was killed
            start_response("400 Bad Request", [])
            return [b"the body ends early"]
        return application(environ | {"wsgi.input": io.BytesIO(body)}, start_response)

    server = make_server("127.0.0.1", 0, call, handler_class=_Quiet)
    with in_thread(server):
        yield f"http://127.0.0.1:{server.server_port}/"


class Endpoint:
    """A server of facts on a port."""

    def __init__(self, origin: str, facts: FactsServer) -> None:
        self.url = f"{origin}sensors"
        self.facts = facts

    def wait_for(self, batches: int, process: "subprocess.Popen[bytes]") -> None:
        """Wait until so many batches came from a process."""
        eventually(lambda: len(self.facts.accepted) >= batches, process)


@contextmanager
def facts_endpoint() -> Iterator[Endpoint]:
    """A server of facts on a port, on the real clock."""
    facts = FactsServer(SystemClock())
    with listening(facts) as origin:
        yield Endpoint(origin, facts)
