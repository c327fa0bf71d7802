"""Deliver elements to both engines, and those that queries make to the other one.

Elements are delivered in the order of time; before each, C-SPARQL answers for what came before.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from annotations.terms import Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.periodic_query import ExecutedQuery, Executor, PeriodicQuery
from tpf_server.continuous.engine.elements.elements import graph_of
from tpf_server.continuous.engine.errors import ContinuousError, ElementError
from tpf_server.continuous.engine.plans.registered_query import RegisteredQuery
from tpf_server.continuous.engine.records.record_bodies import RecordBody
from tpf_server.continuous.engine.records.records import RecordFeed
from tpf_server.continuous.engine.reorder_buffer import ReorderBuffer
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

TripleTexts = Sequence[Sequence[str]]
Running: TypeAlias = RegisteredQuery | PeriodicQuery | ExecutedQuery
"""A query in whatever runs it."""
_FEEDS: Final = 32
"""So many feeds of records are remembered."""
_COUNTED: Final = ("elements", "triples", "dropped", "late")


class SharedStreams:
    """Deliver elements to both engines, in one thread.

    The engines share their encoding of elements. `lateness`, in milliseconds, puts elements in
    order.
    """

    def __init__(
        self,
        engine: Engine,
        periodic: CsparqlEngine,
        lateness: int,
        executors: Collection[Executor] = (),
    ) -> None:
        if periodic.dictionary is not engine.dictionary:
            raise ValueError("the engines have terms of their own: make one beside the other")
        self._engine = engine
        self._periodic = periodic
        self._executors = executors
        self._newest: int | None = None
        self._counts: defaultdict[Term, Counter[str]] = defaultdict(Counter)
        self._feeds: dict[tuple[Term, tuple[Term, ...]], RecordFeed] = {}
        self._waiting: ReorderBuffer[tuple[Term, TripleTexts]] = ReorderBuffer(lateness)

    @property
    def present(self) -> int | None:
        """The time, if known: then an element moves no stream but its own."""
        return self._engine.present

    @present.setter
    def present(self, present: int) -> None:
        self._engine.present = self._periodic.present = present

    def create(self, name: str, predicates: Collection[str] | None = None) -> bool:
        """Make a stream; true if it is new."""
        before = len(self._engine.streams)
        made = self._engine.create_stream(name).name
        new = len(self._engine.streams) > before
        if predicates is not None:
            try:
                self._periodic.declare(made, predicates)
            except ContinuousError:
                if new:
                    self._engine.delete_stream(made)
                raise
        return new

    def declared(self) -> dict[Term, list[str]]:
        """Return the declared predicates of streams."""
        result = self._periodic.learning.declared
        return {name: sorted(result[name]) for name in self._engine.streams if name in result}

    def delete(self, name: str) -> None:
        """Delete a stream, and the elements that wait for it."""
        term = self._engine.name(name)
        self._engine.delete_stream(term)
        self._counts.pop(term, None)
        self._feeds = {key: feed for key, feed in self._feeds.items() if key[0] != term}
        self._periodic.learning.declared.pop(term, None)

    def listed(self) -> list[dict[str, Any]]:
        """List the streams with their counts."""
        result: list[dict[str, Any]] = [
            {"stream": name[1:-1], **{each: self._counts[name][each] for each in _COUNTED}}
            for name in self._engine.streams
        ]
        declared = self.declared()
        for name, each in zip(self._engine.streams, result, strict=True):
            if name in declared:
                each["predicates"] = [predicate[1:-1] for predicate in declared[name]]
        return result

    def arrive(self, stream: Term, triples: TripleTexts, at: int) -> None:
        """Take an element from outside."""
        if not self._waiting.lateness:
            self._deliver(stream, triples, at)
            return
        for time, (name, element) in self._waiting.add(stream, at, (stream, triples)):
            self._deliver(name, element, time)

    def _deliver(self, stream: Term, triples: TripleTexts, at: int) -> None:
        if stream not in self._engine.streams:
            return  # it was deleted while this element waited
        count = self._count(stream, triples)
        self._to_executors(stream, triples, at)
        # Where nobody asks, nothing is to be encoded.
        if not self._engine.queries and not self._periodic.queries:
            return
        dropped, late = self._engine.dropped, self._periodic.late
        encoded = self._engine.encoded(triples)
        # First what was before this element, which C-SPARQL makes streams of.
        arriving = self._engine.arriving
        arriving.append(encoded)
        try:
            self._to_periodic(stream, encoded, at, graph_of(triples))
        finally:
            arriving.pop()
        self._to_engine(stream, encoded, at)
        count["dropped"] += self._engine.dropped - dropped
        count["late"] += self._periodic.late - late

    def takes_columns(self, stream: Term) -> bool:
        """True where records may stay in columns: only CQELS-QL reads the stream, in order."""
        return (
            not self._waiting.lateness
            and stream in self._engine.streams
            and bool(self._engine.queries)
            and not self._periodic.looks_at(stream)
            and not any(each.reads(stream) for each in self._executors)
        )

    def arrive_records(self, stream: Term, body: RecordBody) -> bool:
        """Take records as columns; false where they must come one by one, and none was taken."""
        if body.columns is None or not self.takes_columns(stream):
            return False
        dropped = self._engine.dropped
        try:
            newest = self._feed(stream, body.predicates).push_batch(*body.columns)
        except ElementError:
            return False
        count = self._counts[stream]
        count["elements"] += body.count
        count["triples"] += body.count * len(body.predicates)
        count["dropped"] += self._engine.dropped - dropped
        if newest is not None:
            self._newest = newest if self._newest is None else max(self._newest, newest)
            if self._periodic.queries:
                self._periodic.pass_by(stream, newest)
        return True

    def _feed(self, stream: Term, predicates: tuple[Term, ...]) -> RecordFeed:
        feed = self._feeds.pop((stream, predicates), None)
        if feed is None:
            # An element by itself would not reach an engine that has no queries either.
            feed = self._engine.record_feed(stream, predicates, asked=True)
            if len(self._feeds) >= _FEEDS:
                del self._feeds[next(iter(self._feeds))]
        self._feeds[stream, predicates] = feed
        return feed

    def made(self, maker: Running, triples: TripleTexts, at: int) -> None:
        """Deliver an element that a query made; its own engine has it already.

        One that an executor makes for a past instant gets the current one, or nobody would see it.
        """
        stream = maker.stream
        assert stream is not None
        encoded = self._engine.encoded(triples)
        if not isinstance(maker, PeriodicQuery):
            self._periodic.learning.check(stream, (triple[1] for triple in triples))
            if isinstance(maker, ExecutedQuery):
                passed = (self._newest, self._engine.time, self._periodic.time)
                at = max([at, *(each + 1 for each in passed if each is not None)])
            self._to_periodic(stream, encoded, at)
        if isinstance(maker, PeriodicQuery | ExecutedQuery):
            self._to_engine(stream, encoded, at)
        self._to_executors(stream, triples, at)
        self._count(stream, triples)

    def _to_executors(self, stream: Term, triples: TripleTexts, at: int) -> None:
        if self._newest is None or at > self._newest:
            self._newest = at
        for each in self._executors:
            each.arrive(stream, triples, at)

    def end_batch(self) -> None:
        """Let executors process the elements that came."""
        if self._newest is not None:
            present = self.present
            newest = self._newest if present is None else min(self._newest, present)
            for each in self._executors:
                each.advance(newest - 1 - self._waiting.lateness)

    def _to_engine(self, stream: Term, triples: list[EncodedTriple], at: int) -> None:
        if self._engine.queries:
            self._engine.arrive(self._engine.stream(stream), triples, at)

    def _to_periodic(
        self, stream: Term, triples: list[EncodedTriple], at: int, graph: Term | None = None
    ) -> None:
        if self._periodic.queries:
            self._periodic.arrive(stream, triples, at, graph)

    def _count(self, stream: Term, triples: TripleTexts) -> Counter[str]:
        count = self._counts[stream]
        count["elements"] += 1
        count["triples"] += len(triples)
        return count

    def advance(self, until: int) -> None:
        """Move time: all elements up to an instant have come."""
        for at, (stream, triples) in self._waiting.until(until):
            self._deliver(stream, triples, at)
        # What C-SPARQL answers for earlier instants, CQELS-QL must see before `until`; and what
        # that makes of it then, C-SPARQL must see before it answers for `until`.
        if self._periodic.queries:
            self._periodic.advance(until - 1)
        if self._engine.queries:
            self._engine.advance(until)
        if self._periodic.queries:
            self._periodic.advance(until)
        for each in self._executors:
            each.advance(until)
