"""The real HTTP server in this process, and a `requests` session that sends URLs unchanged.

    with Loopback(app) as server:
        session = requests.Session()
        session.mount("http://server.test/", LoopbackAdapter(server.port))
        session.get("http://server.test/trains")

granian, as in a worker of ``tpf-server``, runs in a thread, so that tests share clock and stores
with
the application. urllib3 would normalise percent-encoding.
"""

import io
import select
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import Any

import requests
from granian._granian import SocketHolder
from granian.constants import Interfaces, RuntimeModes
from granian.server.mt import MTServer
from requests.adapters import HTTPAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

from tests.support.wsgi_adapter import WsgiApplication
from tpf_server.workers import THREADS

_SECONDS = 60


class Loopback:
    """A server of one application; a context manager."""

    def __init__(self, app: WsgiApplication) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        # granian's threads instead of its processes; what it does in them is the same.
        server: Any = MTServer(
            "",
            interface=Interfaces.WSGI,
            runtime_mode=RuntimeModes.mt,
            blocking_threads=THREADS,
            websockets=False,
            log_enabled=False,
        )
        holder: Any = SocketHolder
        server._shd = holder(listener.detach(), False, server.backlog)
        self._worker = server._spawn_worker(0, MTServer._spawn_wsgi_worker, app)
        self._worker.start()

    def close(self) -> None:
        """Finish the requests under way and stop."""
        self._worker.terminate()
        self._worker.join(_SECONDS)

    def __enter__(self) -> "Loopback":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class LoopbackAdapter(HTTPAdapter):
    """A transport that sends each request to a loopback port, unchanged, and logs it."""

    def __init__(self, port: int, log: list[tuple[str, str]] | None = None) -> None:
        super().__init__()
        self._port = port
        self._log: list[tuple[str, str]] = [] if log is None else log

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: object = True,
        cert: object = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a prepared request on a connection of its own."""
        method = request.method or "GET"
        self._log.append((method, request.path_url))
        url = request.url or ""
        _, _, host_and_path = url.partition("://")
        host, slash, path = host_and_path.partition("/")
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)) as connection:
            connection.putrequest(method, slash + path, skip_host=True, skip_accept_encoding=True)
            headers = {"Host": host, **request.headers}
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            # A server that has had enough answers, and reads no more.
            with suppress(BrokenPipeError, ConnectionResetError):
                _send_body(connection, request.body)
            answer = connection.getresponse()
            body = answer.read()
        raw = HTTPResponse(
            body=io.BytesIO(body),
            headers=HTTPHeaderDict(answer.getheaders()),
            status=answer.status,
            reason=answer.reason,
            preload_content=False,
            decode_content=False,
            request_method=request.method,
        )
        response: requests.Response = self.build_response(request, raw)
        if not stream:
            _ = response.content
        return response


def _send_body(connection: HTTPConnection, body: Any) -> None:
    """Send the body, or as much as the server wants before it answers."""
    if isinstance(body, str | bytes):
        connection.send(body.encode() if isinstance(body, str) else body)
    elif body is not None:
        for chunk in body:
            if select.select([connection.sock], [], [], 0)[0]:
                return
            connection.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        connection.send(b"0\r\n\r\n")
