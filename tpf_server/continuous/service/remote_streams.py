"""Read streams of other servers, and push to them.

A stream is remote where its IRI is a URL of a server in `allow_streams`. Reading resumes another
query's server-sent events. Emissions are pushed in batches with identifiers, so that a repeated one
counts once. Both retry with backoff.

Source: paper 003, section 2.3; paper 001, section 3; the HTML standard, "Server-sent events".
"""

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import requests
import urllib3

from annotations.clock import Clock
from annotations.event_reader import EventReader, ServerEvent, event_headers
from annotations.terms import Term
from annotations.urls import origin_of
from annotations.wording import bearer
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.elements.elements import (
    Element,
    canonical_triple,
    graph_name,
    in_graph,
    instant,
    read_json,
)
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    ContinuousError,
    ElementError,
    EngineClosedError,
    RegistrationsError,
    RemoteStreamError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.instants.csparql_query import by_graph
from tpf_server.continuous.runtime.instants.timetable import Multimap
from tpf_server.continuous.service.hosting import NDJSON, HostedQuery
from tpf_server.continuous.service.result_log import Receipt

TakeElements: TypeAlias = Callable[[str, Sequence[Element | ElementError], str | None], Receipt]
"""Takes a batch of elements of a stream, with its identifier, if it has one."""

NotePosition: TypeAlias = Callable[[str, int, int | None], None]
"""Keeps the position of a query (see `Positions`) before a batch is pushed."""

_log: Final = logging.getLogger(__name__)
_EVENTS: Final = "text/event-stream"
_FIRST_PAUSE: Final = timedelta(seconds=1)
_LONGEST_PAUSE: Final = timedelta(minutes=1)
_ANSWER_SECONDS: Final = 30.0
_SILENT_SECONDS: Final = 60.0
"""Servers write something every 15 s."""
_CHARACTERS: Final = 2**26
"""Of an event."""
_EMISSIONS: Final = 200
"""Of a batch."""
_NOT_KEPT: Final = (410, 429)
"""Statuses that say that what follows an event is not kept any more."""
_MALFORMED: Final = (400, 413, 422)
"""Statuses that a batch will have again, however often it is sent."""


class _Link(ABC):
    """Work in a thread of its own, retrying until it is done or stopped."""

    def __init__(self, url: str, token: str, clock: Clock) -> None:
        self.url = url
        self._authorize = bearer(token)
        self._clock = clock
        self._stopped = threading.Event()
        self._failure: str | None = None
        self._refusal: str | None = None
        self._retry = 0.0
        self._taken = self._refused = 0

    @property
    def state(self) -> dict[str, Any]:
        reason = {} if self.reason is None else {"reason": self.reason}
        state = "working" if self._failure is None else "failed"
        return {"url": self.url, "state": state, **self._counts(), **reason}

    @property
    def reason(self) -> str | None:
        return self._failure or self._refusal

    def start(self) -> None:
        threading.Thread(target=self._run, name="remote stream", daemon=True).start()

    def stop(self) -> None:
        """End with the next event or timeout."""
        self._stopped.set()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        with requests.Session() as session:
            while not self._stopped.is_set():
                before = self._taken
                try:
                    self._work(session)
                    return
                except EngineClosedError:
                    return
                except (RemoteStreamError, RegistrationsError) as error:
                    self._failure = str(error)
                except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
                    self._failure = f"{self.url}: no answer, or one that is cut short"
                except Exception as error:  # noqa: BLE001 - the stream would stop for good
                    _log.exception("%s", self.url)
                    self._failure = f"{self.url}: {error!r}"
                pause = _FIRST_PAUSE if self._taken > before else min(2 * pause, _LONGEST_PAUSE)
                self._clock.wait(max(pause, timedelta(seconds=self._retry)), self._stopped)

    def _fail(self, reason: str) -> RemoteStreamError:
        return RemoteStreamError(f"{self.url}: {reason}")

    def _check(self, answer: requests.Response) -> None:
        # A redirect could lead where no setting allows it.
        if not 200 <= answer.status_code < 300:
            raise self._fail(f"HTTP {answer.status_code} {answer.reason}")

    @abstractmethod
    def _counts(self) -> dict[str, int]:
        """Return counts."""

    @abstractmethod
    def _work(self, session: requests.Session) -> None:
        """Work until done."""


