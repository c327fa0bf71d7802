"""A process that renews a board in a fixed period: labelled facts, or elements of a stream.

It follows orders, a line of JSON each. ``start`` is answered when the first renewal is published,
``stop`` with the instants at which each was sent.
"""

import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from annotations.clock import Clock, SystemClock
from annotations.instants import format_instant
from annotations.labels import Expiration
from annotations.terms import Quad
from experiments.errors import MeasurementError
from experiments.workloads.board import renewal
from loaders.errors import LoaderError, PublishRefusedError
from loaders.publisher import Publisher

_AGAIN = Retry(
    60, connect=0, read=0, status_forcelist=[503], allowed_methods=None, backoff_factor=0.05,
    backoff_max=1.0, respect_retry_after_header=False, raise_on_status=False,
)  # fmt: skip
_FAILURES = (LoaderError, MeasurementError, OSError)


def push_facts(order: Mapping[str, Any], quads: list[Quad], end: datetime, number: int) -> None:
    """Publish facts that hold until an instant.

    Raises:
        LoaderError: the server refuses them, or cannot be reached.
    """
    publisher = Publisher(order["url"], SystemClock(), order["token"])
    try:
        publisher.publish(tuple(quads), Expiration(end), f"renewal-{number}")
    finally:
        publisher.close()


def push_elements(order: Mapping[str, Any], quads: list[Quad], at: datetime) -> None:
    """Push each fact as an element of a stream.

    Raises:
        MeasurementError: the server refuses them.
        requests.RequestException: it cannot be reached.
    """
    timestamp = format_instant(at)
    lines = [json.dumps({"timestamp": timestamp, "triple": list(quad[:3])}) for quad in quads]
    push_lines(order["url"], order["token"], lines)


def push_lines(url: str, token: str, lines: Sequence[str]) -> None:
    """Push elements to a stream, a line of JSON each; again where the server has no time for them.

    Raises:
        MeasurementError: the server refuses them.
        requests.RequestException: it cannot be reached.
    """
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
    """Publishes until it is stopped.

    Args:
        order: what to do.

    Attributes:
        sent: when each batch was sent, in seconds since 1970.
        error: why it ended too early.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(daemon=True)
        self.sent: list[float] = []
        self.error: str | None = None
        self.started = threading.Event()
        self.order = order
        self.stopping = threading.Event()

    def run(self) -> None:
        """Publish until stopped."""
        try:
            self.publish(SystemClock())
        except _FAILURES as error:
            self.error = f"{type(error).__name__}: {error}"
        self.started.set()

    def end(self) -> None:
        """Stop it."""
        self.stopping.set()
        self.join()

    @abstractmethod
    def publish(self, clock: Clock) -> None:
        """Publish until stopped, and call `note` for each batch."""

    def note(self, sent: datetime) -> None:
        """A batch was sent."""
        self.sent.append(sent.timestamp())
        self.started.set()


class RenewedBoard(BoardFeed):
    """Renews the board, at the longest for so many seconds."""

    def publish(self, clock: Clock) -> None:
        """Publish a renewal in every period."""
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


def follow(kind: type[BoardFeed]) -> None:
    """Follow orders until standard input ends."""
    feed: BoardFeed | None = None
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {"id": order["id"]}
        if order["do"] == "start":
            feed = kind(order)
            feed.start()
            feed.started.wait()
        elif feed is not None:
            feed.end()
            answer["sent"] = feed.sent
        if feed is not None and feed.error is not None:
            answer["error"] = feed.error
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    follow(RenewedBoard)
