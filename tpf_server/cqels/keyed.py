"""Nodes with at most one solution for each key, which are asked instead of listened to.

A group changes with nearly every element, and most of its changes matter to nobody: a top-k looks
at its best few only, a join at keys that both sides have. A change as a row that goes and one that
comes costs each operator above twice. So these nodes only note which keys were touched; whoever is
above asks, at the end of the tick, what the rows of those keys are now (`KeyedNode.row`). A node
without such a reader sends the differences itself, like every other.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Sink, Solution, places_of, selection
from tpf_client.dataflow.node import Node

Key: TypeAlias = Solution
"""What tells rows apart: the values of `KeyedNode.key`, or something longer (see `KeyedJoin`)."""

RowOf: TypeAlias = Callable[[Key], Solution | None]


class KeyedNode(Node):
    """A node that knows its row for each key.

    Args:
        schema: see `Node`.
        certain: see `Node`.
        key: the variables whose values make the keys; ``None`` where the schema lacks one of them.

    Attributes:
        key: see above.
        row: the row of a key as it is now, or ``None``.
        changed: the keys whose rows may have changed since this was last called, each once.
        all_keys: at least the keys that have a row, each once.
        loose: whether some key may lack a value.
    """

    # Functions, so that a node in between hands on those of the node below.
    row: RowOf
    changed: Callable[[], Collection[Key]]
    all_keys: Callable[[], Iterable[Key]]
    loose: Callable[[], bool]

    def __init__(
        self,
        schema: Sequence[Variable],
        certain: frozenset[Variable],
        key: tuple[Variable, ...] | None,
    ) -> None:
        super().__init__(schema, certain, monotone=False)
        self.key = key
        self._claimed = False
        self._shown: dict[Key, Solution] = {}

    @property
    def sends(self) -> bool:
        """Whether it sends its changes: nobody asks for them."""
        return not self._claimed

    def claimed(self) -> "KeyedNode":
        """This node, for the one who will ask for its rows."""
        assert not self._claimed, "somebody else asks for these rows"
        assert not self._sinks, "somebody listens to these rows"
        self._claimed = True
        return self

    def connect(self, sink: Sink) -> None:
        """See `Node`."""
        assert not self._claimed, "somebody asks for these rows"
        super().connect(sink)

    def flush(self) -> None:
        """Send what changed about the rows of keys that something happened to."""
        emit, shown, row_of = self.emit, self._shown, self.row
        for key in self.changed():
            now = row_of(key)
            before = shown.get(key)
            if now == before:
                continue
            if before is not None:
                emit(before, -1)
            if now is None:
                del shown[key]
            else:
                shown[key] = now
                emit(now, 1)


class KeyedRows(KeyedNode):
    """The rows of another node, each changed or left out by itself.

    Args:
        source: where the rows come from.
        schema: see `Node`.
        certain: see `Node`.
        key: see `KeyedNode`.
        change: the new row; ``None`` leaves it out. It must be a function of the row alone.
    """

    def __init__(
        self,
        source: KeyedNode,
        schema: Sequence[Variable],
        certain: frozenset[Variable],
        key: tuple[Variable, ...] | None,
        change: Callable[[Solution], Solution | None],
    ) -> None:
        super().__init__(schema, certain, key)
        self._source = source.claimed()
        self.changed, self.all_keys, self.loose = source.changed, source.all_keys, source.loose
        row_of = source.row

        def row(key: Key) -> Solution | None:
            found = row_of(key)
            return None if found is None else change(found)

        self.row = row

    @property
    def pending(self) -> bool:
        """Whether something happened to a row."""
        return self._source.pending


class KeyedColumns(KeyedRows):
    """The rows of another node with other columns (see `Project`).

    Several of these in a row are one step; one that changes nothing in the end is none.

    Args:
        source: where the rows come from.
        names: the variables of the output; those that the source lacks are unbound.
        copies: variables of the output that have the value of another variable.

    Attributes:
        below: the node before the first of several in a row.
        places: where the columns are in its rows, -1 for absent ones.
    """

    below: KeyedNode
    places: tuple[int, ...]

    def __init__(
        self,
        source: KeyedNode,
        names: Sequence[Variable],
        copies: Mapping[Variable, Variable] | None = None,
    ) -> None:
        copied = copies or {}
        taken = [copied.get(name, name) for name in names]
        places = places_of(source.schema, taken)
        certain = frozenset(n for n, t in zip(names, taken, strict=True) if t in source.certain)
        key: tuple[Variable, ...] | None = None
        if source.key is not None and set(source.key) <= set(taken):
            key = tuple([names[taken.index(name)] for name in source.key])
        self.below = source
        if isinstance(source, KeyedColumns):
            places = tuple([source.places[place] if place >= 0 else -1 for place in places])
            self.below = source.below
        self.places = places
        super().__init__(source, names, certain, key, selection(places, len(self.below.schema)))
        row_of = self.below.row
        if places == tuple(range(len(self.below.schema))):
            self.row = row_of
        else:
            reduce = selection(places, len(self.below.schema))

            def row(key: Key) -> Solution | None:
                found = row_of(key)
                return None if found is None else reduce(found)

            self.row = row


def keyed_filter(source: KeyedNode, condition: Callable[[Solution], bool]) -> KeyedRows:
    """The rows for which a condition is true (see `Filter`)."""

    def change(row: Solution) -> Solution | None:
        return row if condition(row) else None

    return KeyedRows(source, source.schema, source.certain, source.key, change)


def keyed_extend(
    source: KeyedNode, variable: Variable, compute: Callable[[Solution], int]
) -> KeyedRows:
    """The rows with one more variable (see `Extend`)."""

    def change(row: Solution) -> Solution | None:
        return (*row, compute(row))

    return KeyedRows(source, (*source.schema, variable), source.certain, source.key, change)
