"""Read a static store: memory-mapped columns, in which every pattern is one contiguous range."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, is_variable
from tpf_server.errors import StoreClosedError
from tpf_server.store.protocols import MOST_FREQUENT, QuadColumns
from tpf_server.store.static import layout
from tpf_server.store.static.checking import checked_store, with_generation
from tpf_server.store.static.columns import Ids, map_column
from tpf_server.store.static.dictionary import Dictionary
from tpf_server.store.static.manifest import Manifest, read_manifest, verify_files

_MEMO_PATTERNS: Final = 1024
_MEMO_LENGTH: Final = 4096
"""Characters of a pattern beyond which it is not remembered."""
_PREDICATE_BIT: Final = 2
_GRAPH_BIT: Final = 8


class _Order:
    """An order: rows sorted by the positions in its name."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.name = name
        starts = map_column(folder / layout.starts_file(name), manifest.terms + 1)
        # Reading single numbers from a memoryview costs a fraction of what numpy takes for it.
        self._starts = starts.data
        self.columns: dict[str, Ids] = {
            name[k - 1]: map_column(folder / layout.column_file(name, k), manifest.quads)
            for k in layout.stored_columns(name, manifest.orders)
        }
        # So does a slice: where requests are rare, numpy has left the processor's caches.
        self.views = {position: column.data for position, column in self.columns.items()}
        self._searched = [self.views[position] for position in name[1:]]
        self._rows = manifest.quads

    def range_of(self, prefix: Sequence[int]) -> tuple[int, int]:
        if not prefix:
            return 0, self._rows
        first = prefix[0]
        low, high = self._starts[first], self._starts[first + 1]
        for column, value in zip(self._searched, prefix[1:], strict=False):
            low = bisect_left(column, value, low, high)
            high = bisect_right(column, value, low, high)
        return low, high

    def frequencies(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        rows = np.diff(np.asarray(self._starts))
        terms = np.flatnonzero(rows)
        return terms, rows[terms]

    def firsts(self) -> Ids:
        begins = np.diff(np.asarray(self._starts))
        return np.union1d(np.uint32(0), np.flatnonzero(begins).astype(np.uint32))


def _repeats_a_variable(pattern: QuadPattern) -> bool:
    variables = [term for term in pattern if is_variable(term)]
    return len(set(variables)) < len(variables)


class _Matches(NamedTuple):
    """The matches of a pattern: rows `low` to `high` of the columns of its open positions."""

    low: int
    high: int
    bound: tuple[Term | None, ...]
    """Per position of a quad: its term where it is the same in all matches."""
    columns: tuple[memoryview, ...]
    """The columns of the other positions, in the sequence of a quad: see `_Order.views`."""


_NOTHING: Final = _Matches(0, 0, (None,) * 4, ())


class _Plan(NamedTuple):
    order: _Order
    prefix: tuple[int, ...]
    """Which positions of a quad are bound, in the sequence of the order."""
    columns: tuple[memoryview, ...]
    """The columns of the open positions, in the sequence of a quad."""


class _Files(NamedTuple):
    dictionary: Dictionary
    plans: dict[int, _Plan]
    """By bound positions: the sum of 1, 2, 4, 8 for subject, predicate, object, graph."""
    equal: dict[str, Ids]
    """The quads in which two positions agree, by position."""
    memo: dict[QuadPattern, _Matches]
    """Where the matches of recent patterns are, because a count precedes a page."""
    frequent: dict[Term | None, Sequence[tuple[Term, int]]]


def _plans(orders: Sequence[_Order]) -> dict[int, _Plan]:
    """Return, for each set of bound positions, the first order that begins with them."""
    plans: dict[int, _Plan] = {}
    for order in orders:
        positions = [layout.QUAD_POSITIONS.index(position) for position in order.name]
        # Where there are no graphs, every quad is found as one of the default graph.
        always = 0 if "g" in order.name else _GRAPH_BIT
        for k in range(len(positions) + 1):
            prefix = tuple(positions[:k])
            open_positions = sorted(positions[k:])
            bits = sum(1 << position for position in prefix)
            if bits not in plans:
                columns = tuple(order.views[layout.QUAD_POSITIONS[p]] for p in open_positions)
                plans[bits] = plans[bits | always] = _Plan(order, prefix, columns)
    return plans


class ColumnarStore:
    """Quads that do not change while the store is open. Thread-safe."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self.version: str = manifest.version
        """Changes whenever the content may have changed: part of every ETag."""
        self.modified: datetime = manifest.created
        self.prefixes: Mapping[str, str] = manifest.prefixes
        self._has_graphs = manifest.orders == layout.QUAD_ORDERS
        self._files: _Files | None = _Files(
            Dictionary(folder / layout.TERMS, folder / layout.FENCE, manifest.terms),
            _plans([_Order(folder, name, manifest) for name in manifest.orders]),
            {p: map_column(folder / layout.equal_file(p)) for p in manifest.orders[0]},
            {},
            {},
        )
        dictionary = self._files.dictionary
        self.has_blank_nodes = dictionary.has_prefix("_:") or dictionary.has_prefix("<<(")
        """Whether a term may be or hold a blank node; if not, nobody needs to look for them."""

    def _opened(self) -> _Files:
        files = self._files
        if files is None:
            raise StoreClosedError("the store has been closed")
        return files

    def count(self, pattern: QuadPattern) -> int:
        """Return the exact number of matches; repeated variables must be equal.

        A variable for the graph matches the default graph, too.
        """
        files = self._opened()
        matches = files.memo.get(pattern) or self._locate(files, pattern)
        return matches.high - matches.low

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> Sequence[Quad]:
        """Return up to `limit` matches from position `offset` in a fixed order."""
        return self.columns(pattern, offset, limit).quads

    def columns(self, pattern: QuadPattern, offset: int, limit: int) -> QuadColumns:
        """Return `quads` by column; the lists are the caller's."""
        files = self._opened()
        low, high, bound, columns = files.memo.get(pattern) or self._locate(files, pattern)
        low += offset
        high = min(high, low + limit)
        rows = high - low
        if rows <= 0:
            return QuadColumns([], [], [], [])
        # One call decodes all columns: the call costs more than a dozen terms.
        terms = files.dictionary.terms(b"".join([ids[low:high] for ids in columns]))
        fields: list[list[Term]] = []
        at = 0
        for term in bound:
            if term is None:
                fields.append(terms[at : at + rows])
                at += rows
            else:
                fields.append([term] * rows)
        return QuadColumns(*fields)

    def position(self, pattern: QuadPattern, quad: Quad) -> int:
        """Return the position of a match in the order of `quads`."""
        files = self._opened()
        ids = [files.dictionary.id_of(term) or 0 for term in quad]
        matches = files.memo.get(pattern) or self._locate(files, pattern)
        if _repeats_a_variable(pattern):
            open_ids = [id_ for id_, term in zip(ids, matches.bound, strict=True) if term is None]
            result = np.ones(matches.high, dtype=bool)
            for column, id_ in zip(matches.columns, open_ids, strict=True):
                result &= np.asarray(column) == np.uint32(id_)
            return int(np.flatnonzero(result)[0])
        bits = sum(1 << k for k, term in enumerate(pattern) if not is_variable(term))
        order = files.plans[bits].order
        low, _ = order.range_of([ids[layout.QUAD_POSITIONS.index(p)] for p in order.name])
        return low - matches.low

    def held(self, quads: Sequence[Quad]) -> Sequence[Quad]:
        """Return the quads that are in the store."""
        return [quad for quad in quads if self.count(QuadPattern(*quad))]

    def _locate(self, files: _Files, pattern: QuadPattern) -> _Matches:
        ids = [0, 0, 0, 0]
        bound: list[Term | None] = [None, None, None, None]
        bits = 0
        for k, term in enumerate(pattern):
            if term[:1] != "?":
                result = files.dictionary.id_of(term)
                if result is None:
                    return _NOTHING
                ids[k] = result
                bound[k] = Term(term)
                bits |= 1 << k
        if len(set(pattern)) < len(pattern) and _repeats_a_variable(pattern):
            return self._locate_equal(files.equal, pattern, ids)
        if not self._has_graphs:
            if ids[3]:
                return _NOTHING
            bound[3] = DEFAULT_GRAPH
        order, prefix, columns = files.plans[bits]
        low, high = order.range_of([ids[k] for k in prefix])
        matches = _Matches(low, high, tuple(bound), columns)
        if sum(map(len, pattern)) <= _MEMO_LENGTH:
            if len(files.memo) >= _MEMO_PATTERNS:
                files.memo.clear()
            files.memo[pattern] = matches
        return matches

    def _locate_equal(
        self, equal: dict[str, Ids], pattern: QuadPattern, ids: list[int]
    ) -> _Matches:
        """Return matches of a pattern with a repeated variable: copied rows, so not cached."""
        rows = len(equal["s"])
        if not self._has_graphs:
            equal = {**equal, "g": np.zeros(rows, dtype=np.uint32)}
        keep = np.ones(rows, dtype=bool)
        column_of: dict[str, Ids] = {}
        open_columns: list[Ids] = []
        bound: list[Term | None] = []
        for k, term in enumerate(pattern):
            column = equal[layout.QUAD_POSITIONS[k]]
            if is_variable(term):
                keep &= column == column_of.setdefault(term, column)
                open_columns.append(column)
                bound.append(None)
            else:
                keep &= column == np.uint32(ids[k])
                bound.append(Term(term))
        at = np.flatnonzero(keep)
        return _Matches(0, len(at), tuple(bound), tuple(column[at].data for column in open_columns))

    def graphs(self) -> Sequence[Term]:
        """Return the named graphs."""
        files = self._opened()
        if not self._has_graphs:
            return []
        # Id 0 is that of the default graph.
        return files.dictionary.terms(files.plans[_GRAPH_BIT].order.firsts()[1:].tobytes())

    def frequent(self, predicate: Term | None = None) -> Sequence[tuple[Term, int]]:
        """Return the predicates, or the objects of one, that most quads have, with their number."""
        files = self._opened()
        if predicate not in files.frequent:
            files.frequent[predicate] = self._counted(files, predicate)
        return files.frequent[predicate]

    def _counted(self, files: _Files, predicate: Term | None) -> Sequence[tuple[Term, int]]:
        order = files.plans[_PREDICATE_BIT].order
        terms: npt.NDArray[Any]
        if predicate is None:
            terms, rows = order.frequencies()
        else:
            number = files.dictionary.id_of(predicate)
            low, high = (0, 0) if number is None else order.range_of([number])
            if low == high:
                return []
            column = np.asarray(order.columns["o"][low:high])
            begins = np.concatenate(([0], np.flatnonzero(np.diff(column)) + 1, [len(column)]))
            terms, rows = column[begins[:-1]], np.diff(begins)
        most = np.argsort(-rows.astype(np.int64), kind="stable")[:MOST_FREQUENT]
        named = files.dictionary.terms(terms[most].astype(np.uint32).tobytes())
        return list(zip(named, rows[most].tolist(), strict=False))

    def close(self) -> None:
        """Release the files; a running request keeps them until it ends."""
        self._files = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Open static data: a store, or RDF files that are indexed first.


def open_store(path: Path) -> ColumnarStore:
    """Open a store for reading, if it is intact; it stays unchanged, even when it is replaced."""

    def open_files(manifest: Manifest) -> ColumnarStore:
        folder = path / manifest.generation
        verify_files(folder, manifest)
        return ColumnarStore(folder, manifest)

    return with_generation(path, lambda: read_manifest(path), open_files)


def open_dataset(source: Path, cache: Path) -> ColumnarStore:
    """Open a store, or the store of RDF files; see `checked_store`."""
    return open_store(checked_store(source, cache))
