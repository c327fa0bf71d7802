"""Static stores for tests, and the plain model to compare with."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from annotations.terms import Quad, QuadPattern, is_variable
from tpf_server.store.static.columnar import ColumnarStore, open_store
from tpf_server.store.static.indexing import QuadIndexer

CREATED = datetime(2015, 12, 8, 10, 20, tzinfo=UTC)


def static_store(path: Path, quads: Iterable[Quad]) -> ColumnarStore:
    """Write these quads as a store and open it."""
    indexer = QuadIndexer()
    indexer.add(quads)
    indexer.write(path, created=CREATED)
    return open_store(path)


def matches(quads: Sequence[Quad], pattern: QuadPattern) -> set[Quad]:
    """Match a pattern by looking at every quad."""
    return {quad for quad in quads if _matches(quad, pattern)}


def _matches(quad: Quad, pattern: QuadPattern) -> bool:
    bindings: dict[str, str] = {}
    return all(
        bindings.setdefault(wanted, term) == term if is_variable(wanted) else wanted == term
        for term, wanted in zip(quad, pattern, strict=True)
    )
