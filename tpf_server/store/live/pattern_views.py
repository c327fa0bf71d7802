"""The views that are in use, and which of them a change concerns.

A view is made when a pattern with many matches is asked. The one that was not asked for longest
is dropped when all together are large beside the index itself.
"""

from collections import Counter, OrderedDict

from tpf_server.store.live.garbage import Unwatched
from tpf_server.store.live.index import NAMED, FactIndex, NumberPattern
from tpf_server.store.live.pattern_view import PatternView
from tpf_server.store.live.rows import ANY
from tpf_server.store.live.timeline import Timeline
from tpf_server.store.protocols import Snapshot

_MISSES = 3
_MANY = 10_000
_SLACK = 1_000_000
_OVERHEAD = 100
"""What an empty view takes, in slots."""

_Shape = tuple[bool, bool, bool, int, bool]


class PatternViews:
    """The views of an index.

    Args:
        index: the index.
    """

    def __init__(self, index: FactIndex) -> None:
        self._index = index
        self._views: OrderedDict[NumberPattern, PatternView] = OrderedDict()
        self._shapes: Counter[_Shape] = Counter()
        self._touched: dict[NumberPattern, set[int]] = {}
        self._unwatched = Unwatched()

    def __len__(self) -> int:
        return len(self._views)

    def get(self, pattern: NumberPattern, snapshot: Snapshot) -> PatternView:
        """The view of a pattern; a new one stands at the instant of the snapshot."""
        view = self._views.get(pattern)
        if view is None:
            many = len(self._index.candidates(pattern)) > _MANY
            timeline = Timeline(self._index, pattern) if many else None
            view = PatternView(self._index, pattern, snapshot.instant, timeline)
            view.timeline = None  # it served to make the view; most views need it no more
            self._views[pattern] = view
            self._shapes[_shape(pattern)] += 1
            self._make_room()
        else:
            self._views.move_to_end(pattern)
        return view

    def timeline(self, view: PatternView) -> Timeline:
        """The timeline of a view, made when it is first needed."""
        if view.timeline is None:
            view.timeline = Timeline(self._index, view.pattern)
            self._make_room()
        return view.timeline

    def missed(self, view: PatternView, snapshot: Snapshot) -> None:
        """A view could not answer; where that repeats for the newest state, it starts anew."""
        if snapshot.sequence == self._index.last:
            view.misses += 1
            if view.misses > _MISSES:
                timeline = self.timeline(view)
                self._views[view.pattern] = PatternView(
                    self._index, view.pattern, snapshot.instant, timeline
                )

    def _make_room(self) -> None:
        room = 4 * self._index.rows.live_rows + _SLACK
        size = sum(len(view) + _OVERHEAD for view in self._views.values())
        self._unwatched.grown(size)
        while size > room and len(self._views) > 1:
            pattern, view = self._views.popitem(last=False)
            size -= len(view) + _OVERHEAD
            shape = _shape(pattern)
            self._shapes[shape] -= 1
            if not self._shapes[shape]:
                del self._shapes[shape]

    # Following changes

    def touch(self, slot: int, obj: int, row: int) -> None:
        """A version in this slot, with this object, came (then `row` is it) or went."""
        rows = self._index.rows
        subject, predicate = rows.subject_of[slot], rows.predicate_of[slot]
        graph, kind = rows.graph_of[slot], rows.kind_of[slot]
        for by_subject, by_predicate, by_object, by_graph, by_kind in self._shapes:
            pattern = NumberPattern(
                subject if by_subject else ANY,
                predicate if by_predicate else ANY,
                obj if by_object else ANY,
                ANY if by_graph == ANY else graph if by_graph != NAMED else NAMED,
                kind if by_kind else ANY,
            )
            view = self._views.get(pattern)
            if view is not None and (by_graph != NAMED or self._index.matches_slot(slot, pattern)):
                self._touched.setdefault(pattern, set()).add(slot)
                if row >= 0 and view.timeline is not None:
                    view.timeline.add(row)
                    if view.timeline.stale:
                        view.timeline = None  # it grows no more, and is made again when needed

    def refresh(self) -> None:
        """The batch is complete: let the views look again at what it touched."""
        for pattern, slots in self._touched.items():
            self._views[pattern].refresh(slots)
        self._touched.clear()


def _shape(pattern: NumberPattern) -> _Shape:
    subject, predicate, obj, graph, kind, _ = pattern
    by_graph = graph if graph in (ANY, NAMED) else 0
    return subject != ANY, predicate != ANY, obj != ANY, by_graph, kind != ANY
