"""Folders of small files that the driver shares with Spark: directories, or URLs of Hadoop."""

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from annotations.whole_files import replaced_path
from tpf_server.spark.java import SparkError
from tpf_server.spark.session import java_gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECE: Final = 1 << 20
"""Bytes that are handed to Java at once."""


class Folder(Protocol):
    """A folder, which others may change; `url` is its name in Spark."""

    url: str

    def inner(self, name: str) -> "Folder":
        """Return a folder in it."""

    def make(self) -> None:
        """Make it and missing parents."""

    def names(self) -> list[str]:
        """Return the names of complete files, in order."""

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise `OSError` (of a URL: `SparkError`)."""

    def write(self, name: str, text: Iterable[str | bytes]) -> None:
        """Replace a file atomically."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def remove(self) -> None:
        """Remove it and its content, if it is there."""


class LocalFolder:
    """A directory of this machine, and of all others if they mount it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = str(path)

    def inner(self, name: str) -> "LocalFolder":
        return LocalFolder(self.path / name)

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        if not self.path.is_dir():
            return []
        return sorted(each.name for each in self.path.iterdir() if not each.name.startswith("."))

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, text: Iterable[str | bytes]) -> None:
        """See `Folder`; the file is then on the disk."""
        self.make()
        with replaced_path(self.path / name) as path, path.open("wb") as file:
            file.writelines(_pieces(text))

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class _HadoopFolder:
    def __init__(self, session: "SparkSession", url: str) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._java: Any = java_gateway().jvm
        with self._told(self.url):
            self._path = self._java.org.apache.hadoop.fs.Path(self.url)
            self._files = self._path.getFileSystem(self._configuration())

    def _configuration(self) -> Any:
        return self._java.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration()

    def inner(self, name: str) -> "_HadoopFolder":
        return _HadoopFolder(self._session, f"{self.url}/{name}")

    def make(self) -> None:
        with self._told(self.url):
            self._files.mkdirs(self._path)

    def names(self) -> list[str]:
        with self._told(self.url):
            if not self._files.exists(self._path):
                return []
            results = [str(each.getPath().getName()) for each in self._files.listStatus(self._path)]
            return sorted(name for name in results if not name.startswith("."))

    def read(self, name: str) -> bytes:
        with self._told(f"{self.url}/{name}"):
            stream = self._files.open(self._in(name))
            try:
                return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def write(self, name: str, text: Iterable[str | bytes]) -> None:
        with self._told(f"{self.url}/{name}"):
            new, target = self._in(f".{name}.new"), self._in(name)
            try:
                self._create(new, text)
                self._replace(new, target)
            except BaseException:
                self._in_spite_of_java(self._files.delete, new, False)
                raise

    def _create(self, new: Any, text: Iterable[str | bytes]) -> None:
        stream = self._files.create(new, True)
        try:
            for piece in _pieces(text):
                stream.write(bytearray(piece))
            stream.close()
        except BaseException:
            # Java has it open until it is closed.
            self._in_spite_of_java(stream.close)
            raise

    def _replace(self, new: Any, target: Any) -> None:
        rename = self._java.org.apache.hadoop.fs.Options.Rename
        options = java_gateway().new_array(rename, 1)
        options[0] = rename.OVERWRITE
        # The file system of `self._files` does not replace what is there.
        context = self._java.org.apache.hadoop.fs.FileContext.getFileContext(
            target.toUri(), self._configuration()
        )
        context.rename(new, target, options)

    @staticmethod
    def _in_spite_of_java(work: Callable[..., Any], *arguments: Any) -> None:
        from py4j.protocol import Py4JJavaError

        with contextlib.suppress(Py4JJavaError):
            work(*arguments)

    def delete(self, name: str) -> None:
        with self._told(f"{self.url}/{name}"):
            self._files.delete(self._in(name), False)

    def remove(self) -> None:
        with self._told(self.url):
            self._files.delete(self._path, True)

    def _in(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self._path, name)

    @contextlib.contextmanager
    def _told(self, url: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            reason = str(error.java_exception.toString()).splitlines()[0]
            raise SparkError(f"{url}: {reason}") from error


def is_url(location: str | Path) -> bool:
    """True for a URL, false for a path."""
    return "://" in str(location)


def folder_of(location: str | Path, session: "SparkSession") -> Folder:
    """Return the folder at a path or a URL."""
    return (
        _HadoopFolder(session, str(location)) if is_url(location) else LocalFolder(Path(location))
    )


def _pieces(text: Iterable[str | bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for line in text:
        waiting.append(line.encode() if isinstance(line, str) else line)
        size += len(waiting[-1])
        if size >= _PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)
