"""Child processes of boards: clients that follow answers, and feeds that publish.

Orders of clients: ``start`` (answered when each query has its first answer), ``mark`` (the results
so far), ``stop`` (``arrivals`` are ``[query, what, instant, rows]``). A feed answers ``start`` at
its first batch, and ``stop`` with the instants of all.
"""

import json
import math
import random
import re
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache, partial
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import quote, urljoin
from weakref import WeakSet

import requests
from rdflib import Graph
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from annotations.clock import Clock, SystemClock
from annotations.instants import format_instant
from annotations.labels import Expiration
from annotations.terms import Quad
from experiments.errors import MeasurementError
from experiments.workloads.board import number_of, renewal
from loaders.errors import LoaderError, PublishRefusedError
from loaders.publisher import Publisher
from tpf_client import Client
from tpf_client.errors import ClientError
from tpf_client.fragments.transport import PooledSession
from tpf_client.solutions import Solutions
from tpf_client.stream import Update


class _Heads:
    """Tells the heads of responses from their bodies, in what a connection receives."""

    def __init__(self) -> None:
        self._head = b""
        self._body = 0.0

    def size(self, content: bytes) -> int:
        size = 0
        while content:
            if self._body:
                taken = int(min(self._body, len(content)))
                self._body -= taken
                content = content[taken:]
                continue
            head, end, rest = (self._head + content).partition(b"\r\n\r\n")
            size += len(content) - len(rest)
            content, self._head = rest, b"" if end else head
            if end:
                self._body = _body_length(head)
        return size


def _body_length(head: bytes) -> float:
    """Return the length of the body after a head; infinite where it does not say."""
    if head[9:12] in (b"204", b"304"):
        return 0
    stated = re.search(rb"(?im)^content-length: *([0-9]+)", head)
    return math.inf if stated is None else int(stated[1])


class WireBytes:
    """Count the bytes that sockets opened from now on send and receive."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()

    @property
    def counts(self) -> Mapping[str, int]:
        """The ``bytes`` received, ``head_bytes`` among them, and ``sent_bytes``."""
        with self._lock:
            return {name: self._counts[name] for name in ("bytes", "head_bytes", "sent_bytes")}

    def install(self) -> None:
        counts = self

        class CountingSocket(socket.socket):
            def connect(self, address: Any) -> None:
                super().connect(address)
                self.heads = _Heads()
                counts.opened(self)

            def recv(self, *arguments: Any, **named: Any) -> bytes:
                content = super().recv(*arguments, **named)
                counts.received(self.heads, content)
                return content

            def recv_into(self, buffer: Any, *arguments: Any, **named: Any) -> int:
                size = super().recv_into(buffer, *arguments, **named)
                counts.received(self.heads, bytes(memoryview(buffer)[:size]))
                return size

            def sendall(self, content: Any, *arguments: Any) -> None:
                super().sendall(content, *arguments)
                counts.sent(len(content))

        socket.socket = CountingSocket  # type: ignore[misc]

    def received(self, heads: _Heads, content: bytes) -> None:
        with self._lock:
            self._counts.update(bytes=len(content), head_bytes=heads.size(content))

    def sent(self, size: int) -> None:
        with self._lock:
            self._counts["sent_bytes"] += size

    def opened(self, connected: socket.socket) -> None:
        with self._lock:
            self._sockets.add(connected)

    def shut(self) -> None:
        """Close all connections; their readers meet the end."""
        with self._lock:
            for each in tuple(self._sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


_REQUEST_SECONDS = 60.0
_PARALLELISM = 2
_AGAIN_SECONDS = 0.2

What: TypeAlias = int | str
"""The number of a renewal, or the IRI of an observation."""


def _what(row: Iterable[tuple[str, str]]) -> Iterator[What]:
    for name, term in row:
        if name == "delay":
            yield number_of(term)
        elif name.startswith("obId"):
            yield term


@dataclass(slots=True)
class Seen:
    """The rows that reached the answers."""

    queries: int
    whole: bool = False
    arrivals: dict[tuple[int, What], tuple[float, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    updates: int = 0
    ready: threading.Event = field(default_factory=threading.Event)
    _begun: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, query: int) -> None:
        """Note the first answer of a query, or its failure."""
        with self._lock:
            self._begun.add(query)
            if len(self._begun) >= self.queries:
                self.ready.set()

    def add(self, query: int, rows: Iterable[Iterable[tuple[str, str]]]) -> None:
        now = time.time()
        counts: Counter[What] = Counter()
        for row in rows:
            counts.update(_what(row))
        with self._lock:
            self.updates += 1
            for what, more in counts.items():
                at, before = self.arrivals.get((query, what), (now, 0))
                self.arrivals[query, what] = (
                    at,
                    max(before, more) if self.whole else before + more,
                )

    def fail(self, query: int, reason: str) -> None:
        with self._lock:
            self.errors.append(reason)
        self.begin(query)

    def to_json(self) -> dict[str, Any]:
        with self._lock:
            return {
                "arrivals": [
                    [query, what, at, rows] for (query, what), (at, rows) in self.arrivals.items()
                ],
                "errors": self.errors[:3],
                "failed": len(self.errors),
                "updates": self.updates,
            }


class _WithoutDeltas(requests.Session):
    """Ask for pages as they were before there were deltas."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        request.headers["Accept-Encoding"] = "gzip, br"
        return super().send(request, **options)


