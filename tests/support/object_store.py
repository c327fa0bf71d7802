"""An object store in this process (moto's) that can fail on demand.

As a program, ``object_store.py ADDRESS FOLDER``, it serves the files of a folder, prints its URL,
and
ends with its standard input.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from tests.support.threaded import in_thread

BUCKET = "stores"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "something"}


class ObjectStore:
    """A running object store.

    Attributes:
        url: its URL.
        requests: methods and paths.
        fails: true for a request that gets a 500.
    """

    def __init__(self, app: Any) -> None:
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], bool] = lambda _method, _path: False
        self._app = app

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which programs find it."""
        return KEYS | {"AWS_ENDPOINT_URL": self.url}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        asked = (environ["REQUEST_METHOD"], environ["PATH_INFO"])
        self.requests.append(asked)
        if self.fails(*asked):
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        found: Iterable[bytes] = self._app(environ, start_response)
        return found


@contextlib.contextmanager
def object_store(address: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """Run an object store with one empty bucket."""
    server = pytest.importorskip("moto.server")
    from moto import settings
    from werkzeug.serving import make_server

    # It keeps what it holds in memory, and asks nobody else.
    assert settings.TEST_SERVER_MODE is False
    store = ObjectStore(server.DomainDispatcherApplication(server.create_backend_app))
    running = make_server(address, 0, store, threaded=True)
    store.url = f"http://{address}:{running.server_port}"
    with in_thread(running):
        from pyarrow import fs

        fs.S3FileSystem(
            endpoint_override=store.url.removeprefix("http://"), scheme="http",
            access_key="somebody", secret_key="something", allow_bucket_creation=True,
            allow_bucket_deletion=True, region="us-east-1",
        ).create_dir(BUCKET)  # fmt: skip
        yield store


def main(address: str, folder: Path) -> None:
    """Run until standard input ends."""
    from tpf_server.store.static.file_systems import s3_system

    with object_store(address) as store:
        system = s3_system(store.environment)
        for file in folder.rglob("*"):
            if file.is_file():
                name = f"{BUCKET}/{file.relative_to(folder)}"
                with system.open_output_stream(name, compression=None) as out:
                    out.write(file.read_bytes())
        sys.stdout.write(f"{store.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
