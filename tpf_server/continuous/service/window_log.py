"""Keep the elements in windows on disk, so that a server that was killed continues.

The file of registrations has what came in and what went out, too: *steps* (the elements of a
request, and the time that had passed), emissions, and receipts of batches. All that a request did
is one transaction. It is durable before the request is acknowledged and before readers see
emissions. A server that starts evaluates the steps again, in order, and emits nothing of it. Steps
that have left the longest window over their stream are dropped.

Source: https://www.sqlite.org/wal.html
"""

import json
import math
import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.rspql.rspql_query import SlidingWindow
from tpf_server.continuous.runtime.clock import StreamPosition
from tpf_server.continuous.runtime.elements.elements import Element, graph_of, in_graph
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.instants.csparql_query import (
    LogicalWindow,
    PhysicalWindow,
    SteppedWindow,
)
from tpf_server.continuous.runtime.instants.periodic_query import ExecutedQuery, PeriodicQuery
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.records.record_bodies import RecordBody
from tpf_server.continuous.runtime.records.record_columns import milliseconds_of
from tpf_server.continuous.runtime.windows.continuous_query import ContinuousQuery
from tpf_server.continuous.runtime.windows.specification import Now, Range, Triples, Window
from tpf_server.continuous.service.hosting import HostedQuery
from tpf_server.continuous.service.result_log import (
    KeptBatch,
    KeptResults,
    Registration,
    Registrations,
)
from tpf_server.continuous.service.streams import Running

_RECEIPTS: Final = 10_000
_SECOND: Final = 1_000


Body: TypeAlias = Sequence[Element | ElementError] | RecordBody


class LoggedStep(NamedTuple):
    """Elements of a stream that came together, or records; without a stream, time that passed.

    Args:
        present: the present when they came, where the clock says it.
        advanced: the present when time was last advanced before.
        positions: before and after them; see `Engine.resume`.
    """

    number: int
    stream: Term | None
    present: int | None
    advanced: int | None
    positions: tuple[StreamPosition, StreamPosition] | None = None
    body: Sequence[Element] | bytes = ()


class _Extent(NamedTuple):
    number: int
    newest: int
    elements: int


