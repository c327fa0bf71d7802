"""Stores at URLs: made in a folder of this machine, and put into an object store as a whole.

Or written there in parts by the workers of a cluster (`loaders.rdf.parting`). The files or parts of
the new generation go to a folder of their own, and the manifest, which alone says that they count,
is written last. So whoever reads sees the old content or the new one, of two loads at a
time the one that ends last counts, and what a killed load left is in nobody's way.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, Self

from loaders.errors import OutputError
from loaders.outputs import output_path
from loaders.rdf.parting import PartsPlace
from loaders.rdf.summary import RdfSummary
from tpf_server.errors import NoStoreError, ServerError, StoreFormatError
from tpf_server.store.static import layout
from tpf_server.store.static.fetching import remote_manifest
from tpf_server.store.static.file_systems import RemoteFolder, is_store_url
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.writing import new_generation

_BLOCK: Final = 4 << 20
_LITTER: Final = timedelta(days=1)
"""After so long without a new file, a folder that does not count was left by a killed load."""


class StoreOutput:
    """Where a store is wanted, and where to make it; a context manager.

    Args:
        output: a path, a ``file://`` URL, or one of a `RemoteFolder`.
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
        self.parts: PartsPlace | None = None
        self._put = False
        self._begun: set[str] = set()
        self._folder: RemoteFolder | None = None
        self._aside: TemporaryDirectory[str] | None = None
        if is_store_url(output):
            with _output_errors():
                self._folder = RemoteFolder(output, environment)
                there = _generation(self._folder) is not None
            self.parts = PartsPlace(self._folder, new_generation())
            self._begun.add(self.parts.generation)
            self._aside = TemporaryDirectory(prefix="tpf-load-")
            self.path = Path(self._aside.name) / "store"
            self.beside = Path(self._folder.url).name
        else:
            self.path = output_path(output)
            self.beside = str(self.path)
            there = (self.path / layout.MANIFEST).exists()
        refusal = ""
        if there and not replace:
            refusal = "--replace writes it anew"
        elif there and self._folder is not None and not self._folder.replaces:
            refusal = "libhdfs replaces no file in one step: give a webhdfs:// URL"
        if refusal:
            self.__exit__()
            raise OutputError(f"{output} is a store already; {refusal}")

    path: Path
    """The directory to write the store to."""
    beside: str
    """What names of other files begin with: beside the store, or in the working directory."""

    parts: PartsPlace | None
    """Where workers may write it in parts; ``None``: it is to be a directory."""

    def put(self, summary: RdfSummary) -> None:
        """The store is written, here or in parts: see to it that it counts where it is wanted.

        Raises:
            OutputError: the object store refuses, or does not answer.
        """
        if self._folder is None:
            return
        manifest = summary.manifest
        self._begun.add(manifest.generation)
        with _output_errors():
            if isinstance(manifest, Manifest):
                text = self._files_of(self._folder, manifest)
            else:
                text = manifest.text()
            before = _generation(self._folder)
            self._folder.write(layout.MANIFEST, [text])
            self._put = True
            for name, newest in self._folder.folders().items():
                # That of another load that runs now is left alone.
                old = newest < self._now - _LITTER
                litter = name.startswith(layout.GENERATION_PREFIX) and old
                if name != manifest.generation and (name == before or litter):
                    self._folder.remove(name)

    def _files_of(self, folder: RemoteFolder, manifest: Manifest) -> bytes:
        for name in manifest.files:
            with (self.path / manifest.generation / name).open("rb") as file:
                folder.write(f"{manifest.generation}/{name}", _blocks(file))
        return (self.path / layout.MANIFEST).read_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None and not self._put:
            # What was not completed is removed, where it can be; else a later load does it. A
            # manifest may be there although nobody said so.
            with suppress(ServerError):
                for generation in self._begun - {_generation(self._folder)}:
                    self._folder.remove(generation)
        if self._aside is not None:
            self._aside.cleanup()


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
