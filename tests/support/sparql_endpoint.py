"""A SPARQL endpoint on loopback that can fail."""

from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pyoxigraph as ox

from tests.support.threaded import http_server


class LoopbackEndpoint:
    """Answers CONSTRUCT over its store, or 503 unless it `works`; records queries in `asked`."""

    def __init__(self, turtle: str) -> None:
        self.store = ox.Store()
        self.store.load(turtle.encode(), ox.RdfFormat.TURTLE)
        self.works = True
        self.asked: list[str] = []
        self._running = http_server(self._answer)
        self.url = ""

    def _answer(self, asked: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(asked.path).query).get("query")
        if not self.works or query is None:
            asked.send_error(503 if query else 400)
            return
        self.asked.append(query[0])
        found = self.store.query(query[0])
        body = ox.serialize(found, format=ox.RdfFormat.N_TRIPLES)  # type: ignore[arg-type]
        assert body is not None
        asked.send_response(200)
        asked.send_header("Content-Type", "application/n-triples")
        asked.send_header("Content-Length", str(len(body)))
        asked.end_headers()
        asked.wfile.write(body)

    def __enter__(self) -> "LoopbackEndpoint":
        self.url = f"http://127.0.0.1:{self._running.__enter__()}/sparql"
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)
