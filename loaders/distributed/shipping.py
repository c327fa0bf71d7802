"""Sends an object to the workers with the files that it reads; those at URLs they fetch themselves.

Workers of a cluster may share no directory with the driver: the files go as one archive, which
Spark fetches once for each executor, and the paths inside the object become those of its content.
What a worker says of a file is told with the path that the user knows.
"""

import io
import os
import pickle
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from loaders.errors import InputError
from loaders.places import InputPlace, RemotePlace

if TYPE_CHECKING:
    from pyspark import SparkContext

Thing = TypeVar("Thing")
_opened: dict[str, Any] = {}
"""The last object of this worker: its tasks come one by one, and mostly want the same."""


class Shipped(Generic[Thing]):
    """An object that every worker can have; it is pickled to them.

    Args:
        name: of the object, and of the archive.
        content: the pickled object, broadcast.
        places: in the archive, and what they are called here; nothing where files are shared.
    """

    def __init__(self, name: str, content: Any, places: dict[str, str]) -> None:
        self._name = name
        self._content = content
        self._places = places

    @contextmanager
    def opened(self) -> Iterator[Thing]:
        """The object, in a worker.

        Raises:
            InputError: one that the block raised, with the names that files have for the user.
        """
        try:
            if self._name not in _opened:
                _opened.clear()
                # Nobody but our driver broadcasts.
                _opened[self._name] = pickle.loads(self._content.value)  # noqa: S301
            yield _opened[self._name]
        except InputError as error:
            text = str(error)
            for place, path in self._places.items():
                text = text.replace(str(_located(self._name, place)), path)
            raise InputError(text) from None


def shipped(context: "SparkContext", thing: Thing, directory: Path) -> Shipped[Thing]:
    """Give an object to the workers.

    Args:
        context: Spark.
        thing: the object; all its files are below paths that it holds as such.
        directory: for the archive.
    """
    paths = [each for each in input_places(thing) if isinstance(each, Path)]
    name = f"input-{token_hex(8)}"
    places: dict[str, str] = {}
    if paths and not str(context.master).startswith("local"):
        places = {_place(number, path): str(path) for number, path in enumerate(paths)}
        archive = directory / f"{name}.zip"
        _pack(paths, archive)
        context.addArchive(f"{archive}#{name}")
    content = _pickled(thing, name, paths if places else [])
    return Shipped(name, context.broadcast(content), places)


def input_places(thing: object) -> list[InputPlace]:
    """The files and directories that an object holds, without those inside others."""
    found: set[Path] = set()
    remote: dict[int, RemotePlace] = {}

    class Finder(pickle.Pickler):
        def reducer_override(self, each: Any) -> Any:
            if isinstance(each, Path):
                found.add(Path(os.path.abspath(each)))
            elif isinstance(each, RemotePlace):
                remote[id(each.tree)] = RemotePlace(each.tree)
            return NotImplemented

    Finder(_Nowhere(), pickle.HIGHEST_PROTOCOL).dump(thing)
    local = sorted(path for path in found if path.exists() and not found & set(path.parents))
    return [*local, *remote.values()]


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return len(content)


def _pickled(thing: object, name: str, paths: list[Path]) -> bytes:
    """The object, with paths below these as those in the archive of this name."""

    class Moving(pickle.Pickler):
        def reducer_override(self, each: Any) -> Any:
            if isinstance(each, PurePath):
                absolute = Path(os.path.abspath(each))
                for number, path in enumerate(paths):
                    if absolute.is_relative_to(path):
                        inside = absolute.relative_to(path)
                        return _located, (name, str(Path(_place(number, path), inside)))
            return NotImplemented

    content = io.BytesIO()
    Moving(content, pickle.HIGHEST_PROTOCOL).dump(thing)
    return content.getvalue()


def _place(number: int, path: Path) -> str:
    """Where a file or directory is in the archive; its name may tell its format."""
    return f"{number}/{path.name}"


def _located(name: str, place: str) -> Path:
    from pyspark import SparkFiles

    return Path(SparkFiles.get(name), place)


def _pack(paths: Iterable[Path], archive: Path) -> None:
    # Inputs are mostly compressed, and the network of a cluster is fast.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, strict_timestamps=False) as packed:
        for number, path in enumerate(paths):
            place = _place(number, path)
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                if file.is_file():
                    packed.write(file, str(Path(place, file.relative_to(path))))
