"""Access HDFS by its REST interface (*WebHDFS REST API* of Apache Hadoop 3).

A rename replaces a file in one step. Users are identified by ``HADOOP_USER_NAME``.
"""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import requests
from pyarrow import fs

from tpf_server.store.static.http_files import (
    MALFORMED,
    AgainError,
    ResultT,
    asked_again,
    http_answer,
    open_http,
    reason_of,
)


class WebHdfs:
    """An HDFS with those methods of `pyarrow.fs.FileSystem` that are used here."""

    def __init__(self, authority: str, user: str | None, *, secure: bool = False) -> None:
        self._root = f"{'https' if secure else 'http'}://{authority}/webhdfs/v1"
        self._user = {} if user is None else {"user.name": user}

    def get_file_info(self, path_or_selector: Any) -> Any:
        """Return the `FileInfo` of a path, or of those that a selector selects."""
        if isinstance(path_or_selector, fs.FileSelector):
            return self._selected(path_or_selector)
        try:
            return self._said(
                "GET",
                path_or_selector,
                "GETFILESTATUS",
                lambda body: _info_of(path_or_selector, body["FileStatus"]),
            )
        except FileNotFoundError:
            return fs.FileInfo(path_or_selector, fs.FileType.NotFound)

    def _selected(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        infos: list[fs.FileInfo] = []
        waiting = [selector.base_dir]
        while waiting:
            folder = waiting.pop()
            try:
                listed = self._said("GET", folder, "LISTSTATUS", partial(_infos_of, folder))
            except FileNotFoundError:
                # One below may be removed during the listing.
                if folder == selector.base_dir and not selector.allow_not_found:
                    raise
                continue
            infos += listed
            if selector.recursive:
                waiting += [each.path for each in listed if each.type is fs.FileType.Directory]
        return infos

    def open_input_file(self, path: str) -> Any:
        """Open a file for reading, from any byte on."""
        info = self.get_file_info(path)
        if info.type is not fs.FileType.File:
            raise FileNotFoundError(f"{path} does not exist")
        content = open_http(lambda start: self._asked("GET", path, "OPEN", offset=start), info.size)
        return pa.PythonFile(content, mode="r")

    open_input_stream = open_input_file

    def open_output_stream(self, path: str) -> "_Upload":
        """Open a file for writing, which is sent when it is closed."""
        return _Upload(lambda content: asked_again(lambda: self._put(path, content)))

    def _put(self, path: str, content: io.BufferedIOBase) -> None:
        is_empty = not content.seek(0, io.SEEK_END)
        content.seek(0)
        arguments = {"overwrite": "true", "noredirect": "false"}
        with self._asked("PUT", path, "CREATE", allow_redirects=False, **arguments) as answer:
            location = answer.headers.get("Location")
        if location is not None:
            headers = {"Content-Type": "application/octet-stream"}
            # Of an empty file, requests would not send the length.
            body = b"" if is_empty else content
            http_answer("PUT", location, data=body, headers=headers).close()

    def create_dir(self, path: str) -> None:
        self._said("PUT", path, "MKDIRS", bool)

    def delete_dir(self, path: str) -> None:
        if self._said("DELETE", path, "DELETE", _is_refused, recursive="true"):
            raise FileNotFoundError(f"{path} does not exist")

    delete_file = delete_dir

    def move(self, source: str, target: str) -> None:
        """Rename a file, replacing one of that name."""
        options = {"destination": target, "renameoptions": "OVERWRITE"}
        if self._said("PUT", source, "RENAME", _is_refused, **options):
            raise OSError(f"{source} is not renamed to {target}")

    def _said(
        self,
        method: str,
        path: str,
        operation: str,
        read: Callable[[Any], ResultT],
        **arguments: Any,
    ) -> ResultT:

        def answer() -> ResultT:
            with self._asked(method, path, operation, **arguments) as answer:
                try:
                    content = answer.content.strip()
                except requests.RequestException as error:
                    raise AgainError(reason_of(error)) from None
            try:
                return read(json.loads(content or b"{}"))
            except MALFORMED:
                raise OSError(f"{operation}: an answer that is not of WebHDFS") from None

        return asked_again(answer)

    def _asked(
        self,
        method: str,
        path: str,
        operation: str,
        *,
        allow_redirects: bool = True,
        **arguments: Any,
    ) -> requests.Response:
        params = {"op": operation, **arguments, **self._user}
        url = f"{self._root}{quote(path)}"
        return http_answer(method, url, params=params, allow_redirects=allow_redirects)


class _Upload:
    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._content = TemporaryFile()  # noqa: SIM115 - see `__exit__`
        self.write = self._content.write

    def __enter__(self) -> "_Upload":
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        with self._content:
            if failed is None:
                self._send(self._content)


def _info_of(path: str, status: dict[str, Any]) -> fs.FileInfo:
    folder = status["type"] == "DIRECTORY"
    return fs.FileInfo(
        path,
        fs.FileType.Directory if folder else fs.FileType.File,
        size=None if folder else status["length"],
        mtime=datetime.fromtimestamp(status["modificationTime"] / 1000, UTC),
    )


def _infos_of(folder: str, body: Any) -> list[fs.FileInfo]:
    # Listed by itself, a file has no name.
    return [
        _info_of(f"{folder.rstrip('/')}/{each['pathSuffix']}", each)
        for each in body["FileStatuses"]["FileStatus"]
        if each["pathSuffix"]
    ]


def _is_refused(body: Any) -> bool:
    return body.get("boolean") is False
