"""A small WebHDFS server, for tests with a file system that is reached by URL alone.

Source: the specification "WebHDFS REST API" of Apache Hadoop. Files lie in a directory; contents
are redirected once, as from a name node to a data node. There is no authentication.

As a program: ``python -m tests.support.webhdfs DIRECTORY HOST PORT``.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from flask import Flask, Response, jsonify, redirect, request
from werkzeug.serving import WSGIRequestHandler, make_server

from experiments.free_port import free_port
from tests.support.spark_cluster import PROJECT, SparkCluster
from tests.support.threaded import in_thread

_PREFIX = "/webhdfs/v1"
_BLOCK = 1 << 27


class Refused(Exception):  # noqa: N818 - it is the answer
    """An answer that is an exception of Java at the client."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        package = "java.io" if name in ("FileNotFoundException", "IOException") else (
            "org.apache.hadoop.fs" if name != "IllegalArgumentException" else "java.lang"
        )  # fmt: skip
        self.body = {
            "RemoteException": {
                "exception": name, "javaClassName": f"{package}.{name}", "message": message,
            }
        }  # fmt: skip


def application(root: Path) -> Flask:
    """Make a server of the files in a directory."""
    app = Flask("webhdfs")

    @app.errorhandler(Refused)
    def refused(error: Refused) -> Any:
        return jsonify(error.body), error.status

    @app.after_request
    def untyped(response: Response) -> Response:
        # Hadoop's client for Spark (3.5.0) lacks the class that it wants to read the type with, and
        # takes JSON for granted where no type is said.
        response.headers.pop("Content-Type", None)
        return response

    @app.route(f"{_PREFIX}/", defaults={"path": ""}, methods=["GET", "PUT", "POST", "DELETE"])
    @app.route(f"{_PREFIX}/<path:path>", methods=["GET", "PUT", "POST", "DELETE"])
    def answer(path: str) -> Any:
        op = request.args["op"].upper()
        if op in ("CREATE", "OPEN") and "datanode" not in request.args:
            return redirect(f"{request.url}&datanode=true", 307)
        target = root / path
        try:
            if (request.method, op) == ("PUT", "RENAME"):
                return _rename(root, target)
            return _OPERATIONS[request.method, op](target)
        except KeyError:
            said = f"{request.method} {op} is not supported"
            raise Refused(400, "UnsupportedOperationException", said) from None
        except FileNotFoundError:
            raise Refused(404, "FileNotFoundException", f"File does not exist: /{path}") from None

    return app


def _open(target: Path) -> Any:
    with target.open("rb") as file:
        file.seek(int(request.args.get("offset", 0)))
        length = request.args.get("length", "null")
        content = file.read() if length == "null" else file.read(int(length))
    return Response(content, content_type="application/octet-stream")


def _create(target: Path) -> Any:
    if request.content_length is None and request.headers.get("Transfer-Encoding") != "chunked":
        raise Refused(411, "IOException", "a content of unknown length")
    if target.exists() and request.args.get("overwrite", "false") != "true":
        raise Refused(403, "FileAlreadyExistsException", f"{target.name} already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.{os.urandom(6).hex()}.upload")
    with new.open("wb") as file:
        shutil.copyfileobj(request.stream, file)
    new.replace(target)
    return Response(status=201)


def _make(target: Path) -> Any:
    target.mkdir(parents=True, exist_ok=True)
    return jsonify(boolean=True)


def _rename(root: Path, target: Path) -> Any:
    destination = root / _inside(request.args["destination"])
    options = request.args.get("renameoptions")
    if not target.exists():
        raise FileNotFoundError
    if options is not None:
        if destination.exists() and options.upper() != "OVERWRITE":
            raise Refused(403, "FileAlreadyExistsException", f"{destination.name} already exists")
        target.replace(destination)
        return Response(status=200)
    if destination.exists():
        return jsonify(boolean=False)
    target.replace(destination)
    return jsonify(boolean=True)


def _inside(path: str) -> str:
    return unquote(path).lstrip("/")


def _delete(target: Path) -> Any:
    if not target.exists():
        return jsonify(boolean=False)
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    return jsonify(boolean=True)


