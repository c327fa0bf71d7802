"""Decide which queries are looked at next, and which ones wait for an element."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from annotations.terms import Term
from tpf_server.continuous.runtime.clock import NEVER, StreamClocks
from tpf_server.continuous.runtime.due_instants import DueInstants
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.instants.csparql_query import Trigger
from tpf_server.continuous.runtime.instants.periodic_query import PeriodicQuery

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT", bound=Hashable)


class Multimap(Generic[KeyT, ItemT]):
    """Items by keys, in order; a key without items is gone."""

    def __init__(self) -> None:
        self._items: dict[KeyT, dict[ItemT, None]] = {}

    def add(self, keys: Iterable[KeyT], item: ItemT) -> None:
        """Put an item under each of these keys."""
        for key in keys:
            self._items.setdefault(key, {})[item] = None

    def discard(self, keys: Iterable[KeyT], item: ItemT) -> None:
        """Take an item from each of these keys, where it is."""
        for key in keys:
            items = self._items.get(key, {})
            items.pop(item, None)
            if not items:
                self._items.pop(key, None)

    def of(self, key: KeyT) -> Collection[ItemT]:
        return self._items.get(key, {}).keys()

    def __contains__(self, key: KeyT) -> bool:
        return key in self._items

    def __bool__(self) -> bool:
        return bool(self._items)

    def clear(self) -> None:
        self._items.clear()


# Which queries make the streams that others read, and so in which order they are evaluated.


class Streams(NamedTuple):
    """Streams that reach a query: all `seen`, and those `awaited` from outside."""

    seen: frozenset[Term]
    awaited: frozenset[Term]


class Feeding:
    """Streams that are made from streams: by queries, and elsewhere (`links`)."""

    def __init__(self) -> None:
        self.links: dict[str, tuple[Term, frozenset[Term]]] = {}
        self.makers: Multimap[Term, PeriodicQuery] = Multimap()
        self.readers: Multimap[Term, PeriodicQuery] = Multimap()

    def add(self, query: PeriodicQuery) -> None:
        self.makers.add(_made(query), query)
        self.readers.add(query.reads, query)

    def discard(self, query: PeriodicQuery) -> None:
        self.makers.discard(_made(query), query)
        self.readers.discard(query.reads, query)

    def reaches(self, query: PeriodicQuery) -> bool:
        """True where something reads what a query makes."""
        links = (reads for _, reads in self.links.values())
        stream = query.stream
        return stream is not None and (
            stream in self.readers or any(stream in reads for reads in links)
        )

    def ranks(self, queries: Iterable[PeriodicQuery]) -> dict[PeriodicQuery, int]:
        """Rank these queries, and those whose triples they read."""
        makers = self.makers
        ranks: dict[PeriodicQuery, int] = {}

        def rank(query: PeriodicQuery) -> int:
            if query not in ranks:
                seen = self.streams_from(query.reads).seen
                if query.stream in seen:
                    raise UnsupportedContinuousQueryError(
                        f"{query.name} would feed itself through its streams"
                    )
                below = [rank(each) for stream in seen for each in makers.of(stream)]
                ranks[query] = 1 + max(below, default=0)
            return ranks[query]

        for query in queries:
            rank(query)
            for stream in query.reads:
                for maker in makers.of(stream):
                    if maker.query.query.form in ("SELECT", "ASK"):
                        raise UnsupportedContinuousQueryError(
                            f"{query.name} reads {stream}, whose elements are no triples: "
                            f"{maker.name} is a {maker.query.query.form}"
                        )
        return ranks

    def streams_from(self, reads: Iterable[Term]) -> Streams:
        seen: set[Term] = set()
        awaited: set[Term] = set()
        asked = list(reads)
        while asked:
            stream = asked.pop()
            if stream in seen:
                continue
            seen.add(stream)
            made_from = [each.reads for each in self.makers.of(stream)]
            made_from += [reads for made, reads in self.links.values() if made == stream]
            if not made_from:
                awaited.add(stream)
            for each in made_from:
                asked += each
        return Streams(frozenset(seen), frozenset(awaited))


def _made(registered: PeriodicQuery) -> tuple[Term, ...]:
    return () if registered.stream is None else (registered.stream,)


_Due = tuple[int, Trigger]


class _Timeline:
    """Triggers over the same streams, and so with the same progress.

    Attributes:
        done: until when due instants were evaluated.
        due: instants beyond the progress.
    """

    def __init__(self, streams: Streams, passed: int) -> None:
        self.streams = streams
        self.passed = self.done = passed
        self.triggers = 0
        self.due: DueInstants[Trigger] = DueInstants()


class Timetable:
    """The next instants of triggers, by time, then by rank."""

    def __init__(self, clocks: StreamClocks, queries: Mapping[str, PeriodicQuery]) -> None:
        self._clocks = clocks
        self._queries = queries
        self._feeding = Feeding()
        self._timelines: dict[Streams, _Timeline] = {}
        self._moved_by: Multimap[Term, _Timeline] = Multimap()
        self._of: dict[Trigger, _Timeline] = {}
        self._ready: DueInstants[Trigger] = DueInstants()
        self._reached: list[_Timeline] = []
        self._gives = False
        self._idle: Multimap[Term | None, Trigger] = Multimap()

    # ----------------------------------------------------------------------------- queries

    def add(self, registered: PeriodicQuery) -> None:
        trigger, rests = registered.trigger, registered.trigger not in self._of
        self._feeding.add(registered)
        try:
            if self._feeding.reaches(registered):
                self._arrange([*self._queries.values(), registered])
            else:
                self._rank([registered])
                self._join(trigger)
        except UnsupportedContinuousQueryError:
            self._feeding.discard(registered)
            raise
        if trigger.timed and rests:
            self.rest(trigger)

    def remove(self, registered: PeriodicQuery) -> None:
        if len(registered.trigger.queries) == 1:
            self.end(registered.trigger)
        self._feeding.discard(registered)
        if self._feeding.reaches(registered):
            self._arrange(self._queries.values())

    def end(self, trigger: Trigger) -> None:
        self._wake(trigger)
        self._give_up(trigger)
        if trigger in self._of:
            timeline = self._of.pop(trigger)
            timeline.triggers -= 1
            if not timeline.triggers:
                del self._timelines[timeline.streams]
                self._moved_by.discard(timeline.streams.seen, timeline)

    def link(self, name: str, made: Term, reads: Iterable[Term]) -> None:
        """Declare that others make a stream from streams, for order; `name` is for `unlink`.

        Raises:
            UnsupportedContinuousQueryError: a query would feed itself.
        """
        reads = tuple(reads)
        if made in self._feeding.streams_from(reads).seen:
            raise UnsupportedContinuousQueryError(f"{name} would feed itself through its streams")
        self._feeding.links[name] = made, frozenset(reads)
        try:
            self._arrange(self._queries.values())
        except UnsupportedContinuousQueryError:
            self.unlink(name)
            raise

    def unlink(self, name: str) -> None:
        if self._feeding.links.pop(name, None) is not None:
            self._arrange(self._queries.values())

    @property
    def fed(self) -> bool:
        """True where others make streams, and none of the queries does."""
        return bool(self._feeding.links) and not self._feeding.makers

    def _arrange(self, queries: Iterable[PeriodicQuery]) -> None:
        queries = tuple(queries)
        planned = dict(self._ready.next)
        for timeline in self._timelines.values():
            planned.update(timeline.due.next)
        self._rank(queries)
        self._timelines.clear()
        self._moved_by.clear()
        self._of.clear()
        self._ready.clear()
        for trigger in dict.fromkeys(each.trigger for each in queries):
            self._join(trigger)
            if trigger in planned:
                self.plan(trigger, planned[trigger])

    def _rank(self, queries: Iterable[PeriodicQuery]) -> None:
        for registered, rank in self._feeding.ranks(queries).items():
            registered.trigger.rank = rank

    def _join(self, trigger: Trigger) -> None:
        if not trigger.timed or trigger in self._of:
            return
        streams = self._feeding.streams_from(trigger.reads)
        timeline = self._timelines.get(streams)
        if timeline is None:
            timeline = _Timeline(streams, self._clocks.passed(*streams))
            self._timelines[streams] = timeline
            self._moved_by.add(streams.seen, timeline)
        timeline.triggers += 1
        self._of[trigger] = timeline

    # ------------------------------------------------------------------------------ instants

    def begin(self, trigger: Trigger, at: int) -> None:
        """Wake a trigger at an instant, but after those that are done.

        So a late element does not bring back its time.
        """
        done, last = self._of[trigger].done, trigger.last
        first = trigger.due_first(max(at, done + 1))
        if first is not None and last is not None and first <= last:
            first = trigger.due_after(last)
        if first is not None:
            self._wake(trigger)
            self.plan(trigger, first)

    def look(self, trigger: Trigger) -> None:
        """Plan an instant that elements decided, if it is earlier."""
        at = trigger.wanted(self._of[trigger].done)
        if at is None:
            return
        planned = self._ready.next.get(trigger, self._of[trigger].due.next.get(trigger))
        if planned is None or at < planned:
            self._wake(trigger)
            self.plan(trigger, at)

    def plan(self, trigger: Trigger, at: int) -> None:
        timeline = self._of[trigger]
        due, other = timeline.due, self._ready
        if at <= timeline.passed:
            due, other = other, due
        other.give_up(trigger)
        due.plan(at, (trigger.rank, trigger.number), trigger)

    def rest(self, trigger: Trigger) -> None:
        self._give_up(trigger)
        self._idle.add((None, *trigger.reads), trigger)

    def _wake(self, trigger: Trigger) -> None:
        self._idle.discard((None, *trigger.reads), trigger)

    def _give_up(self, trigger: Trigger) -> None:
        if trigger in self._of:
            self._ready.give_up(trigger)
            self._of[trigger].due.give_up(trigger)

    def idle(self, stream: Term | None = None) -> tuple[Trigger, ...]:
        return tuple(self._idle.of(stream))

    # ---------------------------------------------------------------------------------- time

    def follows(self, stream: Term) -> bool:
        """True where the time of a stream moves a query."""
        return stream in self._moved_by

    def pass_on(self, stream: Term | None = None, told: int = NEVER) -> bool:
        """Progress of a stream, or of all, of which `told` says it; true where something is due."""
        moved = self._timelines.values() if stream is None else self._moved_by.of(stream)
        for timeline in moved:
            passed = self._clocks.passed(*timeline.streams, told)
            if passed > timeline.passed:
                self._reach(timeline, passed)
                self._reached.append(timeline)
        if not self._ready.next and not self._gives:
            self._settle()
        return bool(self._ready.next)

    def due(self, before: int | None = None) -> Iterator[_Due]:
        """Give due triggers; more may be planned meanwhile.

        While a query answers, elements made of it only release instants `before` them.
        """
        if self._gives and before is not None:
            yield from self._in_order(before - 1)
            return
        yield from self._in_order(-NEVER)
        self._settle()

    def _settle(self) -> None:
        for timeline in self._reached:
            timeline.done = max(timeline.done, timeline.passed)
        self._reached.clear()

    def due_until_end(self, end: int) -> Iterator[_Due]:
        """Give due triggers until each has seen the last instant."""
        timelines = tuple(self._timelines.values())
        passed = [each.passed for each in timelines]
        until = [each.due_at_end(end) for each in self._of]
        for timeline in timelines:
            self._reach(timeline, max(until))
        ended = []
        for at, trigger in self._in_order(-NEVER):
            if at > trigger.due_at_end(end):
                ended.append((at, trigger))
            else:
                yield at, trigger
        for timeline, before in zip(timelines, passed, strict=True):
            timeline.passed = before
        for at, trigger in ended:
            if trigger in self._of:
                self.plan(trigger, at)

    def _reach(self, timeline: _Timeline, passed: int) -> None:
        timeline.passed = passed
        due = timeline.due
        while (result := due.first(passed + 1)) is not None:
            due.drop()
            self.plan(result[1], result[0])

    def _in_order(self, until: int) -> Iterator[_Due]:
        ready, outer = self._ready, self._gives
        self._gives = True
        try:
            while (result := ready.first(until + 1)) is not None:
                at, trigger = result
                ready.drop()
                timeline = self._of[trigger]
                timeline.done = max(timeline.done, at - 1)
                yield at, trigger
        finally:
            self._gives = outer

    def __len__(self) -> int:
        planned = sum(len(each.due.heap) for each in self._timelines.values())
        return len(self._ready.heap) + planned + len(self._idle.of(None))
