"""Files at URLs: an object store, and a web server that fails on demand."""

import http.server
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.object_store import BUCKET, ObjectStore
from tests.support.threaded import in_thread
from tpf_server.store.static.file_systems import s3_system


def put(folder: Path, remote: ObjectStore) -> str:
    """Put all files of a directory into an object store; return the URL of the folder."""
    system = s3_system(remote.environment)
    for file in folder.rglob("*"):
        if file.is_file():
            place = f"{BUCKET}/in/{file.relative_to(folder)}"
            with system.open_output_stream(place, compression=None) as out:
                out.write(file.read_bytes())
    return f"s3://{BUCKET}/in"


class Files(http.server.SimpleHTTPRequestHandler):
    """Files in parts that break off, fail and change on demand."""

    parts = True
    failures: Iterator[int] = iter(())
    cut = 0
    tag = '"1"'
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        status = next(self.failures, 0)
        path = Path(self.translate_path(self.path))
        if status or not path.is_file():
            self.send_error(status or 404)
            return
        content = path.read_bytes()
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        start, _, end = wanted.partition("-")
        if wanted and self.parts:
            part = content[int(start) : int(end) + 1 if end else None]
            self.send_response(206 if part else 416)
            last = int(start) + len(part) - 1
            given = f"{start}-{last}" if part else "*"
            self.send_header("Content-Range", f"bytes {given}/{len(content)}")
        else:
            part = content
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", self.tag)
        self.end_headers()
        self.wfile.write(part[: self.cut] if self.cut and len(part) > 1 else part)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def web(folder: Path) -> Iterator[tuple[str, type[Files]]]:
    """Serve a directory: its URL, and the controls of its answers."""

    class Own(Files):
        pass

    handler = partial(Own, directory=str(folder))
    with in_thread(server := http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)):
        yield f"http://127.0.0.1:{server.server_port}", Own
