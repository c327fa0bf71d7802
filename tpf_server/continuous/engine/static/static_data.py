"""The static data of an engine: a default graph and named graphs, from files or from stores."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_server.continuous.engine.static.memory_graph import MemoryGraph
from tpf_server.continuous.engine.static.service_clauses import is_service
from tpf_server.continuous.engine.static.store_graph import StoreGraph


class Graph(Protocol):
    """One graph: what matches a pattern of its triples."""

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterable[tuple[Term, Term, Term]]:
        """The triples with these terms; ``None`` is any."""

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """About how many there are (an estimate serves: it only orders the joins)."""


class GraphChange(NamedTuple):
    """What is about to change, or has.

    Args:
        graphs: their names.
        triples: that may come or go, nothing else does; ``None``: anything may have changed.
        prepared: tells what does, a `Preparation`; where anything may, and somebody prepared it.
    """

    graphs: Collection[Term]
    triples: Collection[tuple[Term, Term, Term]] | None = None
    prepared: Any = None


ChangeListener = Callable[[GraphChange], Callable[[], None]]
"""Is called before some triples of graphs change; what it returns is called afterwards. Where
anything may have changed both are called afterwards; the former is called before as well, by who
prepares it, so that listeners ask for what they will want to know."""


class StaticData:
    """The static graphs of an engine, and who wants to know when one changes."""

    def __init__(self) -> None:
        self._default: list[Graph] = []
        self._named: dict[Term, list[Graph]] = {}
        self._listeners: list[ChangeListener] = []

    @property
    def names(self) -> tuple[Term, ...]:
        """The names of the named graphs, but for what services say, which nobody else sees."""
        return tuple([name for name in self._named if not is_service(name)])

    def attach(self, graph: Graph, name: Term = DEFAULT_GRAPH) -> None:
        """Add what a graph holds to the graph of this name, and tell the listeners."""
        parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
        parts.append(graph)
        self.changed(name)

    def exchange(self, stores: Mapping[Term, Sequence[StoreGraph]], prepared: Any = None) -> None:
        """Put these in the place of all graphs of stores, and tell the listeners what changed.

        Args:
            stores: by the names of graphs.
            prepared: see `GraphChange`; of these stores and the data as they are.
        """
        changed = self._exchange(stores)
        if changed:
            for finish in self._told(GraphChange(changed, None, prepared)):
                finish()

    def copy(self) -> "StaticData":
        """The same graphs, now; nobody is told of its changes."""
        made = StaticData()
        made._default = list(self._default)
        made._named = {name: list(parts) for name, parts in self._named.items()}
        return made

    def with_stores(self, stores: Mapping[Term, Sequence[StoreGraph]]) -> "StaticData":
        """A copy with these in the place of all graphs of stores."""
        made = self.copy()
        made._exchange(stores)
        return made

    def ask(self, stores: Mapping[Term, Sequence[StoreGraph]], prepared: Any) -> None:
        """Let listeners say what they will want to know when stores are exchanged."""
        changed = self.copy()._exchange(stores)
        if changed:
            self._told(GraphChange(changed, None, prepared))

    def _exchange(self, stores: Mapping[Term, Sequence[StoreGraph]]) -> list[Term]:
        """Exchange them; the names of the graphs that changed."""
        changed = []
        for name in {DEFAULT_GRAPH: None, **self._named, **stores}:
            old = self.graphs(name)
            kept = [each for each in old if not isinstance(each, StoreGraph)]
            new = stores.get(name, ())
            if [each.version for each in new] != [
                each.version for each in old if isinstance(each, StoreGraph)
            ]:
                changed.append(name)
            if name == DEFAULT_GRAPH:
                self._default = [*kept, *new]
            elif kept or new:
                self._named[name] = [*kept, *new]
            else:
                del self._named[name]
        return changed

    def part(self, names: Collection[Term]) -> MemoryGraph:
        """A new part of the graphs of these names; there is nothing in it yet."""
        made = MemoryGraph()
        for name in names:
            parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
            parts.append(made)
        return made

    def drop(self, graph: MemoryGraph) -> None:
        """Take a part out of all graphs."""
        triples = list(graph.match(None, None, None))
        if triples:
            self.change(graph, removed=triples)
        self._default = [part for part in self._default if part is not graph]
        for name, parts in tuple(self._named.items()):
            parts[:] = [part for part in parts if part is not graph]
            if not parts:
                del self._named[name]

    def detach(self, name: Term) -> None:
        """Take everything from the graph of this name, and tell the listeners."""
        if name == DEFAULT_GRAPH:
            self._default = []
        else:
            self._named.pop(name, None)
        self.changed(name)

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Tell `listener` of each change; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self, name: Term) -> None:
        """Say that the graph of this name has changed, in whatever way."""
        for finish in self._told(GraphChange((name,))):
            finish()

    def change(
        self,
        graph: MemoryGraph,
        added: Collection[tuple[Term, Term, Term]] = (),
        removed: Collection[tuple[Term, Term, Term]] = (),
    ) -> None:
        """Change one part of graphs; what listeners have to do follows from these triples alone."""
        every = {DEFAULT_GRAPH: self._default, **self._named}
        names = [name for name, parts in every.items() if any(part is graph for part in parts)]
        finishing = self._told(GraphChange(names, {*added, *removed}))
        graph.remove(removed)
        graph.add(added)
        for finish in finishing:
            finish()

    def _told(self, change: GraphChange) -> list[Callable[[], None]]:
        # An engine beside another comes after it, and may get elements of what that one emits: so
        # it has taken the change over before.
        return [listener(change) for listener in self._listeners][::-1]

    def memory(self, name: Term = DEFAULT_GRAPH) -> MemoryGraph:
        """The part of this graph that is kept in memory and may change; made where absent."""
        parts = self._default if name == DEFAULT_GRAPH else self._named.setdefault(name, [])
        for part in parts:
            if isinstance(part, MemoryGraph):
                return part
        return self.part((name,))

    def graphs(self, name: Term) -> tuple[Graph, ...]:
        """The parts of the graph of this name."""
        return tuple(self._default if name == DEFAULT_GRAPH else self._named.get(name, ()))