class Streamers:
    """Query streamers over fragments, with a client each or one shared client."""

    def __init__(self, order: Mapping[str, Any], seen: Seen) -> None:
        self._seen = seen
        self._open = ExitStack()
        queries = order["queries"]
        # A session of its own asks for what it says.
        session = None if order.get("deltas", True) else _WithoutDeltas()
        if order["shared"]:
            client = self._open.enter_context(Client(order["url"]))
            self._clients = [client] * len(queries)
        else:
            self._clients = [
                self._open.enter_context(
                    Client(order["url"], parallelism=_PARALLELISM, session=session)
                )
                for _ in queries
            ]
        for number, (client, query) in enumerate(zip(self._clients, queries, strict=True)):
            stream = client.stream(query, jitter=order["jitter"])
            stream.start(partial(self._updated, number), partial(self._ended, number))
            self._open.callback(stream.close)

    def _ended(self, query: int, error: BaseException | None) -> None:
        if error is not None:
            self._seen.fail(query, f"{type(error).__name__}: {error}")

    def _updated(self, query: int, update: Update) -> None:
        if update.error is not None:
            self._seen.fail(query, str(update.error))
            return
        self._seen.add(
            query,
            (
                [
                    (n, t)
                    for n, t in zip(update.variables, solution.row, strict=True)
                    if t is not None
                ]
                for solution in update.added
            ),
        )
        self._seen.begin(query)

    @property
    def requests(self) -> int:
        return sum(client.statistics.requests for client in set(self._clients))

    def close(self) -> None:
        self._open.close()


class Readers:
    """Register queries at the server and read their results."""

    def __init__(self, order: Mapping[str, Any], seen: Seen) -> None:
        self._each = [_Reader(order, number, seen) for number in range(len(order["queries"]))]
        for reader in self._each:
            reader.start()

    @property
    def requests(self) -> int:
        return sum(reader.requests for reader in self._each)

    def close(self) -> None:
        """Stop reading; the server is stopped by its owner."""
        for reader in self._each:
            reader.stopping = True