class StreamReader(_Link):
    """Take the emissions of another server's query as elements."""

    def __init__(self, url: str, token: str, clock: Clock, push: TakeElements) -> None:
        super().__init__(url, token, clock)
        self._push = push
        self._last: str | None = None

    def _counts(self) -> dict[str, int]:
        return {"events": self._taken, "refused": self._refused}

    def _work(self, session: requests.Session) -> None:
        with session.get(
            self.url,
            headers={**event_headers(self._last), "Accept-Encoding": "identity"},
            auth=self._authorize,
            timeout=(_ANSWER_SECONDS, _SILENT_SECONDS),
            stream=True,
            allow_redirects=False,
        ) as answer:
            if answer.status_code in _NOT_KEPT and self._last is not None:
                last, self._last = self._last, None
                raise self._fail(f"nothing is kept of what followed event {last}")
            self._check(answer)
            kind = answer.headers.get("Content-Type", "an answer of no type").split(";")[0]
            if kind != _EVENTS:
                raise self._fail(
                    f"{kind} is not {_EVENTS}: a stream that is read is the results of a query, "
                    "…/queries/NAME/results"
                )
            self._failure = None
            events = EventReader(_CHARACTERS)
            while chunk := answer.raw.read1(2**16, decode_content=True):
                for event in self._events(events, chunk):
                    if self._stopped.is_set():
                        return
                    self._take(event)
                self._retry = events.retry or 0.0
                if self._stopped.is_set():
                    return
        raise self._fail("the connection ended")

    def _events(self, events: EventReader, chunk: bytes) -> Iterator[ServerEvent]:
        try:
            yield from events.feed(chunk)
        except ValueError as error:
            raise self._fail(str(error)) from None

    def _take(self, event: ServerEvent) -> None:
        if event.name == "error":
            self._end(event.data)
        if event.name != "message":
            return
        try:
            elements = _elements_of(event.data)
            receipt = self._push(self.url, elements, event.id) if elements else None
            self._refusal = None
            for each in () if receipt is None else receipt.refused:
                self._refuse(str(each))
        except (EngineClosedError, RegistrationsError):
            raise  # it is asked for again
        except ContinuousError as error:
            self._refuse(str(error))
        self._taken += 1
        if event.id is not None:
            self._last = event.id

    def _refuse(self, reason: str) -> None:
        self._refused += 1
        self._refusal = f"{self.url}: {reason}"

    def _end(self, data: str) -> None:
        reason, status = data, None
        with suppress(ValueError, KeyError, TypeError):
            result = json.loads(data)
            reason, status = str(result["error"]), result.get("status")
        if status in _NOT_KEPT:
            self._last = None
        raise self._fail(reason)


def _elements_of(text: str) -> list[Element]:
    result = read_json(text)
    rows = None
    if isinstance(result, dict):
        rows = next(
            (result[name] for name in ("added", "removed", "result") if name in result), None
        )
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ElementError("only a query with CONSTRUCT or DESCRIBE makes elements")
    at = instant(result.get("at"))
    return [
        Element(
            at,
            in_graph(
                None if name is None else graph_name(name),
                dict.fromkeys(map(canonical_triple, triples)),
            ),
            1,
        )
        for name, triples in by_graph(rows)
    ]


class _Batch(NamedTuple):
    """Emissions of one request, by their first and last numbers."""

    first: int
    last: int
    body: bytes


class StreamWriter(_Link):
    """Push the emissions of a query from its log."""

    def __init__(
        self,
        url: str,
        token: str,
        clock: Clock,
        hosted: HostedQuery,
        origin: str,
        note: NotePosition = lambda *_: None,
    ) -> None:
        super().__init__(url, token, clock)
        self._note = partial(note, hosted.id)
        self._log = hosted.log
        self._read = partial(hosted.log.emissions, decode=hosted.decode)
        self._origin = origin
        self._after: int | None = None
        self._until: int | None = None
        self._pending: _Batch | None = None
        self._lost = 0
        self._lock = threading.Lock()

    def _counts(self) -> dict[str, int]:
        return {"batches": self._taken, "refused": self._refused, "lost": self._lost}

    def resume(self, after: int, until: int | None) -> None:
        """Resume at a `position`, before `start`."""
        self._after, self._until = after, until

    def position(self) -> tuple[int, int | None] | None:
        """Return the last pushed emission, and the last of a batch of unknown outcome.

        ``None``: it has not begun.
        """
        with self._lock:
            pending = self._until if self._pending is None else self._pending.last
            return None if self._after is None else (self._after, pending)

    def _work(self, session: requests.Session) -> None:
        if self._after is None:
            self._after = self._log.oldest - 1
        while not self._stopped.is_set():
            if self._pending is not None:
                self._post(session, self._pending)
            elif not self._compose(self._after):
                return

    def _compose(self, after: int) -> bool:
        try:
            events = self._log.read(after, 1.0)
        except BacklogError:
            # A batch that perhaps was taken cannot be made again: others follow it.
            following = max(self._log.oldest - 1, self._until or 0)
            self._lost += following - after
            self._after, self._until = following, None
            return True
        except ContinuousError:
            return False
        if not events:
            return events is not None
        last = after + _EMISSIONS if self._until is None else self._until
        events = [each for each in events if each.number <= last]
        body = "".join(line for _, emission in self._read(events) for line in _lines(emission))
        with self._lock:
            if not self._stopped.is_set():
                self._note(after, events[-1].number)
                self._pending = _Batch(after + 1, events[-1].number, body.encode())
                self._until = None
        return True

    def _post(self, session: requests.Session, batch: _Batch) -> None:
        refused: list[Any] = []
        if batch.body:
            answer = session.post(
                self.url,
                batch.body,
                params={"batch": f"{self._origin}/{batch.first}-{batch.last}"},
                headers={"Content-Type": NDJSON},
                auth=self._authorize,
                timeout=_ANSWER_SECONDS,
                allow_redirects=False,
            )
            if answer.status_code in _MALFORMED:
                if batch.first < batch.last:
                    self._until, self._pending = (batch.first + batch.last) // 2, None
                    return
                refused = [answer.text[:1000]]
            else:
                self._check(answer)
                with suppress(ValueError, KeyError, TypeError):
                    refused = list(answer.json()["refused"])
        with self._lock:
            self._after, self._pending = batch.last, None
        self._taken += 1
        self._refused += len(refused)
        self._refusal = f"{self.url}: refused: {refused[0]}" if refused else None
        self._failure = None


