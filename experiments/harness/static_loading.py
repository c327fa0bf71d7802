"""Load static data as users do: with Spark, or the same pipeline in this process without Java."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from annotations.clock import SystemClock
from annotations.terms import Quad
from loaders.outputs import line_of
from loaders.rdf.build import load_rdf_spark
from loaders.rdf.summary import RdfLoad
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.spark.java import JavaNotFoundError, SparkMissingError, find_java
from tpf_server.spark.session import SparkSettings, spark_context
from tpf_server.store.static.columnar import open_store

WITH_SPARK = "Spark"


class StaticLoading:
    """Make stores.

    `say` explains once a missing Spark; `by` names the loader used.
    """

    def __init__(self, say: Callable[[str], None] | None = None, *, spark: bool = True) -> None:
        self.by: str | None = None
        self._say = say
        self._missing = None if spark else "the data are small"

    def store(self, folder: Path, quads: Iterable[Quad], created: datetime) -> Path:
        return self.stores(folder.parent, {folder.name: quads}, created)[folder.name]

    def stores(
        self, folder: Path, parts: Mapping[str, Iterable[Quad]], created: datetime
    ) -> dict[str, Path]:
        folder.mkdir(parents=True, exist_ok=True)
        files = {}
        for name, quads in parts.items():
            file = folder / f"{name}.nq"
            with file.open("w", encoding="utf-8") as lines:
                lines.writelines(f"{line_of(quad)}\n" for quad in quads)
            files[folder / name] = file
        self.load(files, created)
        for file in files.values():
            file.unlink()
        return {store.name: store for store in files}

    @contextmanager
    def graphs(
        self, folder: Path, parts: Mapping[str, Iterable[Quad]]
    ) -> Iterator[list[StoreGraph]]:
        """Open the default graphs of a store for each name during a block."""
        stores = self.stores(folder, parts, SystemClock().now())
        with ExitStack() as stack:
            yield [StoreGraph(stack.enter_context(open_store(stores[name]))) for name in parts]

    def load(self, files: Mapping[Path, Path], created: datetime) -> None:
        with self._context() as context:
            for store, file in files.items():
                load_rdf_spark([file], store, context, RdfLoad(created, strict=True))

    @contextmanager
    def _context(self) -> Iterator[Any]:
        settings = SparkSettings.from_environment(os.environ)
        if self._missing is None:
            try:
                find_java(settings.java_home, os.environ)
                with spark_context(settings, name="tpf-experiments") as context:
                    self.by = WITH_SPARK
                    yield context
                    return
            except (JavaNotFoundError, SparkMissingError) as error:
                self._missing = str(error)
                if self._say is not None:
                    self._say(f"static data are loaded without Spark: {error}")
        self.by = f"this process, without Spark: {self._missing}"
        yield None
