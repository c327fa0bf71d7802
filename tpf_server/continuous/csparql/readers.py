"""Who reads which streams: elements come into the windows of queries."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

from annotations.terms import Term
from tpf_server.continuous.csparql.learning import Learning
from tpf_server.continuous.csparql.native.contents import WindowContents
from tpf_server.continuous.csparql.native.evaluation_registry import EvaluationRegistry
from tpf_server.continuous.csparql.native.shared_windows import SharedWindows
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.csparql.planner import EvaluationPlanner
from tpf_server.continuous.csparql.windows import Occurrence, PhysicalWindow, with_graphs_of
from tpf_server.continuous.engine.errors import WindowLimitError
from tpf_server.continuous.engine.windows.matchers import EncodedQuad, EncodedTriple

_ByStream = dict[Term, dict[PeriodicQuery, None]]


class StreamReaders:
    """The queries of an engine, with the windows and evaluations that they share.

    Args:
        windows: that move with time; those that count triples belong to one query each.
        evaluations: see `EvaluationRegistry`.
        learning: what their plans rest on.
        planner: makes evaluations.
        window_rows: how many elements the windows of a query may hold.

    Attributes:
        arrivals: how many elements somebody read.
        late: how many of them came after an answer that should have seen them.
        following: queries that are to hear of the elements of a stream.
    """

    def __init__(
        self,
        windows: SharedWindows,
        evaluations: EvaluationRegistry,
        learning: Learning,
        planner: EvaluationPlanner,
        window_rows: int,
    ) -> None:
        self.arrivals = 0
        self.late = 0
        self._windows = windows
        self._evaluations = evaluations
        self._learning = learning
        self._planner = planner
        self._window_rows = window_rows
        self._in_graphs: Counter[Term] = Counter()
        self._timed: _ByStream = {}
        self._counting: _ByStream = {}
        self.following: _ByStream = {}
        self._most_windows = 1
        self._answered: int | None = None

    def add(self, registered: PeriodicQuery) -> None:
        """A query sees what comes from now on."""
        evaluation = registered.evaluation
        registered.question.owners += 1
        self._in_graphs.update(evaluation.in_graphs)
        self._evaluations.add(evaluation, self.arrivals)
        self._learning.rest(evaluation)
        self._most_windows = max(self._most_windows, len(evaluation.windows))
        for stream in registered.reads:
            self._like(registered).setdefault(stream, {})[registered] = None
            if registered.follows:
                self.following.setdefault(stream, {})[registered] = None
        for name, view in evaluation.windows.items():
            if registered.counts:
                # What came before it does not come into them.
                view.since = 0
            elif evaluation.owners == 1:
                self._windows.attach(evaluation.inputs[name], view, evaluation.predicates)

    def remove(self, registered: PeriodicQuery) -> None:
        """It sees nothing any more."""
        readings = [self._like(registered)]
        if registered.follows:
            readings.append(self.following)
        for readers in readings:
            for stream in registered.reads:
                del readers[stream][registered]
                if not readers[stream]:
                    del readers[stream]
        self._in_graphs.subtract(registered.evaluation.in_graphs)
        self._in_graphs += Counter()
        self._leave(registered)

    def _like(self, registered: PeriodicQuery) -> _ByStream:
        return self._counting if registered.counts else self._timed

    def _leave(self, registered: PeriodicQuery) -> None:
        evaluation = registered.evaluation
        evaluation.leave(registered.question)
        if self._evaluations.remove(evaluation):
            self._learning.forget(evaluation)
            evaluation.close()
            if not registered.counts:
                for name, view in evaluation.windows.items():
                    self._windows.detach(evaluation.inputs[name], view, evaluation.predicates)

    def read(self, stream: Term) -> bool:
        """Whether anybody reads a stream."""
        return stream in self._timed or stream in self._counting

    def needs_graphs(self, stream: Term) -> bool:
        """Whether anybody asks for the named graphs of a stream."""
        return stream in self._in_graphs

    def of(self, stream: Term) -> Sequence[PeriodicQuery]:
        """Those that read a stream."""
        return *self._timed.get(stream, ()), *self._counting.get(stream, ())

    def answered(self, registered: PeriodicQuery, at: int) -> None:
        """A query has answered for an instant; from then on it may share an evaluation."""
        if not registered.counts:
            registered.last = at
            self._answered = at if self._answered is None else max(self._answered, at)
        found = self._evaluations.equal(registered.evaluation)
        if found is not None:
            question = registered.question
            self._leave(registered)
            registered.question = self._planner.shared(found, registered.query, question)
            registered.question.owners += 1
            registered.evaluation = found
            self._evaluations.add(found)

    # ----------------------------------------------------------------------------- elements

    def arrive(
        self,
        stream: Term,
        triples: Sequence[EncodedTriple],
        at: int,
        quads: Sequence[EncodedQuad] = (),
    ) -> list[Occurrence]:
        """An element comes into the windows over time of its stream.

        Args:
            stream: of the element.
            triples: of the element.
            at: its timestamp.
            quads: its triples with their graph, or 0, where somebody asks for graphs.

        Returns:
            What those that count triples are to count, see `count`.
        """
        self.arrivals += 1
        number = self.arrivals
        occurrences = [Occurrence(at, number, triple) for triple in triples]
        readers = self._timed.get(stream)
        if not readers:
            return occurrences
        if self._answered is not None and at <= self._answered:
            passed = [each for each in readers if each.last is not None and at <= each.last]
            for registered in passed:
                registered.late += 1
            self.late += bool(passed)
        allowed = self._window_rows
        full = False
        came: Iterable[WindowContents] = self._windows.arrive(stream, occurrences)
        if quads and quads[0][3]:
            named = self._windows.arrive(with_graphs_of(stream), _with(quads, occurrences))
            came = chain(came, named)
        for window in came:
            full = full or window.held() * self._most_windows > allowed
        if full:
            for registered in tuple(readers):
                self._limit(registered)
        return occurrences

    def count(
        self,
        stream: Term,
        occurrences: Sequence[Occurrence],
        quads: Sequence[EncodedQuad] = (),
    ) -> Iterator[PeriodicQuery]:
        """Triples come into windows that count them; gives queries that are to answer now."""
        came = {stream: occurrences}
        if quads:
            came[with_graphs_of(stream)] = _with(quads, occurrences)
        for registered in tuple(self._counting.get(stream, ())):
            if registered.by_elements:
                comes = registered.state == "running" and self._element_came(registered, came)
                if comes and registered.arrived():
                    yield registered
                continue
            for each in occurrences:
                # Its callback may have closed it, or that of another query.
                if registered.state != "running":
                    break
                contents = registered.evaluation.windows[stream].contents
                contents.add(each)
                # It is there, also where the next answer is for an earlier instant of another
                # stream.
                contents.move(each.at)
                if registered.arrived():
                    yield registered

    def _element_came(
        self, registered: PeriodicQuery, came: Mapping[Term, Sequence[Occurrence]]
    ) -> bool:
        """An element comes into the windows of a query that whole ones move; whether it runs."""
        evaluation = registered.evaluation
        predicates = evaluation.predicates
        for name, view in evaluation.windows.items():
            counted = isinstance(view.window, PhysicalWindow)
            for each in came.get(evaluation.inputs[name], ()):
                if counted or predicates is None or each.triple[1] in predicates:
                    view.contents.add(each)
        self._limit(registered)
        return registered.state == "running"

    def _limit(self, registered: PeriodicQuery) -> None:
        """Stop a query whose windows hold too much."""
        allowed = self._window_rows
        if registered.evaluation.held > allowed:
            error = f"the windows of {registered.name} hold more than {allowed} elements"
            registered.stop(WindowLimitError(error))


def _with(quads: Sequence[EncodedQuad], occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    return [
        each._replace(triple=cast("EncodedTriple", quad))
        for quad, each in zip(quads, occurrences, strict=True)
    ]
