"""What matches a triple pattern, in static graphs and in windows, as rows of a dataflow."""

from collections.abc import Callable, Iterable, Sequence, Set

from tpf_client.dataflow.changes import Solution, TermId
from tpf_server.continuous.csparql.native.contents import OnChange, WindowView
from tpf_server.continuous.csparql.native.static_table import StaticTable
from tpf_server.continuous.engine.windows.matchers import EncodedTriple, Mask


class PatternInput:
    """The matches of a triple pattern in a graph: static ones and those in windows.

    Args:
        row_of: the row that a triple gives, its timestamp left out; ``None`` where it matches not.
        mask: the constants of the pattern.
        table: the static ones; ``None`` where there are none, or a join looks them up by itself.
        windows: of the streams that the graph is merged from.
        stamped: the windows whose timestamps are wanted; ``None``: no timestamp.
        push: where changes go.
    """

    def __init__(
        self,
        row_of: Callable[[EncodedTriple], Solution | None],
        mask: Mask,
        table: StaticTable | None,
        windows: Sequence[WindowView],
        stamped: Sequence[WindowView] | None,
        encode_stamp: Callable[[int], TermId],
        push: Callable[[Solution, int], None],
    ) -> None:
        self._row_of = row_of
        self._table = table
        self._static: Set[Solution] = frozenset() if table is None else table.all
        self._windows = list(windows)
        self._stamped = None if stamped is None else list(stamped)
        self._encode_stamp = encode_stamp
        self._push = push
        for window in self._windows:
            window.listen(mask, self._listener(window))

    def follow(self, place: int) -> None:
        """Begin to follow the static triples.

        Args:
            place: of the pattern among those of its query.
        """
        if self._table is not None:
            self._table.follow(self, place)

    def open(self) -> None:
        """Take in the static triples; what joins them follows theirs."""
        for row in self._static:
            self.static_change(row, 1)

    def fill(self) -> None:
        """Take in what the windows hold already."""
        for triple in {each for window in self._windows for each in window.triples()}:
            row = self._row_of(triple)
            if row is not None:
                static = row in self._static
                self._change(row, (False, None), self._rows(triple, static=static))

    def close(self) -> None:
        """Follow them no more."""
        if self._table is not None:
            self._table.leave(self)

    def static_change(self, row: Solution, count: int) -> None:
        """See `TableUser`."""
        assert self._table is not None
        triple = self._table.triple(row)
        before = self._rows(triple, static=count < 0)
        self._change(row, before, self._rows(triple, static=count > 0))

    def _rows(self, triple: EncodedTriple, *, static: bool) -> tuple[bool, int | None]:
        present = static or any(window.latest(triple) is not None for window in self._windows)
        if self._stamped is None:
            return present, None
        return present, _newest(self._stamped, triple)

    def _change(
        self, row: Solution, old: tuple[bool, int | None], new: tuple[bool, int | None]
    ) -> None:
        if old == new:
            return
        for (present, stamp), count in ((old, -1), (new, 1)):
            if present:
                if self._stamped is None:
                    self._push(row, count)
                else:
                    encoded = 0 if stamp is None else self._encode_stamp(stamp)
                    self._push((*row, encoded), count)

    def _listener(self, window: WindowView) -> OnChange:
        row_of, static, push = self._row_of, self._static, self._push
        others = [each for each in self._windows if each is not window]
        stamped = self._stamped
        own = stamped is not None and window in stamped
        other_stamped = [each for each in stamped or () if each is not window]

        def changed(triple: EncodedTriple, old: int | None, new: int | None) -> None:
            if stamped is None and (old is None) == (new is None):
                return
            row = row_of(triple)
            if row is None:
                return
            always = row in static or any(each.latest(triple) is not None for each in others)
            if stamped is None:
                if not always:
                    push(row, 1 if old is None else -1)
                return
            elsewhere = _newest(other_stamped, triple)

            def stamp(mine: int | None) -> int | None:
                if not own or mine is None:
                    return elsewhere
                return mine if elsewhere is None else max(elsewhere, mine)

            self._change(
                row,
                (always or old is not None, stamp(old)),
                (always or new is not None, stamp(new)),
            )

        return changed


def _newest(windows: Iterable[WindowView], triple: EncodedTriple) -> int | None:
    """The latest timestamp of a triple in any of these windows."""
    found = [at for each in windows if (at := each.latest(triple)) is not None]
    return max(found) if found else None
