"""Passes requests for answers on to the process that gives them, and its answers back as they come.

That process (`tpf_server.query_process`) listens on a Unix socket that nobody else can reach. Here
is all that a worker has to do with it, so that pages of fragments cost what they cost without it:
a thread that mostly sleeps, for each reader.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final
from urllib.parse import quote

from flask import Blueprint, Request, Response, request

from annotations.follower_slots import FollowerSlots
from tpf_server.errors import BusyError
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader
from tpf_server.web.resources import Operation, Resource
from tpf_server.web.responses import ALL_METHODS, EVENTS, Relayed, base_of, client_of
from tpf_server.web.site import Site

_ASK: Final = Operation(
    "Ask a SPARQL query, once or (text/event-stream) continuously", None, None,
    (400, 404, 406, 411, 413, 503),
)  # fmt: skip

_PAGE: Final = Operation("Read the page", None, None, (304, 404, 503))

QUERY_RESOURCES: Final = {
    "sparql": Resource(
        "/sparql",
        "SPARQL over all datasets; without a query, the description of the service.",
        {"GET": _ASK, "POST": _ASK},
    ),
    "query_page": Resource(
        "/query/",
        "The page where queries are written and their answers watched.",
        {"GET": _PAGE},
    ),
    "query_file": Resource(
        "/query/<file>",
        "What belongs to the page, with the endpoint once more.",
        {"GET": _ASK, "POST": _ASK},
    ),
    "dataset_sparql": Resource(
        "/<name>/sparql", "SPARQL over a dataset alone.", {"GET": _ASK, "POST": _ASK}
    ),
    "dataset_query_page": Resource("/<name>/query/", "The same page for it.", {"GET": _PAGE}),
    "dataset_query_file": Resource(
        "/<name>/query/<file>", "What belongs to that page.", {"GET": _ASK, "POST": _ASK}
    ),
}
"""By the names of their rules."""

_PASSED_ON = (
    "Accept", "Accept-Encoding", "Access-Control-Request-Headers", "Access-Control-Request-Method",
    "Content-Type", "If-None-Match", "Last-Event-ID", "Origin",
)  # fmt: skip
_HOP = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding", "via"})
"""Header fields of an answer that are between us and the process."""
_PATIENCE: Final = 60.0
"""Seconds beyond those of a query, after which the process counts as stuck."""
_CHUNK: Final = 2**16
_BROKEN: Final = b'\n"the answer was cut off'
"""In JSON, XML, CSV, TSV and RDF alike: a text that is not closed."""
_IN_URL: Final = "".join(map(chr, range(0x21, 0x7F)))
"""What stays as it is in the query of a URL."""
_MOST_BODY: Final = 2**18
"""Bytes of a request, as many as the process would take."""


class QueryFront:
    """Passes requests on. Thread-safe.

    Args:
        path: of the Unix socket.
        settings: of the server; those that a reload changes are each site's own.
        watched: a context while an address takes what is sent to it, which ends who takes nothing.

    Attributes:
        slots: of those who wait for answers, or follow them.
    """

    def __init__(
        self,
        path: str,
        settings: Settings,
        watched: Callable[[str], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._path = path
        self._bodies = BodyReader(_MOST_BODY)
        self._watched = watched or nullcontext
        self.slots = FollowerSlots(settings.followers, settings.followers_per_address)
        self._lock = threading.Lock()
        self._connections: set[_UnixConnection] = set()
        self._closed = False

    def close(self) -> None:
        """Let all answers come to their end."""
        with self._lock:
            self._closed = True
            connections = tuple(self._connections)
        for each in connections:
            each.end()

    def blueprint(self, site: Site) -> Blueprint:
        """The rules for a site, for `Flask.register_blueprint`."""
        blueprint = Blueprint("query", __name__)

        def view(name: str = "", file: str = "") -> Response:
            over = site.dataset(name).settings.name if name else ""
            asked = str(request.endpoint)
            if asked.endswith("sparql"):
                return self._pass_on(site.settings, request, over, name, "sparql")
            return self._pass_on(site.settings, request, over, f"{name}/query".lstrip("/"), file)

        for name, resource in QUERY_RESOURCES.items():
            blueprint.add_url_rule(
                resource.rule, name, view, methods=ALL_METHODS, provide_automatic_options=False
            )
        return blueprint

    def _pass_on(
        self, settings: Settings, asked: Request, over: str, mount: str, file: str
    ) -> Response:
        """The answer of the process.

        Args:
            settings: of the server.
            asked: the request.
            over: name of a dataset; all of them where empty.
            mount: where the endpoint is, relative to the base.
            file: the path from there on.

        Raises:
            BusyError: it is not there, or too many ask already.
            BodyError: the body of the request is none.
        """
        body = self._bodies.read(asked) if asked.method == "POST" else None
        reader = client_of(asked.environ, settings)
        headers = {name: asked.headers[name] for name in _PASSED_ON if name in asked.headers}
        headers |= {
            "X-Tpf-At": base_of(asked.environ, settings) + mount,
            "X-Tpf-Reader": reader,
            "X-Tpf-Over": over,
        }
        # Bytes beyond ASCII are written as a browser writes them.
        query = quote(asked.environ.get("QUERY_STRING", "").encode("latin-1"), _IN_URL)
        target = quote(f"/{file}") + (f"?{query}" if query else "")
        # The page, its files and preflights are there at once: nobody waits for them.
        waits = file == "sparql" and asked.method != "OPTIONS"
        if waits and not self.slots.take(reader):
            raise BusyError(
                f"{self.slots.limit} wait for answers already, or {self.slots.per_address} of "
                "this address; try again later"
            )
        connection = _UnixConnection(self._path, settings.query_seconds + _PATIENCE)

        def end() -> None:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
            if waits:
                self.slots.leave(reader)

        with ExitStack() as failing:
            failing.callback(end)
            with self._lock:
                self._connections.add(connection)
            try:
                connection.request(asked.method, target, body, headers)
                if self._closed:
                    connection.end()
                answer = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise BusyError("queries are not answered just now; try again") from error
            failing.pop_all()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        response = Relayed(self._sent(answer, reader), answer.status, kept)
        response.call_on_close(end)
        return response

    def _sent(self, answer: HTTPResponse, reader: str) -> Iterator[bytes]:
        """The body as it comes; where it breaks off, it ends in what no format allows.

        A server of WSGI may end it as if it were whole, and logs a traceback for an error here.
        Only an answer that is followed ends at any time: whoever follows asks again.
        """
        try:
            while piece := answer.read1(_CHUNK):
                with self._watched(reader):
                    yield piece
            broken = bool(answer.length)
        except (OSError, HTTPException):
            broken = True
        if broken and answer.headers.get_content_type() != EVENTS:
            yield _BROKEN


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket.

    Args:
        path: of the socket.
        seconds: for which nothing may come.
    """

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def end(self) -> None:
        """Let nothing more come, from whatever thread."""
        sock = self.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
