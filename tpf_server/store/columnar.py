"""The static store: memory-mapped columns, in which every pattern is one contiguous range.

Counting is two array reads and up to two binary searches per further bound position; a page is a
slice, at any depth. The file format is described in `tpf_server.store.layout`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term
from tpf_server.errors import StoreClosedError
from tpf_server.store import layout
from tpf_server.store.columns import map_column
from tpf_server.store.dictionary import Dictionary
from tpf_server.store.layout import Ids
from tpf_server.store.manifest import Manifest

_MEMO_PATTERNS: Final = 1024
_MEMO_LENGTH: Final = 4096
"""Characters of a pattern beyond which it is not remembered."""
_new_quad = tuple.__new__


class _Order:
    """One order: rows sorted by the positions in its name."""

    def __init__(self, folder: Path, name: str, manifest: Manifest) -> None:
        self.name = name
        starts = map_column(folder / layout.starts_file(name), manifest.terms + 1)
        # Reading single numbers from a memoryview costs a fraction of what numpy takes for it.
        self._starts = starts.data
        self.columns: dict[str, Ids] = {
            name[k - 1]: map_column(folder / layout.column_file(name, k), manifest.quads)
            for k in layout.stored_columns(name, manifest.orders)
        }
        self._searched = [self.columns[position].data for position in name[1:]]
        self._rows = manifest.quads

    def range_of(self, prefix: Sequence[int]) -> tuple[int, int]:
        """Where the rows that start with these ids begin and end."""
        if not prefix:
            return 0, self._rows
        first = prefix[0]
        low, high = self._starts[first], self._starts[first + 1]
        for column, wanted in zip(self._searched, prefix[1:], strict=False):
            low = bisect_left(column, wanted, low, high)
            high = bisect_right(column, wanted, low, high)
        return low, high


class _Matches(NamedTuple):
    """The matches of a pattern: rows `low` to `high` of the columns of its open positions."""

    low: int
    high: int
    bound: tuple[Term | None, ...]
    """Per position of a quad: its term where it is the same in all matches."""
    columns: tuple[Ids, ...]
    """The columns of the other positions, in the sequence of a quad."""


_NOTHING: Final = _Matches(0, 0, (None,) * 4, ())


class _Files(NamedTuple):
    """What an open store reads from; dropped as a whole when the store is closed."""

    dictionary: Dictionary
    order_of: dict[frozenset[str], _Order]
    """The first order that begins with each set of bound positions."""
    equal: dict[str, Ids]
    """The quads in which two positions agree, by position."""
    memo: dict[QuadPattern, _Matches]
    """Where the matches of recent patterns are, because a count precedes a page."""


class ColumnarStore:
    """A static store that is open (`tpf_server.store.opening.open_store` opens it).

    Implements `tpf_server.store.protocols.StaticStore`. Thread-safe.

    Args:
        folder: the folder of the generation.
        manifest: the manifest that lists its files, verified.

    Raises:
        CorruptStoreError: a file is not what the manifest says.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.manifest = manifest
        self.version: str = manifest.version
        self.modified: datetime = manifest.created
        self.prefixes: Mapping[str, str] = manifest.prefixes
        self._has_graphs = manifest.orders == layout.QUAD_ORDERS
        order_of: dict[frozenset[str], _Order] = {}
        for name in manifest.orders:
            order = _Order(folder, name, manifest)
            for k in range(len(name) + 1):
                order_of.setdefault(frozenset(name[:k]), order)
        self._files: _Files | None = _Files(
            Dictionary(folder / layout.TERMS, folder / layout.FENCE, manifest.terms),
            order_of,
            {p: map_column(folder / layout.equal_file(p)) for p in manifest.orders[0]},
            {},
        )

    def count(self, pattern: QuadPattern) -> int:
        """The exact number of quads that match; repeated variables are honoured.

        A pattern whose graph is a variable matches every graph, the default graph included.

        Raises:
            StoreClosedError: the store has been closed.
        """
        files = self._files
        if files is None:
            raise StoreClosedError("the store has been closed")
        matches = files.memo.get(pattern) or self._locate(files, pattern)
        return matches.high - matches.low

    def quads(self, pattern: QuadPattern, offset: int, limit: int) -> Sequence[Quad]:
        """Up to `limit` matches from position `offset` in an order that never changes.

        Raises:
            StoreClosedError: the store has been closed.
        """
        files = self._files
        if files is None:
            raise StoreClosedError("the store has been closed")
        low, high, bound, columns = files.memo.get(pattern) or self._locate(files, pattern)
        low += offset
        high = min(high, low + limit)
        rows = high - low
        if rows <= 0:
            return []
        open_terms: list[Term] = []
        if columns:
            # One call decodes all columns: the call costs more than a dozen terms.
            pieces = [column[low:high] for column in columns]
            ids = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            open_terms = files.dictionary.terms(ids)
        decoded = (open_terms[k : k + rows] for k in range(0, rows * len(columns), rows))
        fields = (repeat(term, rows) if term is not None else next(decoded) for term in bound)
        # What `Quad._make` does, without a Python frame per quad.
        return list(map(_new_quad, repeat(Quad), zip(*fields, strict=True)))

    def _locate(self, files: _Files, pattern: QuadPattern) -> _Matches:
        found = self._search(files, pattern)
        if sum(map(len, pattern)) <= _MEMO_LENGTH:
            if len(files.memo) >= _MEMO_PATTERNS:
                files.memo.clear()
            files.memo[pattern] = found
        return found

    def _search(self, files: _Files, pattern: QuadPattern) -> _Matches:
        ids: dict[str, int] = {}
        bound: list[Term | None] = []
        variables: dict[str, str] = {}
        for position, term in zip(layout.POSITIONS, pattern, strict=True):
            if term[:1] == "?":
                variables[position] = term
                bound.append(None)
                continue
            found = files.dictionary.id_of(term)
            if found is None:
                return _NOTHING
            ids[position] = found
            bound.append(Term(term))
        if len(set(variables.values())) < len(variables):
            return self._search_equal(files.equal, ids, bound, variables)
        if not self._has_graphs:
            if ids.pop("g", 0):
                return _NOTHING
            variables.pop("g", None)
            bound[3] = DEFAULT_GRAPH
        order = files.order_of[frozenset(ids)]
        low, high = order.range_of([ids[position] for position in order.name[: len(ids)]])
        return _Matches(
            low, high, tuple(bound), tuple(order.columns[position] for position in variables)
        )

    def _search_equal(
        self,
        equal: dict[str, Ids],
        ids: dict[str, int],
        bound: list[Term | None],
        variables: dict[str, str],
    ) -> _Matches:
        """Matches of a pattern with a repeated variable, among the quads where positions agree."""
        rows = len(equal["s"])
        if not self._has_graphs:
            equal = {**equal, "g": np.zeros(rows, dtype=np.uint32)}
        keep = np.ones(rows, dtype=bool)
        for position, wanted in ids.items():
            keep &= equal[position] == np.uint32(wanted)
        first_of: dict[str, str] = {}
        for position, name in variables.items():
            first = first_of.setdefault(name, position)
            if first != position:
                keep &= equal[first] == equal[position]
        at = np.flatnonzero(keep)
        return _Matches(
            0, len(at), tuple(bound), tuple(equal[position][at] for position in variables)
        )

    def close(self) -> None:
        """Let go of the files; a request that is still reading keeps them until it ends."""
        self._files = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
