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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def _what(row: Iterable[tuple[str, str | None]]) -> Iterator[What]:
    for name, term in row:
        if term is not None and name == "delay":
            yield number_of(term)
        elif term is not None and name.startswith("obId"):
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

    def add(self, query: int, rows: Iterable[Iterable[tuple[str, str | None]]]) -> None:
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
            self._clients = [Client(order["url"])] * len(queries)
        else:
            self._clients = [
                Client(order["url"], parallelism=_PARALLELISM, session=session) for _ in queries
            ]
        for each in self._clients:
            self._open.callback(each.close)
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
        names = update.variables
        self._seen.add(query, (zip(names, each.row, strict=True) for each in update.added))
        self._seen.begin(query)

    @property
    def requests(self) -> int:
        return sum(client.statistics.requests for client in set(self._clients))

    def close(self) -> None:
        self._open.close()


class Readers:
    """Register queries at the server and read their results."""

    def __init__(self, order: Mapping[str, Any], seen: Seen) -> None:
        self._order, self._seen = order, seen
        self._authorization = {"Authorization": f"Bearer {order['token']}"}
        self._asked: list[str] = []
        self._stopping = False
        for number in range(len(order["queries"])):
            threading.Thread(target=self._read, args=(number,), daemon=True).start()

    @property
    def requests(self) -> int:
        return len(self._asked)

    def close(self) -> None:
        """Stop reading; the server is stopped by its owner."""
        self._stopping = True

    def _read(self, number: int) -> None:
        try:
            self._follow(number, self._register(self._order["queries"][number]))
            self._fail(number, "the results ended")
        except (MeasurementError, requests.RequestException) as error:
            self._fail(number, str(error))

    def _fail(self, number: int, reason: str) -> None:
        if not self._stopping:
            self._seen.fail(number, reason)

    def _register(self, query: str) -> str:
        patience = time.monotonic() + self._order["patience"]
        url = f"{self._order['url']}queries"
        headers = self._authorization | {"Content-Type": "application/sparql-query"}
        while True:
            self._asked.append(url)
            made = requests.post(
                url, data=query.encode(), headers=headers, timeout=_REQUEST_SECONDS
            )
            if made.status_code == HTTPStatus.CREATED:
                return urljoin(url, made.headers["Location"])
            # A server takes few bodies at a time, and says so to the others.
            if made.status_code != 503 or time.monotonic() > patience:
                raise MeasurementError(f"{made.status_code}: {made.text[:200]}")
            time.sleep(_AGAIN_SECONDS * random.uniform(0.5, 1.5))

    def _follow(self, number: int, url: str) -> None:
        self._asked.append(url)
        headers = {"Accept": "application/x-ndjson"}
        with requests.get(
            f"{url}/results", stream=True, headers=headers, timeout=_REQUEST_SECONDS
        ) as results:
            if results.status_code != HTTPStatus.OK:
                raise MeasurementError(f"{results.status_code}: {results.text[:200]}")
            if not self._order.get("answered"):
                self._seen.begin(number)
            for line in results.iter_lines(chunk_size=None):
                if line and not self._stopping:
                    self._emitted(number, json.loads(line))

    def _emitted(self, number: int, emission: Mapping[str, Any]) -> None:
        if "error" in emission:
            self._fail(number, str(emission["error"]))
            return
        rows = emission.get("result", emission.get("added", []))
        self._seen.add(number, (row.items() for row in rows))
        self._seen.begin(number)


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


def _ticks(order: Mapping[str, Any]) -> Iterator[Mapping[str, Sequence[Sequence[Quad]]]]:
    """Renewals of a board, or readings of sensors, by stream."""
    for tick in order.get("ticks", ()):
        yield {sensor: [[Quad(*quad) for quad in quads]] for sensor, quads in tick.items()}
    if "departures" in order:
        for number in range(1 + int(order["seconds"] / order["period"])):
            yield {"": [[quad] for quad in renewal(order["departures"], number)]}


class BoardFeed(threading.Thread):
    """Publish each tick as facts or as elements of streams, until stopped.

    `sent` are the times of the batches, in seconds since 1970.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(daemon=True)
        self.sent: list[float] = []
        self.error: str | None = None
        self.started = threading.Event()
        self._order = order
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self.publish(SystemClock())
        except _FAILURES as error:
            self.error = f"{type(error).__name__}: {error}"
        self.started.set()

    def end(self) -> None:
        self._stopping.set()
        self.join()

    def publish(self, clock: Clock) -> None:
        """Publish until stopped."""
        order = self._order
        period, lead, window = (
            timedelta(seconds=order[name]) for name in ("period", "lead", "window")
        )
        begin = clock.now()
        for number, tick in enumerate(_ticks(order)):
            due = begin + number * period
            clock.wait_until(due - lead, self._stopping)
            if self._stopping.is_set():
                return
            now = clock.now()
            if order["mode"] == "facts":
                quads = [
                    quad for elements in tick.values() for element in elements for quad in element
                ]
                end = due + window
                try:
                    push_facts(order, quads, end, number)
                except PublishRefusedError as error:
                    # A server without time for it until it was over has lost it; the next may come.
                    if error.status != HTTPStatus.UNPROCESSABLE_ENTITY or clock.now() < end:
                        raise
            else:
                for stream, elements in tick.items():
                    lines = [
                        json.dumps(
                            {"timestamp": format_instant(now), "triples": [q[:3] for q in e]}
                        )
                        for e in elements
                    ]
                    push_lines(order["url"] + quote(stream, safe=""), order["token"], lines)
            self.sent.append(now.timestamp())
            self.started.set()


class FollowedFeed:
    """Handles the orders of the process of a feed."""

    def __init__(self) -> None:
        self._feed: BoardFeed | None = None

    def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        if order["do"] == "start":
            self._feed = BoardFeed(order)
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
