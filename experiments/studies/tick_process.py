"""A process that follows one continuous query with our client and reports its cost.

Arguments: the dataset, the query, the number of updates, and the period of a stream that mostly
finds nothing new. Prints requests and milliseconds of CPU as JSON; without arguments, those of the
import.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any


def main() -> None:
    """Import the client, and follow the query."""
    began = time.process_time()
    from tpf_client import Client  # noqa: F401

    result: dict[str, Any] = {"import": 1000 * (time.process_time() - began)}
    if sys.argv[1:]:
        url, query, count, every = sys.argv[1:]
        result |= _follow(url, query, int(count), float(every))
    sys.stdout.write(json.dumps(result) + "\n")


def _follow(url: str, query: str, count: int, every: float) -> dict[str, Any]:
    # That of streams comes with the first of them, and is no part of its start.
    import tpf_client.streaming.streamer  # noqa: F401
    from tpf_client import Client
    from tpf_client.stream import Stream, Update

    def timed(stream: Stream) -> Iterator[tuple[float, Update]]:
        updates = iter(stream)
        while True:
            before = time.process_time()
            update = next(updates)
            yield 1000 * (time.process_time() - before), update

    result: dict[str, Any] = {}
    began = time.process_time()
    with Client(url) as client:
        ticks = timed(client.stream(query))
        _, first = next(ticks)
        result["start"] = 1000 * (time.process_time() - began)
        result["rows"] = len(first.added)
        result["requests_start"] = before = client.statistics.requests
        result["ticks"] = [next(ticks)[0] for _ in range(count)]
        result["requests_ticks"] = client.statistics.requests - before
    with Client(url) as client:
        looks = timed(client.stream(query, every=every, jitter=0.0, quiet=True))
        next(looks)
        unchanged: list[float] = []
        while len(unchanged) < count:
            cost, update = next(looks)
            if not update.added and not update.removed:
                unchanged.append(cost)
    return result | {"unchanged": unchanged}


if __name__ == "__main__":
    main()
