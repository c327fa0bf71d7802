"""The join of two nodes that have at most one row for each key, by that key."""

from collections.abc import Collection, Iterable
from itertools import chain

from tpf_client.dataflow.changes import UNBOUND, Solution, places_of, selection
from tpf_client.dataflow.node import Key, Node
from tpf_client.dataflow.operators.layout import layout


def joins_by_key(left: Node, right: Node) -> bool:
    """Whether two nodes are for a `KeyedJoin`: their keys are the variables that they share."""
    shared = {name for name in left.schema if name in right.schema}
    return all(each.key is not None and set(each.key) == shared for each in (left, right))


class KeyedJoin(Node):
    """The joined rows; see `joins_by_key` for what may be joined.

    A key that lacks a value may meet several others. Rows of such a key, and those that it meets,
    have both keys, one after the other, as their key.

    Attributes:
        left: whose rows come first.
        right: whose other values follow.
        rest: these, of a row.
    """

    def __init__(self, left: Node, right: Node) -> None:
        assert left.key is not None
        assert right.key is not None
        how = layout(left.schema, left.certain, right.schema, right.certain)
        super().__init__(how.schema, how.certain, monotone=False, keyed=True, key=left.key)
        self._left, self._right = left.claimed(), right.claimed()
        # Keys are those of the left; on the right their values may stand in another order.
        self._width = len(left.key)
        self._same = left.key == right.key
        self._to_right = selection(places_of(left.key, right.key), self._width)
        self._from_right = selection(places_of(right.key, left.key), self._width)
        self._merge = how.merge
        self.left, self.right, self.rest = left, right, how.rest
        # The keys, of either side, that lack a value.
        self._loose_left: set[Key] = set()
        self._loose_right: set[Key] = set()
        left_row, right_row, rest, width = left.row, right.row, how.rest, self._width
        same, to_right = self._same, self._to_right

        def row(key: Key) -> Solution | None:
            if len(key) != width:
                return self._row_of_pair(key)
            one = left_row(key)
            if one is None:
                return None
            other = right_row(key if same else to_right(key))
            return None if other is None else one + rest(other)

        self.row = row

    @property
    def pending(self) -> bool:
        """Whether something happened to a row of either side."""
        return self._left.pending or self._right.pending

    def changed(self) -> Collection[Key]:
        """See `Node`."""
        left, right = self._left.changed(), self._right.changed()
        if not self._same:
            right = [self._from_right(key) for key in right]
        if self.loose():
            return self._with_loose(left, right)
        return {*left, *right} if left and right else left or right

    def loose(self) -> bool:
        """See `Node`."""
        return self._left.loose() or self._right.loose()

    def _with_loose(self, left: Collection[Key], right: Collection[Key]) -> Collection[Key]:
        """The changed keys of rows, where some keys lack a value."""
        loose_left, loose_right = self._loose_left, self._loose_right
        loose_left.update(key for key in left if UNBOUND in key)
        loose_right.update(key for key in right if UNBOUND in key)
        found = dict.fromkeys(key for key in chain(left, right) if UNBOUND not in key)
        # What is gone by now has met those that are gone too.
        lefts = dict.fromkeys(chain(self._left.all_keys(), left))
        rights = dict.fromkeys(chain(self._right_keys(), right))
        for one in left:
            for other in rights if UNBOUND in one else loose_right:
                found[one + other] = None
        for other in right:
            for one in lefts if UNBOUND in other else loose_left:
                found[one + other] = None
        loose_left.intersection_update(self._left.all_keys())
        loose_right.intersection_update(self._right_keys())
        return found

    def all_keys(self) -> Iterable[Key]:
        """See `Node`."""
        for one in self._left.all_keys():
            if UNBOUND not in one:
                yield one
                yield from (one + other for other in self._loose_right)
            else:
                yield from (one + other for other in self._right_keys())

    def _right_keys(self) -> Iterable[Key]:
        keys = self._right.all_keys()
        return keys if self._same else map(self._from_right, keys)

    def _row_of_pair(self, key: Key) -> Solution | None:
        one = self._left.row(key[: self._width])
        other = self._right.row(self._to_right(key[self._width :]))
        return None if one is None or other is None else self._merge(one, other)
