"""Let a session call a WSGI application in process, without a socket.

    session = WsgiSession()
    session.mount("http://server.test/", WsgiAdapter(app))
    session.get("http://server.test/trains")

`WsgiSession` is faster than `requests.Session`. The application sees the environment that a server
makes (PEP 3333); the body is streamed, and closing the response closes the application's iterable,
as
when a client goes away.
"""

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

StartResponse = Callable[..., Callable[[bytes], object]]
WsgiApplication = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]
WholeAnswer = tuple[str, list[tuple[str, str]], bytes]
"""Status, headers and body."""


class WsgiAdapter(HTTPAdapter):
    """A transport that hands each request to a WSGI application, and logs method and path."""

    def __init__(self, app: WsgiApplication, log: list[tuple[str, str]] | None = None) -> None:
        super().__init__()
        self.app = app
        self.log: list[tuple[str, str]] = [] if log is None else log

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: object = True,
        cert: object = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Answer a prepared request from the application."""
        self.log.append((request.method or "GET", request.path_url))
        started: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            if started and exc_info is None:
                raise AssertionError("the application called start_response twice")
            started[:] = [(status, headers)]
            return written.append

        body = self.app(_environ(request), start_response)
        chunks = iter(body)
        # An application may call start_response as late as with its first chunk.
        first: list[bytes] = []
        while not started:
            chunk = next(chunks, None)
            if chunk is None:
                raise AssertionError("the application never called start_response")
            first.append(chunk)
        status, headers = started[0]
        code, _, reason = status.partition(" ")
        raw = HTTPResponse(
            body=_BodyReader(_chain(written, first, chunks), getattr(body, "close", None)),
            headers=HTTPHeaderDict(headers),
            status=int(code),
            reason=reason,
            preload_content=False,
            decode_content=False,
            request_method=request.method,
        )
        response: requests.Response = self.build_response(request, raw)
        if not stream:
            _ = response.content
        return response


class WsgiSession(requests.Session):
    """A session for `WsgiAdapter` that parses the form of a URL once."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # the whole environment is searched for proxies, each time
        self._prepared: dict[str, requests.PreparedRequest] = {}

    def get(self, url: Any, **options: Any) -> requests.Response:
        """Send a GET request to the application at once."""
        if options.keys() != _CLIENT_OPTIONS:
            return super().get(url, **options)
        prepared = self._prepared.get(url)
        if prepared is None:
            prepared = self._prepared[url] = self.prepare_request(requests.Request("GET", url))
        adapter = self.get_adapter(prepared.url or url)
        if not isinstance(adapter, WsgiAdapter):
            return super().get(url, **options)
        request = prepared.copy()
        request.headers.update(options["headers"])
        return adapter.send(request, stream=True)


def changing(
    app: WsgiApplication, change: Callable[[dict[str, Any], WholeAnswer], WholeAnswer]
) -> WsgiApplication:
    """An application whose answers are changed: whole, without an encoding or a length."""

    def answer(environ: dict[str, Any], start: Any) -> list[bytes]:
        started: list[Any] = []

        def keep(*head: Any) -> Callable[[bytes], object]:
            started.extend(head)
            return started.append

        environ["HTTP_ACCEPT_ENCODING"] = "identity"
        body = b"".join(app(environ, keep))
        headers = [field for field in started[1] if field[0] != "Content-Length"]
        status, headers, body = change(environ, (started[0], headers, body))
        start(status, headers)
        return [body]

    return answer


_CLIENT_OPTIONS = {"headers", "timeout", "stream", "allow_redirects"}


def _chain(*parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield from part


class _BodyReader(io.RawIOBase):
    """The body as the file that urllib3 reads from."""

    def __init__(self, chunks: Iterator[bytes], close: Callable[[], object] | None) -> None:
        super().__init__()
        self._chunks = chunks
        self._close = close
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.close()
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def read1(self, size: int = -1) -> bytes:
        return self.read(size) or b""

    def close(self) -> None:
        if not self.closed and self._close is not None:
            self._close()
        super().close()


def _environ(request: requests.PreparedRequest) -> dict[str, Any]:
    url = urlsplit(request.url or "")
    assert url.hostname is not None
    body: Any = request.body
    if body is None:
        source: Any = io.BytesIO()
    elif isinstance(body, str):
        source = io.BytesIO(body.encode())
    elif isinstance(body, bytes):
        source = io.BytesIO(body)
    elif hasattr(body, "read"):
        source = body
    else:
        source = io.BufferedReader(_BodyReader(iter(body), None))
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.path or "/").decode("latin-1"),
        "QUERY_STRING": url.query,
        "REQUEST_URI": request.path_url,
        "SERVER_NAME": url.hostname,
        "SERVER_PORT": str(url.port or (443 if url.scheme == "https" else 80)),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": url.netloc.rpartition("@")[2],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": url.scheme,
        "wsgi.input": source,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    headers: Mapping[str, str | bytes] = request.headers
    for name, value in headers.items():
        text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
        key = name.upper().replace("-", "_")
        if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            environ[key] = text
        elif key == "TRANSFER_ENCODING":
            environ["wsgi.input_terminated"] = True
            environ["HTTP_TRANSFER_ENCODING"] = text
        else:
            environ[f"HTTP_{key}"] = text
    return environ
