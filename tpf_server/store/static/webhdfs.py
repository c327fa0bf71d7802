"""HDFS by its REST interface, as a file system of pyarrow: neither Java nor libhdfs is needed.

Source: *WebHDFS REST API* of Apache Hadoop 3. A name node sends who reads or writes contents on to
a data node. Files are sent when they are complete, and a rename replaces what is there in one step.
Users are told by name (``HADOOP_USER_NAME``), as clusters without Kerberos want it.

A request that is refused with 429 or 5xx, or breaks off, is made again, five times in all.
"""

import io
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final
from urllib.parse import quote

import pyarrow as pa
import requests
from pyarrow import fs

from tpf_server.store.static.attempts import AgainError, asked_again

_SECONDS: Final = 30.0
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_IN_MEMORY: Final = 8 << 20
"""Bytes of a file that is written; more are kept on the disk until it is complete."""
_BUFFER: Final = 1 << 20


def webhdfs_system(authority: str, user: str | None, *, secure: bool = False) -> fs.FileSystem:
    """The HDFS whose name node is at an address.

    Args:
        authority: ``HOST:PORT`` of its HTTP interface (9870 by default, 9871 with TLS).
        user: who asks; ``None``: whoever the cluster takes for nobody.
        secure: whether it speaks HTTPS.
    """
    origin = f"{'https' if secure else 'http'}://{authority}"
    return fs.PyFileSystem(_Handler(origin, user))


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, origin: str, user: str | None) -> None:
        self._origin = origin
        self._user = user

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and (self._origin, self._user) == (
            other._origin, other._user,
        )  # fmt: skip

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        return "webhdfs"

    def normalize_path(self, path: str) -> str:
        return path

    # What is there.

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            found = self._said("GET", path, "GETFILESTATUS")["FileStatus"]
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)
        return _info_of(path, found)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = []
        waiting = [selector.base_dir]
        while waiting:
            folder = waiting.pop()
            try:
                listed = self._said("GET", folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]
            except FileNotFoundError:
                # One below went while it was looked at.
                if folder == selector.base_dir and not selector.allow_not_found:
                    raise
                continue
            for each in listed:
                info = _info_of(f"{folder.rstrip('/')}/{each['pathSuffix']}", each)
                found.append(info)
                if selector.recursive and info.type is fs.FileType.Directory:
                    waiting.append(info.path)
        return found

    # Contents.

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> Any:
        info = self._info(path)
        if info.type is not fs.FileType.File:
            raise FileNotFoundError(f"{path} does not exist")
        return pa.PythonFile(
            io.BufferedReader(_Content(self._part, path, info.size), _BUFFER), mode="r"
        )

    def _part(self, path: str, start: int, length: int) -> bytes:
        with self._asked("GET", path, "OPEN", offset=start, length=length) as answer:
            return answer.content

    def open_output_stream(self, path: str, metadata: object) -> Any:  # noqa: ARG002
        return pa.PythonFile(_Upload(lambda content: self._put(path, content)), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> Any:
        raise NotImplementedError(f"{path}: files are written as a whole")

    def _put(self, path: str, content: IO[bytes]) -> None:
        def put() -> None:
            content.seek(0)
            arguments = {"overwrite": "true", "noredirect": "false"}
            with self._once("PUT", path, "CREATE", arguments, allow_redirects=False) as answer:
                place = answer.headers.get("Location")
            if place is not None:
                headers = {"Content-Type": "application/octet-stream"}
                with _answered("PUT", place, data=_Body(content), headers=headers):
                    pass

        asked_again(put)

    # Changes.

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: ARG002 - it always is
        self._said("PUT", path, "MKDIRS")

    def delete_dir(self, path: str) -> None:
        self._delete(path)

    def delete_file(self, path: str) -> None:
        self._delete(path)

    def _delete(self, path: str) -> None:
        if self._said("DELETE", path, "DELETE", recursive="true").get("boolean") is False:
            raise FileNotFoundError(f"{path} does not exist")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for each in self.get_file_info_selector(selector):
            self._delete(each.path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/")

    def move(self, src: str, dest: str) -> None:
        """Rename a file, in the place of one that has the name."""
        said = self._said("PUT", src, "RENAME", destination=dest, renameoptions="OVERWRITE")
        if said.get("boolean") is False:
            raise OSError(f"{src} is not renamed to {dest}")

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError(f"{src}: files are not copied")

    # Requests.

    def _said(self, method: str, path: str, operation: str, **arguments: str) -> dict[str, Any]:
        with self._asked(method, path, operation, **arguments) as answer:
            found: dict[str, Any] = answer.json() if answer.content.strip() else {}
            return found

    def _asked(
        self, method: str, path: str, operation: str, **arguments: str | int
    ) -> requests.Response:
        return asked_again(lambda: self._once(method, path, operation, arguments))

    def _once(
        self,
        method: str,
        path: str,
        operation: str,
        arguments: dict[str, Any],
        *,
        allow_redirects: bool = True,
    ) -> requests.Response:
        asked = {"op": operation, **arguments}
        if self._user is not None:
            asked["user.name"] = self._user
        url = f"{self._origin}/webhdfs/v1{quote(path if path.startswith('/') else f'/{path}')}"
        return _answered(method, url, params=asked, allow_redirects=allow_redirects)


class _Content(io.RawIOBase):
    """Reads a file part by part, from any place in it."""

    def __init__(self, part: Callable[[str, int, int], bytes], path: str, size: int) -> None:
        self._part = part
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        wanted = min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        found = self._part(self._path, self._position, wanted)
        if not found:
            raise OSError("an answer that is cut short")
        view[: len(found)] = found
        self._position += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = begin + offset
        return self._position


class _Upload(io.RawIOBase):
    """A file that is sent when it is closed."""

    def __init__(self, send: Callable[[IO[bytes]], None]) -> None:
        self._send = send
        self._content: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - see `close`

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        return self._content.write(block)

    def close(self) -> None:
        if not self.closed:
            try:
                self._send(self._content)
            finally:
                self._content.close()
                super().close()


class _Body:
    """What is sent, and how much it is."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self._size = content.seek(0, io.SEEK_END)
        content.seek(0)

    def __len__(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Some of it."""
        return self._content.read(size)


def _info_of(path: str, status: dict[str, Any]) -> fs.FileInfo:
    folder = status["type"] == "DIRECTORY"
    return fs.FileInfo(
        path,
        fs.FileType.Directory if folder else fs.FileType.File,
        size=None if folder else status["length"],
        mtime=datetime.fromtimestamp(status["modificationTime"] / 1000, UTC),
    )


def _answered(method: str, url: str, **options: Any) -> requests.Response:
    """A successful answer, with its content."""
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    try:
        answer = requests.request(method, url, headers=headers, timeout=_SECONDS, **options)
    except requests.RequestException as error:
        raise AgainError(f"no answer ({type(error).__name__})") from None
    if answer.status_code < 400:
        return answer
    try:
        said = answer.json()["RemoteException"]
        name, message = said["exception"], (said["message"].splitlines() or [""])[0]
    except (ValueError, KeyError, TypeError, AttributeError):
        name, message = "", f"HTTP {answer.status_code} {answer.reason}"
    if name == "FileNotFoundException":
        raise FileNotFoundError(message)
    again = answer.status_code in _AGAIN or name in ("StandbyException", "RetriableException")
    raise (AgainError if again else OSError)(f"{name}: {message}" if name else message)
