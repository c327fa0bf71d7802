"""The engine: streams in, results out.

An arrival is a tick. First the windows let go what is too old for its time, then the element enters
the windows one after the other and every new row finds its way through the joins, then the
operators send what they held back, then the queries emit.

The engine has one thread and no clock: time is what the elements say, and what `advance` says.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from annotations.terms import DEFAULT_GRAPH, Term
from tpf_client.dataflow.changes import Solution
from tpf_client.sparql.expressions.compiler import Environment
from tpf_client.sparql.expressions.dates import DateTime
from tpf_client.sparql.expressions.values import value_of
from tpf_client.sparql.iris import is_absolute, resolve
from tpf_server.cqels.delivery import Callback, Delivery, Emission, Phase, Results, RowMaker
from tpf_server.cqels.dictionary import InliningDictionary
from tpf_server.cqels.errors import (
    ContinuousError,
    ElementError,
    EngineClosedError,
    LimitError,
    UnknownGraphError,
    UnknownQueryError,
    UnknownStreamError,
    UnsupportedContinuousQueryError,
    WindowLimitError,
)
from tpf_server.cqels.parser import BASE, ContinuousQuery, WindowClause, parse
from tpf_server.cqels.plan import Plan
from tpf_server.cqels.records import RecordFeed
from tpf_server.cqels.semantics import CQELS, Semantics
from tpf_server.cqels.static_cache import INSTANCE, Instance
from tpf_server.cqels.static_data import Dataset, Graph, StaticData
from tpf_server.cqels.streams import Stream
from tpf_server.cqels.templates import (
    Template,
    common_query,
    differing,
    lifted_variable,
    template_of,
)
from tpf_server.cqels.timestamps import EPOCH, milliseconds
from tpf_server.cqels.typed_terms import InliningTypedTerms
from tpf_server.cqels.windows.matchers import EncodedTriple, PatternKey
from tpf_server.cqels.windows.window_input import WindowInput

_HOUSEKEEPING: Final = 64
_ADAPTATION: Final = 1024

Element = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine allows.

    Args:
        queries: registered at the same time.
        window_rows: entries that the windows of one query may hold; looked at every 64 arrivals.
        backlog: emissions that wait for a reader.
    """

    queries: int = 10_000
    window_rows: int = 10_000_000
    backlog: int = 1_000_000


class RegisteredQuery:
    """A query that runs.

    Attributes:
        name: what it was registered as.
        query: what was parsed.
        results: what it emitted and nobody took (where it has no callback).
        emitted: how many rows it emitted.
        state: ``running``, ``stopped`` (by a limit) or ``closed``.
        error: why it was stopped.
    """

    def __init__(
        self,
        name: str,
        query: ContinuousQuery,
        callback: Callback | None,
        results: Results,
        close: Callable[["RegisteredQuery"], None],
    ) -> None:
        self.name = name
        self.query = query
        self.results = results
        self.emitted = 0
        self.state = "running"
        self.error: ContinuousError | None = None
        self.plan: Plan | None = None
        self.number = 0
        self.maker: RowMaker | None = None
        self.take = results.deliver if callback is None else callback
        self._close = close

    def __iter__(self) -> Iterable[Emission]:
        """The emissions that wait; each is given once."""
        return iter(self.results)

    def close(self) -> None:
        """Stop the query and let go of what it holds."""
        self._close(self)

    def explain(self) -> dict[str, Any]:
        """Its state, its plan with present cardinalities and routes."""
        plan = {} if self.plan is None else self.plan.explain()
        return {"name": self.name, "state": self.state, "emitted": self.emitted, **plan}


