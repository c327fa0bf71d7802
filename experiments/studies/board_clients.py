"""A process with some of the clients: query streamers, or readers of a server's results.

It follows orders, a line of JSON each, and answers each with a line that repeats its ``id``:

=================  ==========================================================================
``start``          starts the queries; answered when each has its first answer (or failed, or is
                   followed, where the server evaluates it; with ``answered``, not before it has)
``mark``           answered with what was received so far
``stop``           ends them; ``arrivals`` holds ``[query, what, instant, rows]`` for whatever
                   reached an answer: renewals of the board by their number (in ``?delay``),
                   observations of sensors by their IRI (in ``?obId…``)
=================  ==========================================================================
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urljoin

import requests

from experiments.harness.wire import WireBytes
from experiments.workloads.board import number_of
from tpf_client import Client
from tpf_client.errors import ClientError
from tpf_client.stream import Update

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
    """What reached the answers.

    Args:
        queries: how many there are.
        whole: whether each answer is a whole one; otherwise rows of a renewal add up.
    """

    queries: int
    whole: bool = False
    arrivals: dict[tuple[int, What], tuple[float, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    updates: int = 0
    ready: threading.Event = field(default_factory=threading.Event)
    _begun: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, query: int) -> None:
        """A query has its first answer, or will never have one."""
        with self._lock:
            self._begun.add(query)
            if len(self._begun) >= self.queries:
                self.ready.set()

    def add(self, query: int, rows: Iterable[Iterable[tuple[str, str]]]) -> None:
        """An answer got rows, each of variables with their terms."""
        now = time.time()
        found: Counter[What] = Counter()
        for row in rows:
            found.update(_what(row))
        with self._lock:
            self.updates += 1
            for what, more in found.items():
                at, before = self.arrivals.get((query, what), (now, 0))
                self.arrivals[query, what] = (
                    at,
                    max(before, more) if self.whole else before + more,
                )

    def fail(self, query: int, reason: str) -> None:
        """Something went wrong with a query."""
        with self._lock:
            self.errors.append(reason)
        self.begin(query)

    def to_json(self) -> dict[str, Any]:
        """What the process answers with in the end."""
        with self._lock:
            return {
                "arrivals": [
                    [query, what, at, rows] for (query, what), (at, rows) in self.arrivals.items()
                ],
                "errors": self.errors[:3],
                "failed": len(self.errors),
                "updates": self.updates,
            }


class Streamers:
    """Query streamers over fragments.

    Each query has a client of its own, as users far from each other have, or all share one, as
    those of one application do.
    """

    def __init__(self, order: Mapping[str, Any], seen: Seen) -> None:
        self._seen = seen
        self._open = ExitStack()
        queries, signal = order["queries"], order.get("signal", False)
        if order["shared"]:
            client = self._open.enter_context(Client(order["url"], signal=signal))
            self._clients = [client] * len(queries)
        else:
            self._clients = [
                self._open.enter_context(
                    Client(order["url"], parallelism=_PARALLELISM, signal=signal)
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
        """How many were sent so far."""
        return sum(client.statistics.requests for client in set(self._clients))

    def close(self) -> None:
        """End them."""
        self._open.close()


class Readers:
    """Registers queries at the server, and reads their results as they come."""

    def __init__(self, order: Mapping[str, Any], seen: Seen) -> None:
        self._each = [_Reader(order, number, seen) for number in range(len(order["queries"]))]
        for reader in self._each:
            reader.start()

    @property
    def requests(self) -> int:
        """How many were sent so far."""
        return sum(reader.requests for reader in self._each)

    def close(self) -> None:
        """Stop reading; the server with its queries is ended by whoever started it."""
        for reader in self._each:
            reader.stopping = True


class _Reader(threading.Thread):
    """Registers a query and reads its results until the connection ends."""

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


def follow_boards(read: Callable[[], str], write: Callable[[Mapping[str, Any]], None]) -> None:
    """Follow orders until there are none any more."""
    wire = WireBytes()
    wire.install()
    running: Streamers | Readers | None = None
    seen = Seen(0)
    before = 0
    while line := read():
        order = json.loads(line)
        answer: dict[str, Any] = {"id": order["id"]}
        match order["do"]:
            case "start":
                seen = Seen(len(order["queries"]), order["whole"])
                before = wire.received
                running = None
                try:
                    running = (Streamers if order["mode"] == "facts" else Readers)(order, seen)
                    answer["ready"] = not order["queries"] or seen.ready.wait(order["patience"])
                except (ClientError, OSError) as error:
                    seen.fail(0, f"{type(error).__name__}: {error}")
            case "stop":
                answer |= _counts(running, wire, before)
                if running is not None:
                    running.close()
                wire.shut()
                answer |= seen.to_json()
                running = None
            case _:
                answer |= _counts(running, wire, before)
        write(answer)


def _counts(running: Streamers | Readers | None, wire: WireBytes, before: int) -> dict[str, int]:
    requests = 0 if running is None else running.requests
    return {"requests": requests, "bytes": wire.received - before}


def main() -> None:
    """Follow orders until standard input ends."""

    def write(answer: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    follow_boards(sys.stdin.readline, write)


if __name__ == "__main__":
    main()
