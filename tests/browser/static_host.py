"""A static host on a loopback port: the files of a folder, compressed for those who take it."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
}


class StaticHost(ThreadingHTTPServer):
    """Serves a folder; a context manager that ends it.

    Attributes:
        asked: the paths that were asked for.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *problem: object) -> None:
        self.shutdown()
        self.server_close()


class _Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, StaticHost)
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        file = Path(self.directory) / (path.lstrip("/") or "index.html")
        packed = file.with_name(file.name + ".br")
        if not file.is_file():
            self.send_error(404)
            return
        takes = "br" in self.headers.get("Accept-Encoding", "") and packed.is_file()
        body = (packed if takes else file).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", _TYPES.get(file.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        if takes:
            self.send_header("Content-Encoding", "br")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
