"""Deliver elements to the engine of a service and to executors beside it, and count them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.elements.elements import Element, graph_of
from tpf_server.continuous.runtime.errors import ContinuousError, ElementError
from tpf_server.continuous.runtime.instants.periodic_query import (
    ExecutedQuery,
    Executor,
    PeriodicQuery,
)
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.records.record_bodies import RecordBody

TripleTexts = Sequence[Sequence[str]]
Running: TypeAlias = RegisteredQuery | PeriodicQuery | ExecutedQuery
"""A query in whatever runs it."""
_COUNTED: Final = ("elements", "triples", "dropped", "late")


class SharedStreams:
    """Deliver elements to an engine and to executors beside it, in one thread.

    Args:
        record: is called with each element that an executor made, before it arrives.
    """

    def __init__(
        self,
        engine: Engine,
        executors: Collection[Executor] = (),
        record: Callable[[Term, Element], None] = lambda _stream, _element: None,
    ) -> None:
        self._engine = engine
        self._record = record
        self._executors = executors
        self._newest: int | None = None
        self._counts: defaultdict[Term, Counter[str]] = defaultdict(Counter)

    def create(self, name: str, predicates: Collection[str] | None = None) -> bool:
        """Make a stream; true if it is new."""
        before = len(self._engine.streams)
        made = self._engine.create_stream(name).name
        new = len(self._engine.streams) > before
        if predicates is not None:
            try:
                self._engine.declare(made, predicates)
            except ContinuousError:
                if new:
                    self._engine.delete_stream(made)
                raise
        return new

    def declared(self) -> dict[Term, list[str]]:
        result = self._engine.instants.declarations.declared
        return {name: sorted(result[name]) for name in self._engine.streams if name in result}

    def delete(self, name: str) -> None:
        term = self._engine.name(name)
        self._engine.delete_stream(term)
        self._counts.pop(term, None)

    def listed(self) -> list[dict[str, Any]]:
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
        engine = self._engine
        count = self._count(stream, triples)
        self._to_executors(stream, triples, at)
        # Where nobody asks, nothing is to be encoded; but who asks soon sees what waits.
        if engine.queries or engine.reorders:
            dropped, late = engine.dropped, engine.late
            encoded = engine.encoded(triples)
            engine.arrive(engine.stream(stream), encoded, at, graph_of(triples))
            count["dropped"] += engine.dropped - dropped
            count["late"] += engine.late - late

    def takes_columns(self, stream: Term) -> bool:
        """True where records may stay in columns: only CQELS-QL reads the stream, in order."""
        engine = self._engine
        return (
            stream in engine.streams
            and bool(engine.queries)
            and not engine.wants_elements(engine.stream(stream))
            and not any(each.reads(stream) for each in self._executors)
        )

    def arrive_records(self, stream: Term, body: RecordBody) -> bool:
        """Take records as columns; false where they must come one by one, and none was taken."""
        if body.columns is None or not self.takes_columns(stream):
            return False
        dropped = self._engine.dropped
        # An element by itself would not reach an engine that has no queries either.
        feed = self._engine.record_feed(stream, body.predicates, asked=True)
        try:
            newest = feed.push_batch(*body.columns)
        except ElementError:
            return False
        count = self._counts[stream]
        count["elements"] += body.count
        count["triples"] += body.count * len(body.predicates)
        count["dropped"] += self._engine.dropped - dropped
        if newest is not None:
            self._newest = newest if self._newest is None else max(self._newest, newest)
        return True

    def made(self, maker: Running, triples: TripleTexts, at: int) -> None:
        """Deliver an element that a query made; its engine has it already.

        One that an executor makes for a past instant gets the current one, or nobody would see it.
        """
        stream = maker.stream
        assert stream is not None
        engine = self._engine
        if not isinstance(maker, PeriodicQuery):
            engine.instants.declarations.check(stream, (triple[1] for triple in triples))
        if isinstance(maker, ExecutedQuery):
            passed = (self._newest, engine.time)
            at = max([at, *(each + 1 for each in passed if each is not None)])
            self._record(
                stream, Element(at, tuple((Term(s), Term(p), Term(o)) for s, p, o in triples), 0)
            )
            engine.arrive(engine.stream(stream), engine.encoded(triples), at)
        self._to_executors(stream, triples, at)
        self._count(stream, triples)

    def _to_executors(self, stream: Term, triples: TripleTexts, at: int) -> None:
        if self._newest is None or at > self._newest:
            self._newest = at
        for each in self._executors:
            each.arrive(stream, triples, at)

    def end_batch(self) -> None:
        """Let executors process the elements that came."""
        for each in self._executors:
            each.advance(None, self._engine.present)

    def _count(self, stream: Term, triples: TripleTexts) -> Counter[str]:
        count = self._counts[stream]
        count["elements"] += 1
        count["triples"] += len(triples)
        return count

    def advance(self, until: int) -> None:
        """Move time: all elements up to an instant have come, but for late ones."""
        self._engine.advance(until)
        for each in self._executors:
            each.advance(until, self._engine.present)