def _lines(emission: Emission) -> Iterator[str]:
    rows: Iterable[Row] = emission.rows
    for name, triples in by_graph(rows):
        graph = {} if name is None else {"graph": name}
        yield json.dumps({"timestamp": emission.at, "triples": triples, **graph}) + "\n"


LinkT = TypeVar("LinkT", bound=_Link)


class RemoteStreams:
    """Link the streams of other servers that queries read and make."""

    def __init__(
        self,
        allowed: Mapping[str, str],
        base: str,
        push: TakeElements,
        clock: Clock,
        note: NotePosition,
    ) -> None:
        self._note = note
        self._tokens = {origin_of(url): token for url, token in allowed.items()}
        self._base = base
        self._push = push
        self._clock = clock
        self._readers: dict[Term, StreamReader] = {}
        self._users: Multimap[Term, str] = Multimap()
        self._writers: dict[str, StreamWriter] = {}
        self._started = False

    def allowed(self, stream: Term) -> bool:
        origin = origin_of(stream[1:-1])
        there = origin is not None and origin[0] in ("http", "https")
        return there and origin != origin_of(self._base) and origin in self._tokens

    def check(self, streams: Iterable[Term], local: Collection[Term]) -> None:
        """Check that streams are here, or at allowed servers."""
        for stream in streams:
            iri = stream[1:-1]
            here = iri.startswith(self._base) or not iri.startswith(("http://", "https://"))
            if not here and not self.allowed(stream) and stream not in local:
                raise UnsupportedContinuousQueryError(
                    f"{stream} is at no server in the setting allow_streams, and no stream here "
                    f"(these begin with {self._base}): to push its elements here, create it first"
                )

    def take(self, hosted: HostedQuery) -> None:
        for stream in filter(self.allowed, hosted.running.reads):
            self._users.add([stream], hosted.id)
            if stream not in self._readers:
                self._readers[stream] = self._begun(StreamReader(*self._at(stream), self._push))
        made = hosted.running.stream
        if made is not None and self.allowed(made):
            origin = f"{self._base}{hosted.id}"
            writer = StreamWriter(*self._at(made), hosted, origin, self._note)
            self._writers[hosted.id] = self._begun(writer)

    def _at(self, stream: Term) -> tuple[str, str, Clock]:
        return stream[1:-1], self._tokens[origin_of(stream[1:-1])], self._clock

    def _begun(self, link: LinkT) -> LinkT:
        if self._started:
            link.start()
        return link

    def release(self, name: str) -> None:
        self._users.discard(tuple(self._readers), name)
        for stream in [each for each in self._readers if each not in self._users]:
            self._readers.pop(stream).stop()
        if name in self._writers:
            self._writers.pop(name).stop()

    def explain(self, name: str) -> dict[str, Any]:
        """Return the state of a query's links."""
        links: list[_Link] = [
            reader for stream, reader in self._readers.items() if name in self._users.of(stream)
        ]
        links += [self._writers[name]] if name in self._writers else []
        result: dict[str, Any] = {"remote_streams": [each.state for each in links]} if links else {}
        reasons = [each.reason for each in links if each.reason is not None]
        return result | ({"state": "degraded", "reason": reasons[0]} if reasons else {})

    def start(self) -> None:
        self._started = True
        for link in chain(self._readers.values(), self._writers.values()):
            link.start()

    def stop(self) -> None:
        """Stop all links; a batch under way is finished."""
        for link in chain(self._readers.values(), self._writers.values()):
            link.stop()

    def positions(self) -> dict[str, tuple[int, int | None]]:
        result = {name: writer.position() for name, writer in self._writers.items()}
        return {name: position for name, position in result.items() if position is not None}

    def resume(self, positions: Mapping[str, tuple[int, int | None]]) -> None:
        """Resume writers, before `start`."""
        for name in positions.keys() & self._writers.keys():
            self._writers[name].resume(*positions[name])