class WindowLog:
    """A log of steps and emissions.

    Args:
        slack: milliseconds by which windows may be behind the newest element of their stream.
        spare: steps or emissions that are dropped together, at least.

    Attributes:
        advanced: the present when time was last advanced.
        pending: something was not written yet.
    """

    def __init__(self, registrations: Registrations, slack: int, spare: int = 100) -> None:
        self._registrations = registrations
        self._writing = registrations.writing
        self._spare = spare
        self._slack = slack + _SECOND
        self._steps: list[tuple[object, ...]] = []
        self._receipts: list[KeptBatch] = []
        self._ended: list[tuple[Registration, Running]] = []
        self._extents: defaultdict[Term, deque[_Extent]] = defaultdict(deque)
        self._since = 0
        self._begins: tuple[int | None] | None = None
        self._oldest: dict[str, int] = {}
        self.advanced: int | None = None
        self.number = 1
        self._passed: int | None = None

    @property
    def pending(self) -> bool:
        """True where something was not written, because it failed."""
        return bool(self._steps or self._receipts)

    # ------------------------------------------------------------------------- what is kept

    def steps(self, least: int) -> Iterator[LoggedStep]:
        """Read all steps; the number of the next one is at least that."""
        rows = self._registrations.connection.execute("SELECT * FROM steps ORDER BY number")
        for number, stream, newest, count, text, body in rows:
            present, advanced, *time = json.loads(text)
            self.number, self.advanced = number + 1, advanced
            if stream is None:
                self._passed = number
                yield LoggedStep(number, None, present, advanced)
                continue
            self._extents[Term(stream)].append(_Extent(number, newest, count))
            elements = body if isinstance(body, bytes) else _read(body)
            before, after = StreamPosition(*time[:4]), StreamPosition(*time[4:])
            yield LoggedStep(number, Term(stream), present, advanced, (before, after), elements)
        self.number = max(self.number, least)
        self._begins = (self.advanced,)

    def take_results(self) -> KeptResults:
        """Return the results of an earlier server."""
        results = self._registrations.take_results()
        self._oldest = {name: log.begin for name, log in results[0].items()}
        return results

    # -------------------------------------------------------------------------- what happens

    def came(
        self, engine: Engine, stream: Term, before: StreamPosition, body: Body, count: int
    ) -> None:
        """Add a step; at least `count` of its elements are in windows that count them."""
        if isinstance(body, RecordBody):
            assert body.columns is not None
            written: str | bytes = body.written
            newest = int(milliseconds_of(body.columns.timestamps).max())
        else:
            elements = [each for each in body if isinstance(each, Element)]
            if not elements:
                return
            written = json.dumps([(at, graph_of(each), each) for at, each, _ in elements])
            newest = max(each.at for each in elements)
        self._extents[stream].append(_Extent(self.number, newest, count))
        time = [engine.present, self.advanced, *before, *engine.position(stream)]
        self._add(stream, newest, count, json.dumps(time), written)

    def _add(self, *row: object) -> None:
        self._steps.append((self.number, *row))
        self.number += 1

    def begun(self, registration: Registration) -> Registration:
        """Note that a query begins: it sees the next step."""
        self._begins = (self.advanced,)
        return replace(registration, begun=self.number, advanced=self.advanced)

    def receive(self, batch: KeptBatch) -> None:
        self._receipts.append(batch)

    def end(self, hosted: HostedQuery) -> None:
        """Note that a query was deleted: it may have fed windows."""
        running, ended = hosted.running, hosted.registration
        if ended.ended is None:
            ended = replace(ended, ended=self.number, ended_advanced=self.advanced)
        fed = running.stream is not None and ended.begun < self.number
        if fed and isinstance(running, RegisteredQuery | PeriodicQuery):
            self._ended.append((ended, running))

    @property
    def ended(self) -> list[Registration]:
        """Deleted queries whose elements may still be in windows."""
        return [each for each, _ in self._ended]

    def commit(self, queries: Mapping[str, HostedQuery], present: int | None) -> None:
        """Write what happened, durably; then let readers see emissions.

        Raises:
            RegistrationsError: it cannot be written; the next commit tries again.
        """
        emissions: list[tuple[str, int, int, str | None]] = []
        gone: list[tuple[str, int]] = []
        logs = []
        for name, hosted in queries.items():
            if name not in self._oldest:
                emissions.append((name, hosted.log.begin, 0, None))
            held = hosted.log.held(hosted.encode)
            if held:
                logs.append(hosted.log)
                emissions += [(name, *each) for each in held]
                oldest = hosted.log.oldest
                if oldest > self._oldest.get(name, oldest) + self._spare:
                    gone.append((name, oldest))
        # The instants of a query begin when time first advances.
        begins = self._begins not in (None, (self.advanced,))
        if not (self._steps or emissions or self._receipts or begins):
            return
        with self._writing() as connection:
            # The next step says it, too.
            connection.execute("DELETE FROM steps WHERE number = ?", (self._passed,))
            self._passed = None
            if not self._steps and self.advanced is not None:
                self._passed = self.number
                self._add(None, 0, 0, json.dumps([present, self.advanced]), "")
            write = connection.executemany
            write("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?)", self._steps)
            write("INSERT INTO receipts VALUES (?, ?, ?, ?, ?)", self._receipts)
            write("INSERT INTO emissions VALUES (?, ?, ?, ?)", emissions)
            write("DELETE FROM emissions WHERE query = ? AND number < ? AND text NOT NULL", gone)
            self._since += len(self._steps)
            if self._since > self._spare + sum(map(len, self._extents.values())) // 4:
                self._prune(connection, queries.values())
        self._begins = None if begins else self._begins
        self._steps.clear()
        self._receipts.clear()
        self._oldest |= {name: number for name, number, _, text in emissions if text is None}
        self._oldest |= dict(gone)
        for log in logs:
            log.release()

    def _prune(self, connection: sqlite3.Connection, queries: Iterable[HostedQuery]) -> None:
        self._since = 0
        oldest_step = min((each[0].number for each in self._extents.values()), default=self.number)
        self._ended = [each for each in self._ended if (each[0].ended or 0) > oldest_step]
        running = [each.running for each in queries if each.running.query is not None]
        reach_of = reaches([*running, *(each for _, each in self._ended)])
        for stream, extents in self._extents.items():
            reach = reach_of(stream)
            horizon = max(each.newest for each in extents) - reach.width - self._slack
            older, oldest = 0, extents[-1].number
            # From the newest back: all that is within the horizon, then those that count.
            for each in reversed(extents):
                if each.newest >= horizon or older < reach.elements:
                    oldest = each.number
                if each.newest < horizon:
                    older += each.elements
            while extents[0].number < oldest:
                extents.popleft()
            connection.execute(
                "DELETE FROM steps WHERE stream = ? AND number < ?", (stream, oldest)
            )
        connection.execute(
            "DELETE FROM receipts WHERE rowid <= (SELECT max(rowid) FROM receipts) - ?",
            (_RECEIPTS,),
        )

    def push(self, query: str, after: int, until: int | None) -> None:
        """Write how far emissions were pushed to another server; see `Positions`."""
        with self._writing() as connection:
            row = query, after, until
            connection.execute("INSERT OR REPLACE INTO pushed VALUES (?, ?, ?)", row)

    @property
    def queries(self) -> set[str]:
        return set(self._oldest)

    def forget(self, *queries: str) -> None:
        with self._writing() as connection:
            for name in queries:
                self._oldest.pop(name, None)
                for table in ("emissions", "pushed"):
                    connection.execute(f"DELETE FROM {table} WHERE query = ?", (name,))  # noqa: S608

    def forget_stream(self, stream: Term) -> None:
        self._extents.pop(stream, None)
        self._ended = [each for each in self._ended if each[1].stream != stream]
        with self._writing() as connection:
            for table in ("steps", "receipts"):
                connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))  # noqa: S608


