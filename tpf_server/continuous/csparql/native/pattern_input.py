"""What matches a triple pattern, in static graphs and in windows, as rows of a dataflow."""

from collections.abc import Callable, Iterable, Sequence

from tpf_client.dataflow.changes import TermId
from tpf_server.continuous.csparql.native.contents import OnChange, WindowView
from tpf_server.continuous.csparql.native.static_tables import StaticTable
from tpf_server.continuous.engine.windows.matchers import EncodedTriple, Mask


class PatternInput:
    """The matches of a triple pattern in a graph: static ones and those in windows.

    Args:
        row_of: the row that a triple gives, its timestamp left out; ``None`` where it matches not.
        mask: the constants of the pattern.
        table: the static ones.
        windows: of the streams that the graph is merged from.
        stamped: the windows whose timestamps are wanted; ``None``: no timestamp.
        push: where changes go.
    """

    def __init__(
        self,
        row_of: Callable[[EncodedTriple], tuple[TermId, ...] | None],
        mask: Mask,
        table: StaticTable,
        windows: Sequence[WindowView],
        stamped: Sequence[WindowView] | None,
        encode_stamp: Callable[[int], TermId],
        push: Callable[[tuple[TermId, ...], int], None],
    ) -> None:
        self._row_of = row_of
        self._table = table
        self._windows = list(windows)
        self._stamped = None if stamped is None else list(stamped)
        self._encode_stamp = encode_stamp
        self._push = push
        self._joined: Callable[[tuple[TermId, ...], int], None] | None = None
        for window in self._windows:
            window.listen(mask, self._listener(window))

    def open(self, joined: Callable[[tuple[TermId, ...], int], None] | None) -> None:
        """Begin to follow the static triples.

        Args:
            joined: takes rows of static triples that come and go, where a join looks them up in
                the table by itself, so that they are not pushed; ``None`` where they are.
        """
        self._joined = joined
        self._table.users[self] = None
        if joined is None:
            for triple in self._table.triples:
                self.push(triple, 1)

    def fill(self) -> None:
        """Take in what the windows hold already."""
        for triple in {each for window in self._windows for each in window.triples()}:
            static = triple in self._table.triples
            if not (static and self._joined is not None):
                self._change(triple, (False, None), self._rows(triple, static=static))

    def close(self) -> None:
        """Follow them no more."""
        self._table.leave(self)

    def look(self, triple: EncodedTriple, count: int) -> None:
        """See `StaticTable`."""
        if self._joined is not None:
            row = self._row_of(triple)
            assert row is not None
            self._joined(row, count)
            if self._rows(triple, static=False)[0]:
                # It is beside the table as long as it is not in it.
                self._push(row, -count)

    def push(self, triple: EncodedTriple, count: int) -> None:
        """See `StaticTable`."""
        if self._joined is None:
            rows = self._rows(triple, static=count < 0), self._rows(triple, static=count > 0)
            self._change(triple, *rows)

    def _rows(self, triple: EncodedTriple, *, static: bool) -> tuple[bool, int | None]:
        present = static or any(window.latest(triple) is not None for window in self._windows)
        if self._stamped is None:
            return present, None
        return present, _newest(self._stamped, triple)

    def _change(
        self, triple: EncodedTriple, old: tuple[bool, int | None], new: tuple[bool, int | None]
    ) -> None:
        if old == new:
            return
        row = self._row_of(triple)
        if row is None:
            return
        for (present, stamp), count in ((old, -1), (new, 1)):
            if present:
                if self._stamped is None:
                    self._push(row, count)
                else:
                    encoded = 0 if stamp is None else self._encode_stamp(stamp)
                    self._push((*row, encoded), count)

    def _listener(self, window: WindowView) -> OnChange:
        others = [each for each in self._windows if each is not window]
        stamped = self._stamped
        own = stamped is not None and window in stamped
        other_stamped = [each for each in stamped or () if each is not window]

        def changed(triple: EncodedTriple, old: int | None, new: int | None) -> None:
            always = triple in self._table.triples or any(
                each.latest(triple) is not None for each in others
            )
            if stamped is None:
                if not always and (old is None) != (new is None):
                    self._change(triple, (old is not None, None), (new is not None, None))
                return
            elsewhere = _newest(other_stamped, triple)

            def stamp(mine: int | None) -> int | None:
                if not own or mine is None:
                    return elsewhere
                return mine if elsewhere is None else max(elsewhere, mine)

            self._change(
                triple,
                (always or old is not None, stamp(old)),
                (always or new is not None, stamp(new)),
            )

        return changed


def _newest(windows: Iterable[WindowView], triple: EncodedTriple) -> int | None:
    """The latest timestamp of a triple in any of these windows."""
    found = [at for each in windows if (at := each.latest(triple)) is not None]
    return max(found) if found else None