def _status(target: Path, suffix: str = "") -> dict[str, Any]:
    found = target.stat()
    directory = target.is_dir()
    return {
        "accessTime": int(found.st_atime * 1000),
        "blockSize": 0 if directory else _BLOCK,
        "group": "group",
        "length": 0 if directory else found.st_size,
        "modificationTime": int(found.st_mtime * 1000),
        "owner": "owner",
        "pathSuffix": suffix,
        "permission": "755" if directory else "644",
        "replication": 0 if directory else 1,
        "type": "DIRECTORY" if directory else "FILE",
    }


def _statuses(target: Path) -> list[dict[str, Any]]:
    if not target.is_dir():
        return [_status(target)]
    found = []
    for each in sorted(target.iterdir()):
        if not each.name.endswith(".upload"):
            try:
                found.append(_status(each, each.name))
            except FileNotFoundError:
                continue  # it went meanwhile
    return found


_DEFAULTS = {
    "blockSize": _BLOCK, "bytesPerChecksum": 512, "writePacketSize": 65536, "replication": 1,
    "fileBufferSize": 4096, "encryptDataTransfer": False, "trashInterval": 0, "checksumType": 2,
    "keyProviderUri": "", "defaultStoragePolicyId": 7,
}  # fmt: skip
_OPERATIONS = {
    ("GET", "OPEN"): _open,
    ("GET", "GETFILESTATUS"): lambda target: jsonify(FileStatus=_status(target)),
    ("GET", "GETFILELINKSTATUS"): lambda target: jsonify(FileStatus=_status(target)),
    ("GET", "LISTSTATUS"): lambda target: jsonify(FileStatuses={"FileStatus": _statuses(target)}),
    ("GET", "GETFILEBLOCKLOCATIONS"): lambda _: jsonify(BlockLocations={"BlockLocation": []}),
    ("GET", "GETSERVERDEFAULTS"): lambda _: jsonify(FsServerDefaults=_DEFAULTS),
    ("GET", "GETHOMEDIRECTORY"): lambda _: jsonify(Path="/"),
    ("PUT", "CREATE"): _create,
    ("PUT", "MKDIRS"): _make,
    ("PUT", "SETPERMISSION"): lambda _: Response(status=200),
    ("DELETE", "DELETE"): _delete,
}


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextlib.contextmanager
def serving_files(cluster: SparkCluster, root: Path) -> Iterator[str]:
    """Serve a directory where a cluster can reach it; return its root URL."""
    port = str(free_port())
    command = [sys.executable, "-m", "tests.support.webhdfs", str(root), cluster.host, port]
    server = subprocess.Popen(
        cluster.command(command), cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield f"webhdfs://{cluster.host}:{port}"
    finally:
        server.kill()
        server.communicate()


class FileServer:
    """A running server in this process.

    Attributes:
        url: of its root.
        requests: operations and paths.
        fails: true for an operation that gets a 500.
        cut: bytes after which contents break off; 0: never.
        body: forced status and body of every answer; ``None``: none.
    """

    def __init__(self, app: Flask) -> None:
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], bool] = lambda _operation, _path: False
        self.cut = 0
        self.body: tuple[int, bytes] | None = None
        app.before_request(self._answer)
        app.after_request(self._broken_off)

    def _answer(self) -> Any:
        asked = (request.args["op"].upper(), request.path.removeprefix(_PREFIX))
        self.requests.append(asked)
        if self.body is not None:
            return Response(self.body[1], status=self.body[0])
        return Response(status=500) if self.fails(*asked) else None

    def _broken_off(self, response: Response) -> Response:
        if self.cut and response.mimetype == "application/octet-stream":
            length = response.content_length
            response.set_data(response.get_data()[: self.cut])
            response.content_length = length
        return response


@contextlib.contextmanager
def files_served(root: Path) -> Iterator[FileServer]:
    """Serve a directory to this machine."""
    app = application(root)
    found = FileServer(app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Handler)
    found.url = f"webhdfs://127.0.0.1:{server.server_port}"
    with in_thread(server):
        yield found


if __name__ == "__main__":
    directory, host, port = sys.argv[1:]
    server = make_server(
        host, int(port), application(Path(directory)), threaded=True, request_handler=_Handler
    )
    print("ready", flush=True)  # noqa: T201
    server.serve_forever()
