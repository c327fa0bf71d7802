"""Static stores for tests, and the plain model to compare with."""

import atexit
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from annotations.terms import Quad, QuadPattern, is_variable
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import Standing
from tpf_server.store.static.columnar import ColumnarStore, open_store
from tpf_server.store.static.indexing import QuadIndexer

CREATED = datetime(2015, 12, 8, 10, 20, tzinfo=UTC)
_MOST_KEPT = 32
_kept: dict[tuple[Quad, ...], Path] = {}


def static_store(path: Path, quads: Iterable[Quad]) -> ColumnarStore:
    """Write these quads as a store and open it."""
    indexer = QuadIndexer()
    indexer.add(quads)
    indexer.write(path, created=CREATED)
    return open_store(path)


def kept_store(path: Path, quads: Iterable[Quad]) -> ColumnarStore:
    """Open a store of these quads, which tests of this process share if there are few others."""
    key = tuple(quads)
    if key not in _kept:
        if len(_kept) == _MOST_KEPT:
            return static_store(path, key)
        static_store(_folder() / str(len(_kept)), key).close()
        _kept[key] = _folder() / str(len(_kept))
    return open_store(_kept[key])


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Path(folder.name)


def matches(quads: Sequence[Quad], pattern: QuadPattern) -> set[Quad]:
    """Match a pattern by looking at every quad."""
    return {quad for quad in quads if _matches(quad, pattern)}


def _matches(quad: Quad, pattern: QuadPattern) -> bool:
    bindings: dict[str, str] = {}
    return all(
        bindings.setdefault(wanted, term) == term if is_variable(wanted) else wanted == term
        for term, wanted in zip(quad, pattern, strict=True)
    )


class _Standings:
    def begin(self, versions: Sequence[Standing]) -> None:
        self.facts = {each[1:] for each in versions}

    def change(self, removed: object, added: object) -> None:
        """Nothing changes meanwhile."""


def standing(live: LiveStore) -> set[tuple[Quad, int, int]]:
    """Return what stands in a live store: quads with start and end, in microseconds."""
    found = _Standings()
    live.follow(found)()
    return found.facts