class _Reader(threading.Thread):
    def __init__(self, order: Mapping[str, Any], number: int, seen: Seen) -> None:
        super().__init__(daemon=True)
        self.requests = 0
        self._order, self._number, self._seen = order, number, seen
        self._authorization = {"Authorization": f"Bearer {order['token']}"}
        self.stopping = False

    def run(self) -> None:
        try:
            url = self._register()
            if url is not None:
                self._follow(url)
        except requests.RequestException as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        if not self.stopping:
            self._seen.fail(self._number, reason)

    def _register(self) -> str | None:
        patience = time.monotonic() + self._order["patience"]
        while True:
            self.requests += 1
            made = requests.post(
                f"{self._order['url']}queries",
                data=self._order["queries"][self._number].encode(),
                headers=self._authorization | {"Content-Type": "application/sparql-query"},
                timeout=_REQUEST_SECONDS,
            )
            # A server takes few bodies at a time, and says so to the others.
            if made.status_code != 503 or time.monotonic() > patience:
                break
            time.sleep(_AGAIN_SECONDS * random.uniform(0.5, 1.5))
        if made.status_code != 201:
            self._fail(f"{made.status_code}: {made.text[:200]}")
            return None
        return urljoin(str(self._order["url"]), made.headers["Location"])

    def _follow(self, url: str) -> None:
        self.requests += 1
        headers = {"Accept": "application/x-ndjson"}
        with requests.get(
            f"{url}/results", stream=True, headers=headers, timeout=_REQUEST_SECONDS
        ) as results:
            if results.status_code != HTTPStatus.OK:
                self._fail(f"{results.status_code}: {results.text[:200]}")
                return
            if not self._order.get("answered"):
                self._seen.begin(self._number)
            for line in results.iter_lines(chunk_size=None):
                if line and not self.stopping:
                    self._emitted(json.loads(line))
        self._fail("the results ended")

    def _emitted(self, emission: Mapping[str, Any]) -> None:
        if "error" in emission:
            self._fail(str(emission["error"]))
            return
        rows = emission.get("result", emission.get("added", []))
        self._seen.add(self._number, (row.items() for row in rows))
        self._seen.begin(self._number)


class BoardClients:
    """Handles the orders of a client process."""

    def __init__(self) -> None:
        self._wire = WireBytes()
        self._wire.install()
        self._running: Streamers | Readers | None = None
        self._seen = Seen(0)
        self._before = self._wire.counts

    def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if order["do"] == "start":
            return self._start(order)
        running = self._running
        answer = {
            "requests": 0 if running is None else running.requests,
            **{name: n - self._before[name] for name, n in self._wire.counts.items()},
        }
        if order["do"] == "stop":
            if running is not None:
                running.close()
            self._wire.shut()
            self._running = None
            return answer | self._seen.to_json()
        return answer

    def _start(self, order: Mapping[str, Any]) -> dict[str, Any]:
        self._seen = seen = Seen(len(order["queries"]), order["whole"])
        self._before, self._running = self._wire.counts, None
        try:
            self._running = (Streamers if order["mode"] == "facts" else Readers)(order, seen)
        except (ClientError, OSError) as error:
            seen.fail(0, f"{type(error).__name__}: {error}")
            return {}
        return {"ready": not order["queries"] or seen.ready.wait(order["patience"])}


_AGAIN = Retry(
    60, connect=0, read=0, status_forcelist=[503], allowed_methods=None, backoff_factor=0.05,
    backoff_max=1.0, respect_retry_after_header=False, raise_on_status=False,
)  # fmt: skip
_FAILURES = (LoaderError, MeasurementError, OSError)


def push_facts(order: Mapping[str, Any], quads: list[Quad], end: datetime, number: int) -> None:
    """Publish facts that hold until an instant."""
    with closing(Publisher(order["url"], SystemClock(), order["token"])) as publisher:
        publisher.publish(tuple(quads), Expiration(end), f"renewal-{number}")


def push_elements(order: Mapping[str, Any], quads: list[Quad], at: datetime) -> None:
    """Push each fact as an element of a stream."""
    timestamp = format_instant(at)
    lines = [json.dumps({"timestamp": timestamp, "triple": list(quad[:3])}) for quad in quads]
    push_lines(order["url"], order["token"], lines)


def push_lines(url: str, token: str, lines: Sequence[str]) -> None:
    """Push elements as lines of JSON; try again while the server is busy."""
    with requests.Session() as session:
        # A server takes few bodies at a time, and says so to the others.
        session.mount("http://", HTTPAdapter(max_retries=_AGAIN))
        response = session.post(
            url, data="\n".join(lines).encode(), timeout=30,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"},
        )  # fmt: skip
    if not response.ok:
        raise MeasurementError(f"elements are refused: {response.status_code} {response.text}")


