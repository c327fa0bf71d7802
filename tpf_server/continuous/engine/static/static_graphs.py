"""What engines over static data have in common: how graphs get into them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_client.sparql.iris import is_absolute, resolve
from tpf_server.continuous.engine.static.static_data import Graph, StaticData


class StaticGraphs:
    """The static graphs of an engine, by their IRIs.

    Args:
        base: what relative IRIs are relative to.
        static: graphs that others use too; ``None``: its own.

    Attributes:
        base: see above.
        static: the graphs.
    """

    def __init__(self, base: str, static: StaticData | None = None) -> None:
        self.base = base
        self.static = StaticData() if static is None else static

    def resolve(self, iri: str) -> str:
        """An IRI, made absolute as in queries."""
        return iri if is_absolute(iri) else resolve(self.base, iri)

    def name(self, text: str) -> Term:
        """The term of an IRI, which may be relative, or of a term already."""
        return Term(text) if text.startswith("<") else Term(f"<{self.resolve(text)}>")

    def _graph(self, name: str | None) -> Term:
        return DEFAULT_GRAPH if name is None else self.name(name)

    def load(self, path: Path | str, graph: str | None = None) -> None:
        """Add an RDF file to the default graph, or to the graph of this IRI.

        Raises:
            ContinuousError: the file cannot be read.
        """
        name = self._graph(graph)
        self.static.memory(name).load(Path(path))
        self.static.changed(name)

    def attach(self, graph: Graph, name: str | None = None) -> None:
        """Add a graph that somebody else keeps (a static store) to the default or a named graph."""
        self.static.attach(graph, self._graph(name))

    def add(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Add triples to a static graph; queries see them from now on."""
        memory = self.static.memory(self._graph(graph))
        self.static.change(memory, added={(Term(s), Term(p), Term(o)) for s, p, o in triples})

    def remove(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Remove triples that `add` or `load` put into a static graph."""
        memory = self.static.memory(self._graph(graph))
        self.static.change(memory, removed={(Term(s), Term(p), Term(o)) for s, p, o in triples})
