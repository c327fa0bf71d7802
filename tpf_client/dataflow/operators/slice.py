"""Slice: OFFSET and LIMIT of solutions whose order does not matter (see `order` where it does)."""

from collections.abc import Iterator

from tpf_client.dataflow.changes import Multiset, Solution
from tpf_client.dataflow.node import Node


def window(rows: Iterator[tuple[Solution, int]], offset: int, limit: int | None) -> Multiset:
    """The copies from position `offset` on, at most `limit`, of rows in their order."""
    result: Multiset = Multiset()
    room = limit
    for row, count in rows:
        if room == 0:
            break
        if count <= 0:
            continue
        skipped = min(offset, count)
        offset -= skipped
        taken = count - skipped if room is None else min(count - skipped, room)
        if taken > 0:
            result[row] += taken
            if room is not None:
                room -= taken
    return result


class Slice(Node):
    """Some `limit` solutions after some `offset` others, in the order of their arrival.

    While solutions only arrive they pass at once and stay; a solution that vanishes is replaced at
    the next flush.

    Args:
        upstream: where the solutions come from.
        offset: how many to leave out.
        limit: how many to let through, ``None`` for all.
    """

    def __init__(self, upstream: Node, offset: int = 0, limit: int | None = None) -> None:
        super().__init__(upstream.schema, upstream.certain, monotone=upstream.monotone)
        self._offset = offset
        self._limit = limit
        self._rows: dict[Solution, int] = {}
        self._total = 0
        self._shown: Multiset = Multiset()
        self._stale = False
        upstream.connect(self._push)

    @property
    def missing(self) -> int | None:
        """How many solutions it takes until further arrivals cannot change the output.

        As long as nothing vanishes; ``None``: they always can.
        """
        if self._limit is None:
            return None
        return max(self._offset + self._limit - self._total, 0)

    @property
    def satisfied(self) -> bool:
        """Whether further arrivals cannot change the output (as long as nothing vanishes)."""
        return self.missing == 0

    @property
    def pending(self) -> bool:
        """Whether the output must be looked at again."""
        return self._stale

    def _push(self, solution: Solution, count: int) -> None:
        total = self._rows.get(solution, 0) + count
        if total:
            self._rows[solution] = total
        else:
            self._rows.pop(solution, None)
        before = self._total
        self._total += count
        # Which copies are shown is free (section 15.5), only their number is not: a further copy of
        # an earlier solution moves nothing, so that what has come out need not be taken back.
        if count < 0 or total < count:
            self._stale = True
        if not self._stale:
            low = max(before, self._offset)
            high = self._total
            if self._limit is not None:
                high = min(high, self._offset + self._limit)
            if high > low:
                self._shown[solution] += high - low
                self.emit(solution, high - low)

    def flush(self) -> None:
        """Replace what vanished."""
        if not self._stale:
            return
        self._stale = False
        now = window(iter(self._rows.items()), self._offset, self._limit)
        before, self._shown = self._shown, now
        for row in before.keys() | now.keys():
            change = now[row] - before[row]
            if change:
                self.emit(row, change)
