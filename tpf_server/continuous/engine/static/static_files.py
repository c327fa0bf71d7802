"""Static data of an engine from files: RDF, or stores that a loader wrote."""

from collections.abc import Iterable
from pathlib import Path

from tpf_server.continuous.engine.static.static_data import StoreGraph
from tpf_server.continuous.engine.static.static_graphs import StaticGraphs
from tpf_server.store.static.checking import is_store
from tpf_server.store.static.columnar import open_store


def load(engine: StaticGraphs, static: Iterable[Path], graphs: Iterable[tuple[str, Path]]) -> None:
    """Give an engine its static data.

    Args:
        engine: takes them.
        static: files of the default graph, or stores: with their named graphs.
        graphs: IRI and file of each named graph; of a store its default graph.

    Raises:
        ContinuousError: a file cannot be read.
        StoreFormatError: a store cannot be opened.
    """
    for name, path in [*((None, path) for path in static), *graphs]:
        if path.is_dir() and is_store(path):
            store = open_store(path)
            engine.attach(StoreGraph(store), name)
            for graph in store.graphs() if name is None else ():
                engine.attach(StoreGraph(store, graph), graph)
        else:
            engine.load(path, name)
