"""A SPARQL endpoint on loopback that can fail."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pyoxigraph as ox

from tests.support.threaded import in_thread


class LoopbackEndpoint:
    """Answers CONSTRUCT over its store, or 503 unless it `works`; records queries in `asked`."""

    def __init__(self, turtle: str) -> None:
        self.store = ox.Store()
        self.store.load(turtle.encode(), ox.RdfFormat.TURTLE)
        self.works = True
        self.asked: list[str] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query).get("query")
                if not endpoint.works or query is None:
                    self.send_error(503 if query else 400)
                    return
                endpoint.asked.append(query[0])
                found = endpoint.store.query(query[0])
                body = ox.serialize(found, format=ox.RdfFormat.N_TRIPLES)  # type: ignore[arg-type]
                assert body is not None
                self.send_response(200)
                self.send_header("Content-Type", "application/n-triples")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/sparql"
        self._running = in_thread(self._server)

    def __enter__(self) -> "LoopbackEndpoint":
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.__exit__(None, None, None)
