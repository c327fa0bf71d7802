"""A process with some of the clients of a board: query streamers, or readers of a server's results.

It follows one order per line of standard input, for so many seconds, and answers with a line:
``arrivals`` holds ``[query, renewal, instant, rows]`` for whatever reached an answer.
"""

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urljoin

import requests

from experiments.workloads.board import number_of
from tpf_client import Client
from tpf_client.errors import ClientError
from tpf_client.stream import Update

_REQUEST_SECONDS = 60.0


@dataclass(slots=True)
class Seen:
    """What reached the answers."""

    arrivals: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    requests: int = 0
    bytes: int = 0
    updates: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, query: int, delays: list[str]) -> None:
        """An answer got rows with these delays."""
        now = time.time()
        numbers = [number_of(delay) for delay in delays]
        with self._lock:
            self.updates += 1
            for number in set(numbers):
                at, rows = self.arrivals.get((query, number), (now, 0))
                self.arrivals[query, number] = (at, rows + numbers.count(number))

    def fail(self, reason: str) -> None:
        """Something went wrong."""
        with self._lock:
            self.errors.append(reason)

    def to_json(self) -> dict[str, Any]:
        """What the process answers with."""
        with self._lock:
            return {
                "arrivals": [
                    [query, number, at, rows]
                    for (query, number), (at, rows) in self.arrivals.items()
                ],
                "errors": self.errors[:3],
                "failed": len(self.errors),
                "requests": self.requests,
                "bytes": self.bytes,
                "updates": self.updates,
            }


def stream(order: Mapping[str, Any], seen: Seen) -> None:
    """Keep answers up to date over fragments: one client with many continuous queries."""
    until = time.monotonic() + order["seconds"]
    with Client(order["url"]) as client:
        streams = []
        for number, query in enumerate(order["queries"]):
            found = client.stream(query, jitter=order["jitter"])
            streams.append(found.start(partial(_updated, seen, number)))
        time.sleep(max(0.0, until - time.monotonic()))
        for each in streams:
            each.close()
        statistics = client.statistics
    seen.requests, seen.bytes = statistics.requests, statistics.bytes


def _updated(seen: Seen, query: int, update: Update) -> None:
    if update.error is not None:
        seen.fail(str(update.error))
        return
    place = update.variables.index("delay")
    rows = [solution.row[place] for solution in update.added]
    seen.add(query, [delay for delay in rows if delay is not None])


def read(order: Mapping[str, Any], seen: Seen) -> None:
    """Register queries at the server and read their results as they come."""
    until = time.monotonic() + order["seconds"]
    readers = [_Reader(order, number, seen) for number in range(len(order["queries"]))]
    for reader in readers:
        reader.start()
    time.sleep(max(0.0, until - time.monotonic()))
    for reader in readers:
        reader.stop()
    for reader in readers:
        reader.join(_REQUEST_SECONDS)


class _Reader(threading.Thread):
    """Registers a query and reads its results until the query is stopped."""

    def __init__(self, order: Mapping[str, Any], number: int, seen: Seen) -> None:
        super().__init__(daemon=True)
        self._order, self._number, self._seen = order, number, seen
        self._authorization = {"Authorization": f"Bearer {order['token']}"}
        self._url: str | None = None
        self._stopping = False

    def run(self) -> None:
        try:
            self._url = self._register()
            if self._url is not None:
                self._follow(self._url)
        except requests.RequestException as error:
            self._seen.fail(str(error))

    def stop(self) -> None:
        """Have the server stop the query, which ends its results; it says so to its reader."""
        self._stopping = True
        if self._url is not None:
            try:
                requests.delete(self._url, headers=self._authorization, timeout=_REQUEST_SECONDS)
            except requests.RequestException as error:
                self._seen.fail(str(error))

    def _register(self) -> str | None:
        made = requests.post(
            f"{self._order['url']}queries",
            data=self._order["queries"][self._number].encode(),
            headers=self._authorization | {"Content-Type": "application/sparql-query"},
            timeout=_REQUEST_SECONDS,
        )
        if made.status_code != 201:
            self._seen.fail(f"{made.status_code}: {made.text[:200]}")
            return None
        return urljoin(str(self._order["url"]), made.headers["Location"])

    def _follow(self, url: str) -> None:
        headers = {"Accept": "application/x-ndjson"}
        with requests.get(
            f"{url}/results", stream=True, headers=headers, timeout=_REQUEST_SECONDS
        ) as results:
            for line in results.iter_lines(chunk_size=None):
                if line and not self._stopping:
                    self._seen.bytes += len(line)
                    _emitted(self._seen, self._number, json.loads(line))


def _emitted(seen: Seen, query: int, emission: Mapping[str, Any]) -> None:
    if "error" in emission:
        seen.fail(str(emission["error"]))
        return
    rows = emission.get("added", [])
    delays = [row.get("delay", row.get("?delay")) for row in rows]
    seen.add(query, [delay for delay in delays if delay is not None])


def main() -> None:
    """Follow orders until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        seen = Seen()
        try:
            (stream if order["mode"] == "facts" else read)(order, seen)
        except (ClientError, OSError) as error:
            seen.fail(f"{type(error).__name__}: {error}")
        sys.stdout.write(json.dumps({**seen.to_json(), "id": order["id"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
