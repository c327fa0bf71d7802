"""A graph of static data inside a store."""

from collections.abc import Iterator

from annotations.terms import DEFAULT_GRAPH, QuadPattern, Term, Variable
from tpf_server.store.protocols import StaticStore

_ANY = tuple(Variable(f"?.any{place}") for place in range(4))
_FIRST, _MOST, _GROWTH = 20, 10_000, 10
"""How many triples are read at first, at most at once, and by how much more each time: many who ask
want to know whether there is any, or look a few up."""


class StoreGraph:
    """A graph inside a static store that a loader wrote.

    Attributes:
        version: differs wherever the content may differ.
    """

    def __init__(self, store: StaticStore, graph: Term = DEFAULT_GRAPH) -> None:
        self.version = (store.version, graph)
        self._store = store
        self._graph = graph

    def _pattern(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> QuadPattern:
        terms = (subject, predicate, object_)
        filled = (_ANY[i] if term is None else term for i, term in enumerate(terms))
        return QuadPattern(*(*filled, self._graph))

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        """The triples with these terms; ``None`` is any."""
        pattern = self._pattern(subject, predicate, object_)
        offset, limit = 0, _FIRST
        while True:
            page = self._store.quads(pattern, offset, limit)
            for quad in page:
                yield quad.subject, quad.predicate, quad.object
            offset += limit
            if len(page) < limit:
                return
            limit = min(_GROWTH * limit, _MOST)

    def count(self, subject: Term | None, predicate: Term | None, object_: Term | None) -> int:
        """How many there are, exactly."""
        return self._store.count(self._pattern(subject, predicate, object_))
