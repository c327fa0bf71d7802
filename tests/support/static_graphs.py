"""Graphs and stores of static data in memory, for engines of continuous queries."""

from collections.abc import Callable, Iterable, Iterator

from annotations.terms import Quad, QuadPattern, Term
from tpf_server.continuous.runtime.static.static_data import MemoryGraph, agrees


class CountingGraph(MemoryGraph):
    """Counts the triples that are read of it."""

    read = 0

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        for each in super().match(subject, predicate, object_):
            self.read += 1
            yield each


class HeldStore:
    """A store of quads; `read` is called before it is read."""

    def __init__(
        self, version: str, quads: Iterable[Quad], read: Callable[[], None] = lambda: None
    ) -> None:
        self.version = version
        self._quads = list(dict.fromkeys(quads))
        self._read = read

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> list[Quad]:
        self._read()
        return [each for each in self._quads if agrees(pattern, each)][offset : offset + limit]

    def count(self, pattern: QuadPattern) -> int:
        return len(self.quads(pattern, 0, 1000))
