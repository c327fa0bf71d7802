"""The windows of an engine: shared by queries, found by streams and predicates."""

from collections.abc import Iterable, Iterator

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_server.continuous.csparql.csparql_query import Occurrence, PhysicalWindow, SteppedWindow
from tpf_server.continuous.csparql.native.contents import WindowContents, WindowView

_Predicates = frozenset[TermId] | None
_Key = tuple[Term, SteppedWindow | WindowView, _Predicates]


class SharedWindows:
    """All windows that elements come into.

    Those over time are shared by queries that need the same predicates. Those that count triples
    are moved on by their queries, each by itself, so each query has its own.
    """

    def __init__(self) -> None:
        self._shared: dict[_Key, WindowContents] = {}
        self._listening: dict[Term, dict[TermId | None, list[WindowContents]]] = {}

    def attach(self, stream: Term, view: WindowView, predicates: _Predicates) -> None:
        """Let a view see the window of its kind, a new one where there is none."""
        key = self._key(stream, view, predicates)
        found = self._shared.get(key)
        if found is not None:
            found.show(view)
            return
        view.since = 0
        self._shared[key] = view.contents
        listening = self._listening.setdefault(stream, {})
        for predicate in (None,) if key[2] is None else key[2]:
            listening.setdefault(predicate, []).append(view.contents)

    def detach(self, stream: Term, view: WindowView, predicates: _Predicates) -> None:
        """A view is not needed any more; neither is a window that nobody sees."""
        found = view.contents
        found.hide(view)
        if found.views:
            return
        key = self._key(stream, view, predicates)
        del self._shared[key]
        listening = self._listening.get(stream, {})
        for predicate in (None,) if key[2] is None else key[2]:
            listening[predicate].remove(found)
            if not listening[predicate]:
                del listening[predicate]
        if not listening:
            self._listening.pop(stream, None)

    def _key(self, stream: Term, view: WindowView, predicates: _Predicates) -> _Key:
        if view.window.shared:
            return (stream, view.window, predicates)
        # What counts triples counts all.
        return (stream, view, None if isinstance(view.window, PhysicalWindow) else predicates)

    def arrive(self, stream: Term, occurrences: Iterable[Occurrence]) -> Iterator[WindowContents]:
        """Triples come into all windows that want them; gives these."""
        listening = self._listening.get(stream)
        if not listening:
            return
        everything = listening.get(None, ())
        for each in occurrences:
            for windows in (everything, listening.get(each.triple[1], ())):
                for window in windows:
                    window.add(each)
                    yield window

    def __len__(self) -> int:
        return len(self._shared)
