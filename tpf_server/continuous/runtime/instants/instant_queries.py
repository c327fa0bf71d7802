"""Queries that answer at instants: elements in, answers out."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import inf
from operator import attrgetter, itemgetter
from typing import cast

from annotations.terms import Term
from tpf_client.dataflow.changes import TermId
from tpf_server.continuous.runtime.clock import NEVER
from tpf_server.continuous.runtime.elements.elements import graph_of
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    ElementError,
    FailedEvaluationError,
    JoinLimitError,
    UnsupportedContinuousQueryError,
    WindowLimitError,
)
from tpf_server.continuous.runtime.instants.builder import has_static
from tpf_server.continuous.runtime.instants.contents import WindowContents, WindowView
from tpf_server.continuous.runtime.instants.csparql_query import (
    Audience,
    CsparqlQuery,
    Occurrence,
    PeriodicAnswer,
    PhysicalWindow,
    Trigger,
    with_graphs_of,
)
from tpf_server.continuous.runtime.instants.evaluation import (
    Equals,
    EvaluationContext,
    PeriodicEvaluation,
    Question,
)
from tpf_server.continuous.runtime.instants.evaluation_planner import (
    Declarations,
    EvaluationPlanner,
)
from tpf_server.continuous.runtime.instants.periodic_query import (
    AnswerCallback,
    Pace,
    PeriodicQuery,
)
from tpf_server.continuous.runtime.instants.rules import RULES, Rule
from tpf_server.continuous.runtime.instants.timetable import Multimap, Timetable
from tpf_server.continuous.runtime.semantics import says_now
from tpf_server.continuous.runtime.shared import Shared
from tpf_server.continuous.runtime.static.static_data import GraphChange
from tpf_server.continuous.runtime.static.static_rows import SharedRows, tell
from tpf_server.continuous.runtime.windows.matchers import EncodedQuad, EncodedTriple

# The windows of an engine: shared by queries, found by streams and predicates.

_Predicates = frozenset[TermId] | None
_Key = tuple[Hashable, ...]


class SharedWindows:
    """The windows that elements enter.

    Queries share equal windows that have the same predicates, where they read the same streams: so
    they are at the same instants.
    """

    def __init__(self) -> None:
        self._shared: dict[_Key, WindowContents] = {}
        self._listening: Multimap[tuple[Term, TermId | None], WindowContents] = Multimap()
        self._counting: Multimap[Term, WindowContents] = Multimap()

    def attach(self, evaluation: PeriodicEvaluation, trigger: Trigger) -> None:
        """Connect the views of an evaluation with the windows of their kinds."""
        for key, view, enter in self._views(evaluation, trigger):
            window = self._shared.get(key)
            if window is not None:
                window.show(view)
                continue
            view.reveal()
            self._shared[key] = view.contents
            if trigger.counts and not trigger.by_elements:
                self._counting.add([stream for stream, _ in enter], view.contents)
            else:
                self._listening.add(enter, view.contents)

    def detach(self, evaluation: PeriodicEvaluation, trigger: Trigger) -> None:
        """Disconnect the views of an evaluation; drop windows without views."""
        for key, view, enter in self._views(evaluation, trigger):
            window = view.contents
            window.hide(view)
            if not window.views:
                del self._shared[key]
                self._listening.discard(enter, window)
                self._counting.discard([stream for stream, _ in enter], window)

    def _views(
        self, evaluation: PeriodicEvaluation, trigger: Trigger
    ) -> Iterator[tuple[_Key, WindowView, list[tuple[Term, TermId | None]]]]:
        """The views of an evaluation, with the keys of their windows and what enters these."""
        for name, view in evaluation.windows.items():
            stream = evaluation.inputs[name]
            # What counts triples counts all.
            counted = isinstance(view.window, PhysicalWindow)
            predicates: _Predicates = None if counted else evaluation.predicates
            shared = trigger.counts or view.window.shared
            whose: Hashable = (trigger.reads, trigger.counts) if shared else view
            enter = [(stream, each) for each in ((None,) if predicates is None else predicates)]
            yield (stream, view.window, predicates, whose), view, enter

    def arrive(
        self, stream: Term, occurrences: Iterable[Occurrence], *, counted: bool = False
    ) -> Iterator[WindowContents]:
        """Add the triples of an element to its windows, or those that count; give these."""
        everything = self._listening.of((stream, None))
        for each in occurrences:
            for windows in (everything, self._listening.of((stream, each.triple[1]))):
                for window in windows:
                    if not counted or isinstance(window.window, PhysicalWindow):
                        window.add(each)
                        yield window

    def count(self, stream: Term, occurrence: Occurrence) -> None:
        """Add a triple to the windows that it moves."""
        for window in self._counting.of(stream):
            window.add(occurrence)
            # It is there, also where the next answer is for an earlier instant of another stream.
            window.move(occurrence.at)

    def __len__(self) -> int:
        return len(self._shared)


# Who reads which streams: elements come into the windows of queries.


class StreamReaders:
    """Queries by the streams that they read, with their windows and evaluations.

    Attributes:
        late: elements that came after an answer that should have seen them.
        following: triggers that follow the elements of a stream.
    """

    def __init__(
        self,
        evaluations: Equals[PeriodicEvaluation],
        planner: EvaluationPlanner,
        window_rows: int,
    ) -> None:
        self.arrivals = 0
        self.late = 0
        self.windows = SharedWindows()
        self._evaluations = evaluations
        self._planner = planner
        self._window_rows = window_rows
        self._in_graphs: Multimap[Term, PeriodicQuery] = Multimap()
        self._queries: Multimap[Term, PeriodicQuery] = Multimap()
        self._counting: Multimap[Term, Trigger] = Multimap()
        self.following: Multimap[Term, Trigger] = Multimap()
        self._triggers: Equals[Trigger] = Equals()
        self._waiting: Multimap[Term | None, PeriodicQuery] = Multimap()
        self._most_windows = 1
        self._answered: int | None = None

    def add(self, registered: PeriodicQuery) -> None:
        """Add a query; it sees later elements."""
        evaluation = registered.evaluation
        self._queries.add(registered.reads, registered)
        self._in_graphs.add(evaluation.in_graphs, registered)
        self._evaluations.add(evaluation.key, evaluation, self.arrivals)
        self._most_windows = max(self._most_windows, len(evaluation.windows))
        if registered.trigger.counts:
            self._counting.add(registered.reads, registered.trigger)
        if registered.trigger.follows:
            self.following.add(registered.reads, registered.trigger)
        if evaluation.owners == 1:
            self.windows.attach(evaluation, registered.trigger)
        evaluation.hide_past(registered.question)
        registered.subscribe()
        if not registered.together:
            return
        registered.trigger.audience.apart[registered] = None
        if registered.trigger.timed and not registered.trigger.decides:
            registered.begun = inf
            self._waiting.add((None, *registered.reads), registered)

    def begin(self, at: int, stream: Term | None = None) -> None:
        """Let queries begin that wait for an element of a stream, or for any."""
        for registered in tuple(self._waiting.of(stream)):
            self._waiting.discard((None, *registered.reads), registered)
            registered.begun = at

    def decide(self, registered: PeriodicQuery) -> None:
        """Let a query answer when others do, if it may."""
        own = registered.trigger
        if not registered.together:
            return
        fresh = self._triggers.fresh(own.key, self.arrivals)
        # Where it looks at elements, others must see the same.
        trigger = fresh if own.counts or own.follows else self._triggers.latest(own.key)
        if trigger is None:
            self._triggers.add(own.key, own, self.arrivals)
        else:
            registered.decide_by(trigger)

    def remove(self, registered: PeriodicQuery) -> None:
        self._queries.discard(registered.reads, registered)
        self._waiting.discard((None, *registered.reads), registered)
        self._in_graphs.discard(registered.evaluation.in_graphs, registered)
        registered.unsubscribe()
        self.untrigger(registered)
        self._leave(registered, registered.evaluation)

    def untrigger(self, registered: PeriodicQuery) -> None:
        trigger = registered.trigger
        trigger.queries.pop(registered, None)
        trigger.audience.apart.pop(registered, None)
        if trigger.queries:
            return
        self._counting.discard(registered.reads, trigger)
        self.following.discard(registered.reads, trigger)
        self._triggers.remove(trigger.key, trigger)

    def _leave(self, registered: PeriodicQuery, evaluation: PeriodicEvaluation) -> None:
        if evaluation.leave(registered.question):
            self._evaluations.remove(evaluation.key, evaluation)
            self.windows.detach(evaluation, registered.trigger)

    def read(self, stream: Term) -> bool:
        return stream in self._queries

    def needs_graphs(self, stream: Term) -> bool:
        return stream in self._in_graphs

    def answered(self, registered: PeriodicQuery, at: int) -> None:
        """Note an answer; from then on the query may share an evaluation."""
        if not registered.trigger.counts:
            registered.last = registered.trigger.last = at
            self._answered = at if self._answered is None else max(self._answered, at)
        self.join(registered)

    def join(self, registered: PeriodicQuery) -> None:
        """Let a query share an equal evaluation, where it sees the same."""
        own, question = registered.evaluation, registered.question
        if own.joined or not own.whole(question):
            return
        if own.stamped:
            try:
                equal, question = self._planner.whole(registered.query)
            except ContinuousError:
                return  # It goes on as it is.
            if equal.owners == 1:
                equal.joined = True
                self._evaluations.first_whole(equal.key, equal)
                self.windows.attach(equal, registered.trigger)
                self._planner.plan_anew(equal, registered.query)
            registered.unsubscribe()
            self._leave(registered, own)
        else:
            equal = self._evaluations.first_whole(own.key, own)
            own.joined = equal is own
            if own.joined:
                return
            registered.unsubscribe()
            self._leave(registered, own)
            # Others may go on asking the same of its evaluation.
            question = Question(question.key, question.query, question.parts, question.number)
            question = self._planner.shared(equal, registered.query, question)
        registered.share(equal, question)
        registered.subscribe()

    def reported(self, trigger: Trigger) -> bool:
        """Note that a trigger has decided; true where it goes on as an equal one."""
        equal = self._triggers.first_whole(trigger.key, trigger)
        merges = equal is not trigger and trigger.equals(equal)
        if merges:
            for registered in tuple(trigger.queries):
                apart = registered in trigger.audience.apart
                registered.unsubscribe()
                self.untrigger(registered)
                registered.decide_by(equal)
                registered.subscribe()
                if apart:
                    equal.audience.apart[registered] = None
        return merges

    def join_all(self, audience: Audience) -> None:
        """Let those queries share an equal evaluation that may now."""
        while audience.apart:
            registered = next(iter(audience.apart))
            if not registered.evaluation.whole(registered.question):
                return
            del audience.apart[registered]
            self.join(registered)

    # ----------------------------------------------------------------------------- elements

    def arrive(
        self,
        stream: Term,
        triples: Sequence[EncodedTriple],
        at: int,
        quads: Sequence[EncodedQuad] = (),
    ) -> list[Occurrence]:
        """Add an element to the windows that it enters whole.

        Returns:
            Its occurrences, for `due`.
        """
        self.arrivals += 1
        number = self.arrivals
        stamp = self._planner.watermark.last
        occurrences = [Occurrence(at, number, triple, stamp) for triple in triples]
        readers = self._queries.of(stream)
        if self._answered is not None and at <= self._answered:
            passed = [each for each in readers if each.last is not None and at <= each.last]
            for registered in passed:
                registered.late += 1
            self.late += bool(passed)
        full = False
        came: Iterable[WindowContents] = self.windows.arrive(stream, occurrences)
        if quads:
            # What is in no graph pushes others out of a window that counts.
            named = self.windows.arrive(
                with_graphs_of(stream), _with(quads, occurrences), counted=not quads[0][3]
            )
            came = chain(came, named)
        for window in came:
            full = full or window.held() * self._most_windows > self._window_rows
        if full:
            for registered in tuple(readers):
                self._limit(registered)
        return occurrences

    def due(self, stream: Term, occurrences: Sequence[Occurrence]) -> Iterator[Trigger]:
        """Count an element, then its triples; give the triggers of queries to answer now."""
        counting = tuple(self._counting.of(stream))
        for trigger in counting:
            if trigger.by_elements and trigger.arrived():
                yield trigger
        counting = tuple(each for each in counting if not each.by_elements)
        for occurrence in occurrences if counting else ():
            self.windows.count(stream, occurrence)
            for trigger in counting:
                if trigger.arrived():
                    yield trigger

    def _limit(self, registered: PeriodicQuery) -> None:
        allowed = self._window_rows
        if sum(registered.evaluation.held(registered.question).values()) > allowed:
            error = f"the windows of {registered.name} hold more than {allowed} elements"
            registered.stop(WindowLimitError(error))


def _with(quads: Sequence[EncodedQuad], occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    return [
        each._replace(triple=cast("EncodedTriple", quad))
        for quad, each in zip(quads, occurrences, strict=True)
    ]


# What happens when an element arrives, and when time passes: answers at instants.
#
# An evaluation at instant t sees every element with a timestamp up to t, so it happens when the
# first later element of its streams arrives, or when `advance` says that t has passed (see
# `StreamClocks`). Queries are evaluated in the order of time, and at the same instant a registered
# stream before those that read it.
#


@dataclass(frozen=True, slots=True)
class InstantSettings:
    """How queries that answer at instants are evaluated.

    Args:
        patience: milliseconds of stream time that a query waits for streams behind others, while
            the present is not known.
        eager: evaluate from the first `advance` on, not only from the first element.
        pace: widens steps of queries under load.
    """

    patience: int = 0
    eager: bool = False
    rules: tuple[Rule, ...] = RULES
    pace: Pace | None = None


def _idle(trigger: Trigger) -> bool:
    first = next(iter(trigger.queries), None)
    if first is None:
        return False
    if first.together:
        return not any(window.held() for window in trigger.audience.windows)
    idle: bool = first.evaluation.idle(first.question)
    return idle


class InstantQueries:
    """The queries of an engine that answer at instants: those in C-SPARQL and RSP-QL.

    Args:
        shared: its terms, static graphs and streams are used.
        drop: lets go of a query that has ended.
        made: takes an element that a query made, for the other queries of the engine.

    Attributes:
        queries: those that run, by name.
        declarations: the predicates of streams.
        planner: makes and explains their evaluations.
        readers: them by the streams that they read.
        timetable: their next instants, and which streams are made of which.
    """

    def __init__(
        self,
        shared: Shared,
        settings: InstantSettings,
        drop: Callable[[PeriodicQuery], None],
        made: Callable[[Term, list[EncodedTriple], int], None],
    ) -> None:
        self._shared = shared
        self.queries: dict[str, PeriodicQuery] = {}
        self._settings = settings
        self._drop = drop
        self._made = made
        self._dictionary, self._static = shared.dictionary, shared.static
        self._arriving, self._forgetting = shared.arriving, shared.forgetting
        self._clocks, self._skip_idle = shared.clocks, shared.settings.skip_idle
        self._evaluations: Equals[PeriodicEvaluation] = Equals()
        has = partial(has_static, self._static)
        self.declarations = Declarations(self._dictionary, has)
        self._shared_rows = SharedRows()
        context = EvaluationContext(
            self._static,
            self._shared_rows,
            self._dictionary,
            shared.environment,
            shared.limits.join_rows,
        )
        self.planner = EvaluationPlanner(
            context, self._evaluations, self.declarations, settings.rules
        )
        self.readers = StreamReaders(self._evaluations, self.planner, shared.limits.window_rows)
        self.timetable = Timetable(self._clocks, self.queries)
        self._graph_names = self._static.names

    def changing(self, change: GraphChange) -> Callable[[], None]:
        finishing = self._shared_rows.changing(change)

        def finish() -> None:
            with self._dictionary.permanently():
                # First all rows change, then joins.
                tell([each for finish_rows in finishing for each in finish_rows()])
            for each in self.queries.values():
                each.evaluation.refreshed()
            if self._static.names != self._graph_names:
                self._graph_names = self._static.names
                queries = tuple(self.queries.values())
                ranging = {each.evaluation: each.query for each in queries if each.ranges}
                for evaluation, query in ranging.items():
                    try:
                        self.planner.plan_anew(evaluation, query)
                    except ContinuousError as error:
                        for each in queries:
                            if each.evaluation is evaluation:
                                each.stop(error)
            self._forgetting.sweep_where_due()

        return finish

    def let_go(self, registered: PeriodicQuery) -> None:
        """Let go of what a query holds that has ended."""
        del self.queries[registered.name]
        self.timetable.remove(registered)
        self.readers.remove(registered)
        if self._settings.pace is not None:
            self._settings.pace.remove(registered)

    # ------------------------------------------------------------------------ what arrives

    def looks_at(self, stream: Term) -> bool:
        """True where elements of a stream, or their times, matter to a query."""
        return self.readers.read(stream) or self.timetable.follows(stream)

    def arrive(
        self,
        stream: Term,
        triples: Sequence[EncodedTriple],
        at: int,
        graph: Term | None = None,
    ) -> None:
        """Take an encoded element, and the name of its graph."""
        # Evaluations may let go of terms, and of queries.
        self._arriving.append(triples)
        try:
            self._announce(stream, at)
            if self.timetable.pass_on(stream):
                self._evaluate(self.timetable.due(at))
            self._forgetting.sweep_where_due()
        finally:
            self._arriving.pop()
        self._enter(stream, triples, at, graph)

    def _announce(self, stream: Term, at: int) -> None:
        due: list[tuple[int, Trigger]] = []
        for trigger in tuple(self.readers.following.of(stream)):
            instant = trigger.coming(at)
            if instant is None:
                continue
            if trigger.by_elements:
                due.append((instant, trigger))
            else:
                self.timetable.look(trigger)
        # Windows that they share do not go back.
        for instant, trigger in sorted(due, key=itemgetter(0)):
            self._report(trigger, instant)

    def _report(self, trigger: Trigger, at: int) -> None:
        instant = trigger.instant(at)
        if not trigger.holds(instant):
            return
        audience = trigger.audience
        for window in audience.windows:
            window.move(instant)
        for evaluation in audience.take_stale():
            # Where that is too much, its queries are told when they answer.
            with suppress(JoinLimitError, FailedEvaluationError):
                evaluation.move(instant)
        for registered in sorted(audience.touched | audience.always, key=attrgetter("number")):
            if registered.state != "running" or registered.begun > instant:
                continue
            if not registered.changed:
                audience.touched.pop(registered, None)
            elif trigger.concerns(registered.since):
                audience.touched.pop(registered, None)
                self._answer(registered, instant)
        self.readers.join_all(audience)
        if (trigger.counts or trigger.follows) and self.readers.reported(trigger):
            self.timetable.end(trigger)

    def _enter(
        self, stream: Term, triples: Sequence[EncodedTriple], at: int, graph: Term | None
    ) -> None:
        if not self.readers.read(stream):
            return
        self._arriving.append(triples)
        try:
            self.readers.begin(at, stream)
            for trigger in self.timetable.idle(stream):
                self.timetable.begin(trigger, at)
            quads = self._with_graph(triples, graph) if self.readers.needs_graphs(stream) else ()
            occurrences = self.readers.arrive(stream, triples, at, quads)
            number = self.readers.arrivals
            for trigger in tuple(self.readers.following.of(stream)):
                if trigger.came(stream, at, number):
                    self.timetable.look(trigger)
            for trigger in self.readers.due(stream, occurrences):
                self._report(trigger, at)
        finally:
            self._arriving.pop()

    def _with_graph(
        self, triples: Sequence[EncodedTriple], graph: Term | None
    ) -> list[EncodedQuad]:
        name = 0 if graph is None else self._dictionary.encode(graph)
        quads = [(*triple, name) for triple in triples]
        # So it is held as the terms of the triples are.
        self._arriving[-1] = [*triples, (name, name, name)]
        return quads

    def advance(self, at: int) -> None:
        """Evaluate what is due up to an instant; all elements until then have come."""
        if self._settings.eager:
            self.readers.begin(at)
        for trigger in self.timetable.idle():
            if self._settings.eager or not trigger.reads:
                self.timetable.begin(trigger, at)
        if self.timetable.pass_on(told=at):
            self._evaluate(self.timetable.due())
        self._forgetting.sweep_where_due()

    def finish(self) -> None:
        """Evaluate until every query has seen the last element."""
        newest = self._clocks.newest
        if newest != NEVER:
            self._evaluate(self.timetable.due_until_end(newest))

    # -------------------------------------------------------------------------- evaluation

    def _evaluate(self, due: Iterable[tuple[int, Trigger]]) -> None:
        for at, trigger in due:
            if self._shared.abandoned:
                return
            self._evaluate_at(at, trigger)

    def _evaluate_at(self, at: int, trigger: Trigger) -> None:
        following = trigger.due_after(at)
        if following is None:
            self.timetable.rest(trigger)
        else:
            self.timetable.plan(trigger, following)
        first: PeriodicQuery = next(iter(trigger.queries))
        pace = self._settings.pace
        begun = 0.0 if pace is None else pace.seconds()
        if first.together:
            self._report(trigger, at)
        elif trigger.holds(at):
            self._answer(first, at)
        if pace is not None:
            pace.evaluated(first, pace.seconds() - begun)
        if trigger.reads and self._skip_idle and not trigger.decides and _idle(trigger):
            self.timetable.rest(trigger)
            if pace is not None:
                pace.rest(first)

    def _answer(self, registered: PeriodicQuery, at: int) -> None:
        try:
            answer = registered.answer(at)
        except Exception as error:  # noqa: BLE001 - it ends this query, and no other
            if not self._shared.abandoned:
                registered.stop(
                    error if isinstance(error, ContinuousError) else FailedEvaluationError(error)
                )
            return
        if answer is None:
            return
        self.readers.answered(registered, at)
        registered.emitted += 1
        try:
            registered.take(answer)
        except Exception as error:  # noqa: BLE001 (see `RunningQuery.fail`)
            registered.fail(error)
            return
        # It may have ended itself.
        ended = registered.state != "running"
        if registered.stream is not None and answer.makes_triples and not ended:
            encode = self._dictionary.encode
            for element in answer.elements:
                triples = [(encode(s), encode(p), encode(o)) for s, p, o in element]
                try:
                    self.declarations.check_triples(registered.stream, triples)
                except ElementError as error:
                    registered.stop(error)
                    return
                self._arriving.append(triples)
                try:
                    self._made(registered.stream, triples, answer.at)
                    self._announce(registered.stream, answer.at)
                finally:
                    self._arriving.pop()
                self._enter(registered.stream, triples, answer.at, graph_of(element))

    def holders(self) -> Iterable[object]:
        evaluations = [each.evaluation for each in self.queries.values()]
        return evaluations, self.readers.windows, self._shared_rows

    def static_holders(self) -> Iterable[object]:
        for rows in self._shared_rows:
            yield from rows.holders

    # ----------------------------------------------------------------------------- queries

    def start(
        self, name: str, query: CsparqlQuery, callback: AnswerCallback | None
    ) -> PeriodicQuery:
        """Start a query; it sees later elements.

        Raises:
            UnsupportedContinuousQueryError: nothing says when to evaluate it, or it feeds itself.
        """
        if not query.continuous:
            raise UnsupportedContinuousQueryError(
                "neither FROM STREAM nor COMPUTED EVERY: such a query has one answer; see `ask`"
            )
        arrivals = self.readers.arrivals
        evaluation, question = self.planner.evaluation(query, arrivals)
        backlog = self._shared.limits.backlog
        registered = PeriodicQuery(
            name, query, (evaluation, question), callback, backlog, self._drop, arrivals
        )
        registered.trigger.came_before(self._clocks.newest_of(query.reads))
        self.readers.decide(registered)
        try:
            self.timetable.add(registered)
        except UnsupportedContinuousQueryError:
            self.readers.untrigger(registered)
            evaluation.leave(question)
            raise
        self.readers.add(registered)
        if self._settings.pace is not None:
            self._settings.pace.add(registered)
        self.queries[name] = registered
        return registered

    def ask(self, query: CsparqlQuery) -> PeriodicAnswer:
        """Answer a query without streams, once."""
        evaluation, question = self.planner.evaluation(query, self.readers.arrivals)
        at = max(self._clocks.newest, 0)
        if says_now(query.query):
            evaluation.plan_at(at)
        try:
            answers = evaluation.answers(at, question)
            return query.answer("", at, query.query, answers.output.variables, answers.rows())
        finally:
            evaluation.leave(question)