class Engine:
    """Continuous queries over streams and static data.

    Args:
        semantics: what queries emit, where registration says nothing else.
        lateness: how late an element may come, in milliseconds. Elements wait that long, so that
            those that come out of order are put in order; later ones are dropped and counted.
        base: what relative IRIs in queries are relative to.
        limits: what is allowed.
        create_streams: whether a stream comes into being when it is first pushed to or asked for.
        require_graphs: whether a query may only name static graphs that are loaded.
        share: whether queries that differ in constants only share a plan.
        now: what NOW() gives in queries.

    Attributes:
        time: the stream time, in milliseconds since 1970; ``None`` before the first element.
        arrivals: how many elements were processed.
        dropped: how many elements came too late.
    """

    def __init__(
        self,
        *,
        semantics: Semantics = CQELS,
        lateness: int = 0,
        base: str = BASE,
        limits: Limits | None = None,
        create_streams: bool = True,
        require_graphs: bool = False,
        share: bool = True,
        now: datetime = EPOCH,
    ) -> None:
        self.semantics = semantics
        self.time: int | None = None
        self.arrivals = 0
        self.dropped = 0
        self.limits = limits or Limits()
        self.static = StaticData()
        self.dictionary = InliningDictionary()
        self.streams: dict[Term, Stream] = {}
        self.queries: dict[str, RegisteredQuery] = {}
        self._lateness = lateness
        self._base = base
        self._create_streams = create_streams
        self._require_graphs = require_graphs
        self._share = share
        self._typed = InliningTypedTerms(self.dictionary)
        self._environment = Environment(self._typed, _date_time(now))
        self._late: list[tuple[int, int, Term, list[EncodedTriple]]] = []
        self._latest: int | None = None
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._timed: list[tuple[deque[tuple[int, Any]], int, WindowInput]] = []
        self._sliding: list[WindowInput] = []
        self._plans: list[Plan] = []
        self._holding: list[Plan] = []
        self._early: list[Plan] = []
        self._owners: dict[Plan, dict[int, RegisteredQuery]] = {}
        self._plan_of: dict[int, Plan] = {}
        self._shared: dict[object, list[WindowInput]] = {}
        self._templates: dict[object, list[tuple[Template, tuple[int, ...], Plan]]] = {}
        self._awake: list[Delivery] = []
        self._repeating: list[Delivery] = []
        self._phase = Phase()
        self._feeds: dict[str, Term] = {}
        self._fed: list[tuple[Term, list[EncodedTriple]]] = []
        self._until_housekeeping = 1
        self._next_adaptation = 0
        self._swept = 0
        self._closed = False
        self.static.on_change(self._refresh)

    # ------------------------------------------------------------------------- static data

    def load(self, path: Path | str, graph: str | None = None) -> None:
        """Add an RDF file to the default graph, or to the graph of this IRI.

        Raises:
            ContinuousError: the file cannot be read.
        """
        name = DEFAULT_GRAPH if graph is None else self._name(graph)
        self.static.memory(name).load(Path(path))
        self.static.changed(name)

    def attach(self, graph: Graph, name: str | None = None) -> None:
        """Add a graph that somebody else keeps (a static store) to the default or a named graph."""
        self.static.attach(graph, DEFAULT_GRAPH if name is None else self._name(name))

    def add(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Add triples to a static graph; queries see them from now on."""
        name = DEFAULT_GRAPH if graph is None else self._name(graph)
        self.static.memory(name).add((Term(s), Term(p), Term(o)) for s, p, o in triples)
        self.static.changed(name)

    def remove(self, triples: Iterable[Sequence[str]], graph: str | None = None) -> None:
        """Remove triples that `add` or `load` put into a static graph."""
        name = DEFAULT_GRAPH if graph is None else self._name(graph)
        self.static.memory(name).remove((Term(s), Term(p), Term(o)) for s, p, o in triples)
        self.static.changed(name)

    def _refresh(self, graph: Term) -> None:
        # The terms of static data are kept for ever.
        self.dictionary.now = None
        for plan in self._plans:
            plan.refresh(graph)
        self.dictionary.now = self.time
        self._emit()

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a query; it sees what arrives from now on.

        Args:
            text: CQELS-QL.
            callback: is called with each `Emission`; without one they wait in the result.
            name: what to call it; a new name where it is ``None``.
            semantics: what it emits.
            into: for CONSTRUCT: the stream that its triples are pushed to, as one element for each
                emission.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: it cannot be run.
            UnknownStreamError, UnknownGraphError: by setting, it names one that does not exist.
            LimitError: there are as many queries as allowed.
        """
        self._check_open()
        query = parse(text, self._base)
        if len(self.queries) >= self.limits.queries:
            raise LimitError(f"there are {len(self.queries)} queries already")
        if name is None:
            name = next(n for n in map(str, self._numbers) if n not in self.queries)
        elif name in self.queries:
            raise LimitError(f"there is a query {name!r} already")
        for clause in query.windows:
            self.stream(clause.stream)
        self._check_graphs(query)
        registered = RegisteredQuery(
            name, query, callback, Results(self.limits.backlog), self._close_query
        )
        if into is not None:
            self._feed(registered, self._name(into))
        policy = semantics or self.semantics
        self.dictionary.now = None
        try:
            if not self._join_plan(registered, policy):
                self._new_plan(registered, query, policy, frozenset())
        finally:
            self.dictionary.now = self.time
        self.queries[name] = registered
        return registered

    def _check_graphs(self, query: ContinuousQuery) -> None:
        if not self._require_graphs:
            return
        for graph in (*query.query.dataset.named, *query.query.dataset.default):
            if graph not in self.static.names:
                raise UnknownGraphError(f"no static graph {graph} is loaded")

    def _feed(self, registered: RegisteredQuery, target: Term) -> None:
        query = registered.query
        if query.query.form != "CONSTRUCT":
            raise UnsupportedContinuousQueryError("only CONSTRUCT can feed a stream")
        reached = {target}
        grown = True
        while grown:
            grown = False
            for other in self.queries.values():
                sink = self._feeds.get(other.name)
                reads = {clause.stream for clause in other.query.windows}
                if sink is not None and reads & reached and sink not in reached:
                    reached.add(sink)
                    grown = True
        if any(clause.stream in reached for clause in query.windows):
            raise UnsupportedContinuousQueryError(f"the query would feed itself through {target}")
        self.stream(target)
        self._feeds[registered.name] = target

    def _join_plan(self, registered: RegisteredQuery, policy: Semantics) -> bool:
        """Let a query share the plan of others that differ in constants only."""
        template = template_of(registered.query) if self._share else None
        if template is None or registered.name in self._feeds:
            return False
        known = self._templates.setdefault((template.key, policy), [])
        for first, numbers, plan in known:
            different = differing(first, template)
            if numbers and set(different) <= set(numbers) and _unused(plan):
                self._add_instance(registered, plan, template, numbers)
                return True
        for first, numbers, plan in known:
            different = differing(first, template)
            if not numbers and different and _unused(plan):
                query, lifted = common_query(registered.query, different)
                shared = self._new_plan(None, query, policy, lifted)
                known.append((template, different, shared))
                self._add_instance(registered, shared, template, different)
                return True
        plan = self._new_plan(registered, registered.query, policy, frozenset())
        known.append((template, (), plan))
        return True

    def _new_plan(
        self,
        owner: RegisteredQuery | None,
        query: ContinuousQuery,
        policy: Semantics,
        lifted: frozenset[Any],
    ) -> Plan:
        delivery = Delivery(policy, self._awake.append, self._phase)
        dataset = query.query.dataset
        plan = Plan(
            query,
            self,
            Dataset(self.static, dataset.default, dataset.named),
            self.dictionary,
            self._environment,
            policy,
            delivery,
            lifted,
        )
        self._owners[plan] = {}
        if owner is not None:
            self._own(owner, plan, 0)
        plan.start()
        self._plans.append(plan)
        self._plan_of[id(delivery)] = plan
        if plan.holding:
            self._holding.append(plan)
        if plan.flushes_early:
            self._early.append(plan)
        if not delivery.silent:
            self._repeating.append(delivery)
        self._until_housekeeping = 1
        return plan

    def _own(self, owner: RegisteredQuery, plan: Plan, number: int) -> None:
        owner.plan = plan
        owner.number = number
        owner.maker = RowMaker(owner.query.query, plan.schema, self.dictionary)
        self._owners[plan][number] = owner

    def _add_instance(
        self, owner: RegisteredQuery, plan: Plan, template: Template, numbers: tuple[int, ...]
    ) -> None:
        # Any integer tells instances apart; it never meets a term.
        number = next(self._order) + 1
        constants = {lifted_variable(n): template.constants[n] for n in numbers}
        plan.add_instance(Instance(number, constants))
        self._own(owner, plan, number)

    def _close_query(self, registered: RegisteredQuery) -> None:
        if self.queries.pop(registered.name, None) is None:
            return
        self._detach(registered)
        if registered.state == "running":
            registered.state = "closed"

    def _detach(self, registered: RegisteredQuery) -> None:
        plan = registered.plan
        self._feeds.pop(registered.name, None)
        if plan is None:
            return
        owners = self._owners[plan]
        owners.pop(registered.number, None)
        registered.plan = None
        if owners:
            plan.drop_instance(registered.number)
            return
        plan.stop()
        for plans in (self._plans, self._holding, self._early):
            if plan in plans:
                plans.remove(plan)
        del self._owners[plan], self._plan_of[id(plan.delivery)]
        for deliveries in (self._awake, self._repeating):
            if plan.delivery in deliveries:
                deliveries.remove(plan.delivery)
        for known in self._templates.values():
            known[:] = [entry for entry in known if entry[2] is not plan]
        for window, _ in plan.leaves.subscriptions:
            if not window.consumers:
                self._drop_window(window)

    def query(self, name: str) -> RegisteredQuery:
        """The query of this name.

        Raises:
            UnknownQueryError: there is none.
        """
        if name not in self.queries:
            raise UnknownQueryError(f"there is no query {name!r}")
        return self.queries[name]

    def close(self) -> None:
        """Stop all queries."""
        for registered in tuple(self.queries.values()):
            registered.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed")

    # ----------------------------------------------------------------------------- windows

    def window_input(
        self, clause: WindowClause, key: PatternKey, taken: Sequence[WindowInput]
    ) -> WindowInput:
        """An input for these patterns, shared with other queries as long as nothing has come."""
        share = self._shared.setdefault((clause.stream, clause.window, key), [])
        for window in share:
            if not window.used and window not in taken:
                return window
        window = WindowInput(clause.window, key, next(self._order))
        share.append(window)
        self.stream(clause.stream).listen(window)
        if window.keeps_log and not window.by_count:
            self._timed.append((window.log, window.width, window))
            if window.slides:
                self._sliding.append(window)
        return window

    def _drop_window(self, window: WindowInput) -> None:
        for stream in self.streams.values():
            if window in stream.inputs:
                stream.leave(window)
        self._timed = [each for each in self._timed if each[2] is not window]
        for windows in (self._sliding, *self._shared.values()):
            if window in windows:
                windows.remove(window)

    # ----------------------------------------------------------------------------- streams

    def _name(self, text: str) -> Term:
        return Term(text) if text.startswith("<") else Term(f"<{self.resolve(text)}>")

    def resolve(self, iri: str) -> str:
        """An IRI, made absolute as in queries."""
        return iri if is_absolute(iri) else resolve(self._base, iri)

    def stream(self, name: str) -> Stream:
        """The stream of this IRI, made where it is new and that is allowed.

        Raises:
            UnknownStreamError: there is none, and streams are not made on first use.
        """
        term = self._name(name)
        found = self.streams.get(term)
        if found is None:
            if not self._create_streams:
                raise UnknownStreamError(f"there is no stream {term}")
            found = self.create_stream(term)
        return found

    def create_stream(self, name: str) -> Stream:
        """Make a stream, or find the one of this IRI."""
        term = self._name(name)
        return self.streams.setdefault(term, Stream(term))

    def push(self, stream: str, element: Sequence[Any], timestamp: int | datetime) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.

        Raises:
            ElementError: a term that is none.
            TimestampError: no instant.
            UnknownStreamError: see `stream`.
        """
        self._check_open()
        found = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        self.dictionary.now = at if self.time is None or at > self.time else self.time
        encode = self.encode
        if element and isinstance(element[0], str):
            s, p, o = element
            triples = [(encode(s), encode(p), encode(o))]
        else:
            triples = [(encode(s), encode(p), encode(o)) for s, p, o in element]
        self.arrive(found, triples, at)

    def record_feed(
        self, stream: str, predicates: Sequence[str], subjects: str | None = None
    ) -> RecordFeed:
        """A way in for elements with one subject and one value for each of these predicates.

        Args:
            stream: the IRI of the stream.
            predicates: IRIs.
            subjects: what the IRIs of subjects begin with, where they end in a number.
        """
        terms = [self._name(each) for each in predicates]
        return RecordFeed(self, self.stream(stream), terms, subjects)

    @property
    def reorders(self) -> bool:
        """Whether elements wait for late ones."""
        return bool(self._lateness)

    def encode(self, term: str) -> int:
        """The integer of a term that comes with a stream.

        Raises:
            ElementError: it is no term.
        """
        found = self.dictionary.known(term)
        if found is None:
            if not (term[:1] in ("<", '"') or term[:2] == "_:"):
                raise ElementError(f"not a term: {term!r}")
            found = self.dictionary.encode(Term(term))
        return found

    def arrive(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        """An encoded element arrives."""
        if self._lateness:
            if self.time is not None and at < self.time:
                self.dropped += 1
                return
            heapq.heappush(self._late, (at, next(self._order), stream.name, triples))
            self._latest = at if self._latest is None else max(self._latest, at)
            self._release(self._latest - self._lateness)
            return
        if self.time is not None and at < self.time:
            self.dropped += 1
            return
        self._tick(stream, triples, at)

    def _release(self, until: int) -> None:
        while self._late and self._late[0][0] <= until:
            at, _, name, triples = heapq.heappop(self._late)
            self._tick(self.streams[name], triples, at)

    def advance(self, timestamp: int | datetime) -> None:
        """Time passes without an arrival: elements that waited are processed, windows expire.

        What thereby comes into a result or goes from it is emitted by policies of difference.
        """
        self._check_open()
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        self._release(at - self._lateness if self._lateness else at)
        if self.time is not None and at <= self.time:
            return
        self._expire(at)
        self._admit(at)
        self._emit()

    def finish(self) -> None:
        """No more elements will come: process those that wait for late ones."""
        if self._latest is not None:
            self._release(self._latest)

    # -------------------------------------------------------------------------------- tick

    def arrive_record(
        self, stream: Stream, shape: Any, subject: int, objects: Sequence[int], at: int
    ) -> None:
        """An encoded record arrives, whose takers are known (see `Stream.shape`)."""
        if self.time is not None and at < self.time:
            self.dropped += 1
            return
        self._begin(at)
        stream.record(at, len(objects))
        for entry, make in shape:
            entry.arrive_star(at, subject, make(subject, objects))
        self._end()

    def _tick(self, stream: Stream, triples: list[EncodedTriple], at: int) -> None:
        if stream.counting:
            stream.expire_counted(len(triples))
        self._begin(at)
        stream.deliver(at, triples)
        self._end()

    def _begin(self, at: int) -> None:
        """What an arrival pushes out of the windows goes; then what waited for its time comes."""
        self.arrivals += 1
        if at != self.time:
            self._expire(at)
        for plan in self._early:
            plan.flush()
        self._phase.inserting = True
        for window in self._sliding:
            window.admit(at)

    def _end(self) -> None:
        """What the arrival derived is sent and emitted."""
        for plan in self._holding:
            plan.flush()
        self._phase.inserting = False
        for delivery in self._repeating:
            delivery.rouse()
        if self._awake:
            self._emit()
        self._until_housekeeping -= 1
        if not self._until_housekeeping:
            self._keep_house()

    def _expire(self, at: int) -> None:
        self.time = at
        self.dictionary.now = at
        for log, width, window in self._timed:
            if log and log[0][0] < at - width:
                window.expire(at)

    def _admit(self, at: int) -> None:
        for plan in self._early:
            plan.flush()
        self._phase.inserting = True
        for window in self._sliding:
            window.admit(at)
        for plan in self._holding:
            plan.flush()
        self._phase.inserting = False

    def _emit(self) -> None:
        awake = self._awake[:]
        self._awake.clear()
        for delivery in awake:
            plan = self._plan_of[id(delivery)]
            solutions, removed = delivery.take()
            if not solutions and delivery.silent:
                continue
            solutions = plan.ordered(solutions)
            owners = self._owners[plan]
            if not plan.lifted:
                for owner in owners.values():
                    self._emit_to(owner, solutions, removed)
                continue
            column = plan.schema.index(INSTANCE)
            split: dict[int, list[tuple[Solution, int]]] = {}
            for solution in solutions:
                split.setdefault(solution[0][column], []).append(solution)
            for number, own in split.items():
                if number in owners:
                    self._emit_to(owners[number], own, removed)
        fed, self._fed = self._fed, []
        for name, triples in fed:
            assert self.time is not None
            self._tick(self.streams[name], triples, self.time)

    def _emit_to(
        self, owner: RegisteredQuery, solutions: Sequence[tuple[Solution, int]], removed: bool
    ) -> None:
        assert owner.maker is not None
        rows = owner.maker.rows(solutions)
        owner.emitted += len(rows)
        owner.take(Emission(self.arrivals, self.time or 0, rows, removed))
        target = self._feeds.get(owner.name)
        if target is not None and rows:
            encode = self.dictionary.encode
            triples = [(encode(s), encode(p), encode(o)) for s, p, o in rows]  # type: ignore[arg-type]
            self._fed.append((target, triples))

    # ------------------------------------------------------------------------- housekeeping

    def _keep_house(self) -> None:
        # Often at first, when windows fill and routes settle; then rarely.
        self._until_housekeeping = min(_HOUSEKEEPING, self.arrivals + 1)
        if self.arrivals >= self._next_adaptation:
            self._next_adaptation = self.arrivals + min(self.arrivals, _ADAPTATION)
            for plan in self._plans:
                plan.adapt()
        for plan in tuple(self._plans):
            held = sum(window.held for window, _ in plan.leaves.subscriptions)
            if held > self.limits.window_rows:
                self._stop(plan, held)
        if self.dictionary.passing > 2 * self._swept + 10_000:
            self.sweep()

    def _stop(self, plan: Plan, held: int) -> None:
        error = WindowLimitError(
            f"the windows of the query hold {held} entries; {self.limits.window_rows} are allowed"
        )
        for owner in tuple(self._owners[plan].values()):
            owner.state = "stopped"
            owner.error = error
            owner.results.fail(error)
            self._detach(owner)

    def sweep(self) -> int:
        """Forget terms that no window holds any more; returns how many."""
        horizon = self._horizon()
        dropped = 0 if horizon is None else self.dictionary.forget_before(horizon)
        self._swept = self.dictionary.passing
        return dropped

    def _horizon(self) -> int | None:
        """The time of the oldest element that something may hold; ``None``: everything is held."""
        if self.time is None:
            return None
        oldest = [self.time]
        for stream in self.streams.values():
            for window in stream.inputs:
                if not window.keeps_log:
                    return None
                if not window.by_count and window.oldest is not None:
                    oldest.append(window.oldest)
            counted = stream.oldest_counted()
            if counted is not None:
                oldest.append(counted)
        if self._late:
            oldest.append(self._late[0][0])
        return min(oldest)


def _unused(plan: Plan) -> bool:
    return not any(window.used for window, _ in plan.leaves.subscriptions)


def _date_time(instant: datetime) -> DateTime:
    text = f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}".rstrip("0").rstrip(".")
    value = value_of(Term(f'"{text}Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'))
    assert isinstance(value, DateTime)
    return value
