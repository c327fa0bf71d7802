"""A process that renews a board in a fixed period: labelled facts, or elements of a stream.

It follows one order per line of standard input, says ``{"id": …, "started": true}`` when the first
renewal is published, and in the end when each was sent: ``{"id": …, "sent": [instant, …]}``.
"""

import json
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import requests

from annotations.clock import SystemClock
from annotations.instants import format_instant
from annotations.labels import Expiration
from annotations.terms import Quad
from experiments.errors import MeasurementError
from experiments.workloads.board import renewal
from loaders.errors import LoaderError
from loaders.publisher import Publisher


def publish_facts(order: Mapping[str, Any], quads: list[Quad], end: datetime, number: int) -> None:
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
    response = requests.post(
        order["url"], data="\n".join(lines).encode(), timeout=30,
        headers={
            "Authorization": f"Bearer {order['token']}", "Content-Type": "application/x-ndjson",
        },
    )  # fmt: skip
    if not response.ok:
        raise MeasurementError(f"elements are refused: {response.status_code} {response.text}")


def follow(order: Mapping[str, Any]) -> dict[str, Any]:
    """Renew the board until the time is over.

    Raises:
        LoaderError: the server refuses a renewal.
        MeasurementError: the same, for a stream.
        OSError: it cannot be reached.
    """
    clock = SystemClock()
    period, lead = timedelta(seconds=order["period"]), timedelta(seconds=order["lead"])
    begin = clock.now()
    until = begin + timedelta(seconds=order["seconds"])
    stop = threading.Event()
    sent: list[float] = []
    for number in range(1 + int(order["seconds"] / order["period"])):
        due = begin + number * period - (lead if number else timedelta(0))
        if due > until:
            break
        clock.wait_until(due, stop)
        quads = list(renewal(order["departures"], number))
        now = clock.now()
        if order["mode"] == "facts":
            publish_facts(order, quads, begin + (number + 1) * period, number)
        else:
            push_elements(order, quads, now)
        sent.append(now.timestamp())
        if number == 0:
            sys.stdout.write(json.dumps({"id": order["id"], "started": True}) + "\n")
            sys.stdout.flush()
    return {"sent": sent}


def main() -> None:
    """Follow orders until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = follow(order)
        except (LoaderError, MeasurementError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps({**answer, "id": order["id"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
