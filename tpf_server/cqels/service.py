"""Continuous queries for many callers at once: one engine, one lock, a log for each query."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from annotations.clock import Clock
from tpf_server.cqels.elements import Element
from tpf_server.cqels.engine import Engine, RegisteredQuery
from tpf_server.cqels.errors import ContinuousQueryError, ElementError, UnknownQueryError
from tpf_server.cqels.result_log import ResultLog
from tpf_server.cqels.semantics import SEMANTICS
from tpf_server.cqels.timestamps import milliseconds


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch of elements."""

    accepted: int
    refused: tuple[ElementError, ...]
    dropped: int


class ContinuousService:
    """An engine that several threads use.

    Args:
        engine: not used by anybody else.
        clock: what the time is, for elements without a timestamp.
        backlog: how many emissions are kept of each query.
        whole_batches: refuse a batch with a malformed element whole, instead of that element alone.
    """

    def __init__(
        self, engine: Engine, clock: Clock, *, backlog: int = 10_000, whole_batches: bool = True
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._backlog = backlog
        self._whole_batches = whole_batches
        self._lock = threading.RLock()
        self._logs: dict[str, ResultLog] = {}

    @property
    def now(self) -> int:
        """The time of the clock, in milliseconds since 1970."""
        return milliseconds(self._clock.now())

    def create_stream(self, name: str) -> bool:
        """Make a stream; whether it is new."""
        with self._lock:
            known = len(self._engine.streams)
            self._engine.create_stream(name)
            return len(self._engine.streams) > known

    def streams(self) -> list[dict[str, Any]]:
        """The streams, with how much came through them."""
        with self._lock:
            return [
                {"stream": name[1:-1], "elements": each.elements, "triples": each.triples}
                for name, each in self._engine.streams.items()
            ]

    def push(self, stream: str, elements: Sequence[Element | ElementError]) -> Receipt:
        """A batch of elements arrives.

        Raises:
            ElementError: by setting, one of them is malformed; then none was taken.
            UnknownStreamError: by setting, there is no such stream.
        """
        refused = tuple(each for each in elements if isinstance(each, ElementError))
        if refused and self._whole_batches:
            raise refused[0]
        with self._lock:
            before = self._engine.dropped
            accepted = 0
            name = self._engine.stream(stream).name
            for each in elements:
                if isinstance(each, Element):
                    self._engine.push(name, each.triples, each.at)
                    accepted += 1
            self._settle()
            dropped = self._engine.dropped - before
            return Receipt(accepted - dropped, refused, dropped)

    def advance(self) -> None:
        """Let the engine know what time it is."""
        with self._lock:
            self._engine.advance(self.now)
            self._settle()

    def register(
        self, text: str, *, name: str | None, semantics: str | None, into: str | None
    ) -> RegisteredQuery:
        """Start a query.

        Raises:
            ContinuousError: see `Engine.register`.
            ContinuousQueryError: an unknown policy.
        """
        if semantics is not None and semantics not in SEMANTICS:
            raise ContinuousQueryError(f"unknown semantics {semantics!r}: {', '.join(SEMANTICS)}")
        with self._lock:
            log = ResultLog(self._backlog)
            registered = self._engine.register(
                text,
                log.append,
                name=name,
                semantics=SEMANTICS[semantics] if semantics else None,
                into=into,
            )
            self._logs[registered.name] = log
            return registered

    def explain(self, name: str) -> dict[str, Any]:
        """State, text and plan of a query.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            query = self._engine.query(name)
            found = {**query.explain(), "text": query.query.text, "form": query.query.query.form}
            if query.query.query.form == "SELECT":
                found["variables"] = [v[1:] for v in query.query.query.variables]
            if query.error is not None:
                found["error"] = str(query.error)
            found["last_event"] = self._logs[name].last
            return found

    def names(self) -> list[str]:
        """The queries."""
        with self._lock:
            return list(self._engine.queries)

    def log(self, name: str) -> ResultLog:
        """The emissions of a query.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            self._engine.query(name)
            return self._logs[name]

    def variables(self, name: str) -> list[str] | None:
        """The variables of a query's rows, ``None`` where these are triples.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            query = self._engine.query(name).query.query
            return None if query.form == "CONSTRUCT" else [v[1:] for v in query.variables]

    def delete(self, name: str) -> None:
        """Stop a query.

        Raises:
            UnknownQueryError: there is none.
        """
        with self._lock:
            self._engine.query(name).close()
            self._logs.pop(name).close(UnknownQueryError(f"query {name!r} was deleted"))

    def close(self) -> None:
        """Stop everything."""
        with self._lock:
            self._engine.close()
            for log in self._logs.values():
                log.close()

    def _settle(self) -> None:
        for name, query in self._engine.queries.items():
            if query.state == "stopped":
                self._logs[name].close(query.error)