class BoardFeed(threading.Thread, ABC):
    """Publish until stopped.

    `sent` are the times of the batches, in seconds since 1970.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(daemon=True)
        self.sent: list[float] = []
        self.error: str | None = None
        self.started = threading.Event()
        self.order = order
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.publish(SystemClock())
        except _FAILURES as error:
            self.error = f"{type(error).__name__}: {error}"
        self.started.set()

    def end(self) -> None:
        self.stopping.set()
        self.join()

    @abstractmethod
    def publish(self, clock: Clock) -> None:
        """Publish until stopped, and call `note` for each batch."""

    def note(self, sent: datetime) -> None:
        self.sent.append(sent.timestamp())
        self.started.set()


class RenewedBoard(BoardFeed):
    """Renews the board."""

    def publish(self, clock: Clock) -> None:
        order = self.order
        period, lead = timedelta(seconds=order["period"]), timedelta(seconds=order["lead"])
        begin = clock.now()
        for number in range(1 + int(order["seconds"] / order["period"])):
            due = begin + number * period - (lead if number else timedelta(0))
            clock.wait_until(due, self.stopping)
            if self.stopping.is_set():
                return
            quads = list(renewal(order["departures"], number))
            now = clock.now()
            if order["mode"] == "facts":
                end = begin + (number + 1) * period
                try:
                    push_facts(order, quads, end, number)
                except PublishRefusedError as error:
                    # A server without time for it until it was over has lost it; the next may come.
                    if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or clock.now() < end:
                        raise
            else:
                push_elements(order, quads, now)
            self.note(now)


class SensorFeed(BoardFeed):
    """Publish a reading of every sensor at every tick."""

    def publish(self, clock: Clock) -> None:
        order = self.order
        period, lead = timedelta(seconds=order["period"]), timedelta(seconds=order["lead"])
        window = timedelta(seconds=order["window"])
        begin = clock.now()
        for number, tick in enumerate(order["ticks"]):
            due = begin + number * period
            clock.wait_until(due - lead, self.stopping)
            if self.stopping.is_set():
                return
            now = clock.now()
            if order["mode"] == "facts":
                quads = [Quad(*quad) for quads in tick.values() for quad in quads]
                push_facts(order, quads, due + window, number)
            else:
                for sensor, quads in tick.items():
                    element = {"timestamp": format_instant(now), "triples": [q[:3] for q in quads]}
                    stream = order["url"] + quote(sensor, safe="")
                    push_lines(stream, order["token"], [json.dumps(element)])
            self.note(now)


class FollowedFeed:
    """Handles the orders of the process of a feed."""

    def __init__(self, kind: str) -> None:
        feeds: dict[str, Callable[[Mapping[str, Any]], BoardFeed]]
        feeds = {"board": RenewedBoard, "sensors": SensorFeed}
        self._kind = feeds[kind]
        self._feed: BoardFeed | None = None

    def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if order["do"] == "start":
            self._feed = self._kind(order)
            self._feed.start()
            self._feed.started.wait()
        elif self._feed is not None:
            self._feed.end()
            answer["sent"] = self._feed.sent
        if self._feed is not None and self._feed.error is not None:
            answer["error"] = self._feed.error
        return answer


_MOST_CONNECTIONS = 512


@cache
def _connections() -> requests.Session:
    """Return a session whose connections outlive a client, as those of Node do."""
    session = PooledSession(_MOST_CONNECTIONS)
    session.trust_env = False
    return session


def _rows_of_answer(question: Mapping[str, Any]) -> Iterator[list[str | None]]:
    with Client(question["url"], session=_connections()) as client:
        result = client.query(question["query"], timeout=question["limit"])
        if isinstance(result, Solutions):
            names = [f"?{name}" for name in result.variables]
            order = sorted(range(len(names)), key=names.__getitem__)
            for solution in result:
                yield [solution.row[column] for column in order]
        elif isinstance(result, Graph):
            for triple in result:
                yield [term.n3() for term in triple]
        else:
            yield [str(result).lower()]


def _answer(question: Mapping[str, Any]) -> dict[str, Any]:
    wall = time.perf_counter()
    try:
        answer: dict[str, Any] = {"rows": list(_rows_of_answer(question))}
    except ClientError as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    return answer | {"seconds": time.perf_counter() - wall}


def answer_questions(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer queries at once, each by a new client; return rows or an error."""
    cpu = time.process_time()
    with ThreadPoolExecutor(len(order["questions"])) as pool:
        answers = list(pool.map(_answer, order["questions"]))
    return {"answers": answers, "cpu": time.process_time() - cpu}
