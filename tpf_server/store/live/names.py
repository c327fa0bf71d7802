"""From the token of a minted name to the rows whose fact has it.

A token is a digest that only the fact itself gives, which takes microseconds each. So the first 64
bits of it are computed once, where the fact is published, and travel in the log; here they are
sorted when a minted name is first looked up, and new rows are merged in from time to time.
"""

import numpy as np

from tpf_server.store.live.rows import Array, Rows

_FEW = 1024
_MERGED, _FORGOTTEN = 8, 2
"""New rows are merged at the next lookup when they are this part; forgotten when they are that."""


def token_bits(token: str) -> int:
    """The first 64 bits of a token, as a signed number; 0 for what is none."""
    try:
        bits = int(token[:16], 16)
    except ValueError:
        return 0
    return bits - (1 << 64) if bits >> 63 else bits


class Names:
    """Rows by token.

    Args:
        rows: the rows; whoever adds one says so by `add`.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._forget()

    def _forget(self) -> None:
        self._bits: Array | None = None
        self._sorted: Array = np.empty(0, np.int32)
        self._recent: dict[int, set[int]] = {}
        self._added = 0

    def add(self, row: int) -> None:
        """A row is new. Costs nothing before the first lookup, or long after the last one."""
        if self._bits is not None:
            if self._added > max(_FEW, len(self._bits) // _FORGOTTEN):
                self._forget()
                return
            self._recent.setdefault(self._rows.token[row], set()).add(row)
            self._added += 1

    def find(self, bits: int) -> set[int]:
        """The rows whose token begins with these bits, and perhaps rows that had such a token."""
        if self._bits is None:
            self._merge(np.flatnonzero(self._rows.in_use()))
        elif self._added > max(_FEW, len(self._bits) // _MERGED):
            recent = [row for rows in self._recent.values() for row in rows]
            self._merge(np.array(recent, dtype=np.int32))
        assert self._bits is not None
        low = np.searchsorted(self._bits, np.int64(bits), side="left")
        high = np.searchsorted(self._bits, np.int64(bits), side="right")
        return set(self._sorted[low:high].tolist()) | self._recent.get(bits, set())

    def _merge(self, new: Array) -> None:
        """Sort rows in, and let go of those that are no longer in use under their token."""
        tokens = self._rows.numpy("token")
        in_use = self._rows.in_use()
        if self._bits is None:
            self._bits = np.empty(0, np.int64)
        kept = in_use[self._sorted] & (tokens[self._sorted] == self._bits)
        bits, rows = self._bits[kept], self._sorted[kept]
        new = new[in_use[new]].astype(np.int32)
        new = new[np.argsort(tokens[new], kind="stable")]
        places = np.searchsorted(bits, tokens[new])
        self._bits = np.insert(bits, places, tokens[new])
        self._sorted = np.insert(rows, places, new)
        self._recent, self._added = {}, 0
