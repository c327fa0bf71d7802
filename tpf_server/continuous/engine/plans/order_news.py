"""How the beginning of an order changed: what came where, and what went from where."""

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from tpf_client.dataflow.operators.order import Entry


class OrderNews:
    """How an order changed.

    Args:
        before: what it began with.
        now: what it begins with.
        kept: what both have.
        came: the places in `now` of what only that has.
        went: the places in `before` of what only that has.
    """

    def __init__(
        self,
        before: list[Entry],
        now: list[Entry],
        kept: list[Entry],
        came: list[int],
        went: list[int],
    ) -> None:
        self.before = before
        self.now = now
        self.kept = kept
        self.came = came
        self.went = went

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last place at which something changed."""
        first, last = sys.maxsize, -1
        for places in (self.came, self.went):
            if places:
                first, last = min(first, places[0]), max(last, places[-1])
        if len(self.came) != len(self.went):
            # All that stand behind have moved.
            last = max(len(self.now), len(self.before)) - 1
        return first, last

    def crossing(self, end: int) -> tuple[int, int]:
        """How many of `kept` the first `end` rows have: the fewer and the more of both times."""
        now = min(end, len(self.now)) - bisect_left(self.came, end)
        before = min(end, len(self.before)) - bisect_left(self.went, end)
        return min(now, before), max(now, before)

    def of(self, offset: int, end: int) -> tuple[list[Entry], list[Entry]]:
        """What came into the rows from `offset` to `end`, and what went from them."""
        came, went, kept = self.came, self.went, self.kept
        size, size_before = len(self.now), len(self.before)
        first, last = bisect_left(came, offset), bisect_left(came, end)
        first_gone, last_gone = bisect_left(went, offset), bisect_left(went, end)
        # Which of the kept rows they have now, and had before.
        a, b = min(offset, size) - first, min(end, size) - last
        c, d = min(offset, size_before) - first_gone, min(end, size_before) - last_gone
        entered = kept[a : min(b, c)] + kept[max(a, d) : b]
        left = kept[c : min(d, a)] + kept[max(c, b) : d]
        if first < last:
            entered += [self.now[place] for place in came[first:last]]
        if first_gone < last_gone:
            left += [self.before[place] for place in went[first_gone:last_gone]]
        return entered, left


def differences(
    before: list[Entry], now: list[Entry], new: Sequence[Entry], gone: Sequence[Entry]
) -> tuple[list[int], list[int]]:
    """The places in `now` of what `before` lacks, and the reverse.

    Args:
        before: the first rows in order, as they were.
        now: the first rows in order.
        new: at least what came among the rows of `before`.
        gone: at least what went from them.
    """
    if not before:
        return [*range(len(now))], []
    # What stands behind all that there was before is new here, wherever it comes from.
    tail = bisect_right(now, before[-1])
    came = _found(now, new, tail)
    went = _found(before, gone, len(before))
    # What has been pushed out of `now` are the last ones of `before`.
    survive = tail - len(came)
    place = len(before)
    rest = set(went)
    kept = len(before) - len(went)
    while kept > survive:
        place -= 1
        if place not in rest:
            insort(went, place)
            kept -= 1
    return [*came, *range(tail, len(now))], went


def _found(entries: list[Entry], wanted: Iterable[Entry], end: int) -> list[int]:
    """The places before `end` of those that are there."""
    places = ((bisect_left(entries, each, 0, end), each) for each in wanted)
    return sorted(place for place, each in places if place < end and entries[place] == each)