def _read(text: str) -> list[Element]:
    return [
        Element(at, in_graph(graph, [(Term(s), Term(p), Term(o)) for s, p, o in triples]), 0)
        for at, graph, triples in json.loads(text)
    ]


# How much of a stream windows may need.


class Reach(NamedTuple):
    """The elements of the last `width` milliseconds, and so many before them."""

    width: float
    elements: float


_ALL: Final = Reach(math.inf, math.inf)


def reaches(queries: Collection[Running]) -> Callable[[Term], Reach]:
    """Return how far the windows of queries reach back in a stream.

    Those over a stream that a query makes reach back in what it is made from.
    """
    reach_of: dict[Term, Reach] = {}

    def reach(stream: Term) -> Reach:
        if stream not in reach_of:
            reach_of[stream] = _ALL  # until it is computed: nothing feeds itself
            result = Reach(0, 0)
            for each in queries:
                own = _reach_of(each, stream)
                if own is not None and each.stream is not None:
                    fed = reach(each.stream)
                    own = Reach(math.inf if fed.elements else own.width + fed.width, own.elements)
                result = Reach(*map(max, result, own or result))
            reach_of[stream] = result
        return reach_of[stream]

    return reach


def _reach_of(running: Running, stream: Term) -> Reach | None:
    query = running.query
    if isinstance(running, ExecutedQuery):
        return None  # it begins with empty windows
    if isinstance(query, ContinuousQuery):
        windows = [_reach(w.window) for w in query.windows if w.varies or w.stream == stream]
    else:
        every = max(query.instants.periods, default=0)
        windows = [_reach(w.window, every) for w in query.streams if w.stream == stream]
    return Reach(*map(max, zip(*windows, strict=True))) if windows else None


def _reach(window: Window | SteppedWindow, every: int = 0) -> Reach:
    match window:
        case Now():
            return Reach(0, 0)
        case Range(width, slide):
            return Reach(width + (slide or 0), 0)
        case LogicalWindow(width, step):
            past = window.past if isinstance(window, SlidingWindow) else 0
            return Reach(width + past + step + every, 0)
        case Triples(count) | PhysicalWindow(count, 1):
            return Reach(every, count)
    # ALL; and one that moves by several elements begins with the first of all.
    return _ALL
