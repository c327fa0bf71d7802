"""Stores at URLs: made in a folder of this machine, and put into an object store as a whole.

The files of the new generation go to a folder of their own, and the manifest, which alone says that
they count, is written last. So whoever reads sees the old content or the new one, of two loads at a
time the one that ends last counts, and what a killed load left is in nobody's way.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, Self

from loaders.errors import OutputError
from tpf_server.errors import NoStoreError, ServerError, StoreFormatError
from tpf_server.store.static import layout
from tpf_server.store.static.fetching import remote_manifest
from tpf_server.store.static.file_systems import RemoteFolder, is_url
from tpf_server.store.static.manifest import read_manifest

_BLOCK: Final = 4 << 20
_LITTER: Final = timedelta(days=1)
"""After so long without a new file, a folder that does not count was left by a killed load."""


class StoreOutput:
    """Where a store is wanted, and where to make it; a context manager.

    Args:
        output: a path, a ``file://`` URL, or ``s3://BUCKET/FOLDER``.
        replace: whether there may be a store.
        now: the instant of this load.
        environment: says where the object store is.

    Raises:
        OutputError: there is a store that is not to be replaced, or the object store refuses.
    """

    def __init__(
        self,
        output: str,
        replace: bool,
        now: datetime,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._now = now
        self._folder: RemoteFolder | None = None
        self._aside: TemporaryDirectory[str] | None = None
        if is_url(output):
            with _output_errors():
                self._folder = RemoteFolder(output, environment)
                there = _generation(self._folder) is not None
            self._aside = TemporaryDirectory(prefix="tpf-load-")
            self.path = Path(self._aside.name) / "store"
            self.beside = Path(self._folder.url).name
        else:
            self.path = Path(output.removeprefix("file://"))
            self.beside = str(self.path)
            there = (self.path / layout.MANIFEST).exists()
        if there and not replace:
            self.__exit__()
            raise OutputError(f"{output} is a store already; --replace writes it anew")

    path: Path
    """The directory to write the store to."""
    beside: str
    """What names of other files begin with: beside the store, or in the working directory."""

    def put(self) -> None:
        """The store is written: see to it that it is where it is wanted.

        Raises:
            OutputError: the object store refuses, or does not answer.
        """
        if self._folder is not None:
            with _output_errors():
                _put(self.path, self._folder, self._now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._aside is not None:
            self._aside.cleanup()


def _put(store: Path, folder: RemoteFolder, now: datetime) -> None:
    before = _generation(folder)
    manifest = read_manifest(store)
    for name in manifest.files:
        with (store / manifest.generation / name).open("rb") as file:
            folder.write(f"{manifest.generation}/{name}", _blocks(file))
    folder.write(layout.MANIFEST, [(store / layout.MANIFEST).read_bytes()])
    for name, newest in folder.folders().items():
        # That of another load that runs now is left alone.
        litter = name.startswith(layout.GENERATION_PREFIX) and newest < now - _LITTER
        if name != manifest.generation and (name == before or litter):
            folder.remove(name)


def _generation(folder: RemoteFolder) -> str | None:
    """The folder that counts; ``None``: there is no store."""
    try:
        return remote_manifest(folder).generation
    except NoStoreError:
        return None
    except StoreFormatError:
        return ""  # something is there, and who replaces it need not understand it


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise OutputError(str(error)) from error
