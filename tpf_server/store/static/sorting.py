"""Sort quads of ids into the orders of a store, in memory.

The positions of a row are packed into one 64-bit number, which numpy sorts an order of magnitude
faster than columns; where they do not fit, the columns are sorted.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tpf_server.store.static import layout
from tpf_server.store.static.columns import Ids
from tpf_server.store.static.writing import RowColumns

_PIECE = 1 << 20
_KEY_BITS = 64


def sorted_orders(subjects: Ids, predicates: Ids, objects: Ids, graphs: Ids) -> dict[
    str, Iterator[RowColumns]
]:  # fmt: skip
    """The orders of these quads without duplicates, as `write_store` takes them.

    Args:
        subjects: the subject of each quad, and so on; `graphs` is 0 for the default graph.
        predicates: see `subjects`.
        objects: see `subjects`.
        graphs: see `subjects`.

    Returns:
        The orders; each is sorted when it is iterated, so that one is in memory at a time.
    """
    given = {"s": subjects, "p": predicates, "o": objects}
    names: tuple[str, ...] = layout.TRIPLE_ORDERS
    if graphs.any():
        given["g"] = graphs
        names = layout.QUAD_ORDERS
    quads = _Packing(given).distinct(names[0])
    return {name: quads.rows(name) for name in names}


class _Packing:
    """Columns by position, each replaced by the ranks of its ids, which need fewer bits."""

    def __init__(self, columns: dict[str, Ids]) -> None:
        self._used: dict[str, Ids] = {}
        self._ranks: dict[str, Ids] = {}
        for position, ids in columns.items():
            present = np.zeros(int(ids.max(initial=0)) + 1, dtype=bool)
            present[ids] = True
            rank_of = np.cumsum(present, dtype=np.uint32)
            rank_of -= np.uint32(1)
            self._used[position] = np.flatnonzero(present).astype(np.uint32)
            self._ranks[position] = rank_of[ids]

    def _bits(self, position: str) -> int:
        return max(len(self._used[position]) - 1, 0).bit_length()

    def _packs(self, order: str) -> bool:
        return sum(map(self._bits, order)) <= _KEY_BITS

    def _packed(self, order: str) -> npt.NDArray[np.uint64]:
        packed = np.zeros(len(self._ranks[order[0]]), dtype=np.uint64)
        for position in order:
            packed <<= np.uint64(self._bits(position))
            packed |= self._ranks[position]
        packed.sort()
        return packed

    def _unpacked(self, order: str, packed: npt.NDArray[np.uint64]) -> dict[str, Ids]:
        ranks: dict[str, Ids] = {}
        rest = packed.copy()
        for position in reversed(order):
            bits = self._bits(position)
            ranks[position] = (rest & np.uint64((1 << bits) - 1)).astype(np.uint32)
            rest >>= np.uint64(bits)
        return ranks

    def _argsort(self, order: str) -> npt.NDArray[np.intp]:
        return np.lexsort([self._ranks[position] for position in reversed(order)])

    def distinct(self, order: str) -> "_Packing":
        """Without duplicate rows."""
        if self._packs(order):
            packed = self._packed(order)
            keep = np.ones(len(packed), dtype=bool)
            keep[1:] = packed[1:] != packed[:-1]
            self._ranks = self._unpacked(order, packed[keep])
            return self
        at = self._argsort(order)
        keep = np.zeros(len(at), dtype=bool)
        keep[:1] = True
        for ranks in self._ranks.values():
            keep[1:] |= ranks[at[1:]] != ranks[at[:-1]]
        self._ranks = {position: ranks[at[keep]] for position, ranks in self._ranks.items()}
        return self

    def rows(self, order: str) -> Iterator[RowColumns]:
        """The rows in this order, in pieces."""
        if self._packs(order):
            packed = self._packed(order)
            for start in range(0, len(packed), _PIECE):
                ranks = self._unpacked(order, packed[start : start + _PIECE])
                yield tuple(self._used[position][ranks[position]] for position in order)
        else:
            at = self._argsort(order)
            for start in range(0, len(at), _PIECE):
                piece = at[start : start + _PIECE]
                yield tuple(
                    self._used[position][self._ranks[position][piece]] for position in order
                )
