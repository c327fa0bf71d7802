"""A process between client and server that adds latency, and counts requests and bytes.

It passes bytes on between loopback ports. What a client sends arrives so many milliseconds later,
as over a network with that round trip; a new connection costs one round trip, too. An order,
``{"delay": 20.0}`` (milliseconds), is answered with what passed since the last one:
``{"requests": 1, "bytes": 2, "connections": 3}``. Clients are counted on that send one request at a
time over each connection.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.harness.processes import LOOPBACK

_CHUNK = 1 << 16
_MOST_CONNECTIONS = 512


@dataclass(slots=True)
class Passed:
    """What passed: requests, bytes of responses with their heads, new connections."""

    requests: int = 0
    bytes: int = 0
    connections: int = 0


class DelayProxy:
    """The proxy.

    Args:
        target: port of the server.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = 0
        self.delay = 0.0
        self.passed = Passed()

    async def serve(self, port: int) -> asyncio.Server:
        """Listen on a port of the loopback interface."""
        return await asyncio.start_server(self._connected, LOOPBACK, port)

    async def _connected(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        if self._open >= _MOST_CONNECTIONS:
            to_client.close()
            return
        self._open += 1
        self.passed.connections += 1
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            from_server, to_server = await asyncio.open_connection(LOOPBACK, self._target)
            answers = asyncio.create_task(self._answers(from_server, to_client))
            try:
                await self._requests(from_client, to_server)
            finally:
                to_server.close()
                await answers
        except OSError:
            pass  # a side has gone; so does the other
        finally:
            self._open -= 1
            to_client.close()

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(_CHUNK):
            if chunk.startswith(b"GET "):
                self.passed.requests += 1
            if self.delay:
                await asyncio.sleep(self.delay)
            sink.write(chunk)
            await sink.drain()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(_CHUNK):
                self.passed.bytes += len(chunk)
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


def proxy(target: str, port: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """What the process does with its orders; it listens when this returns."""
    passing = DelayProxy(int(target))
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(passing.serve(int(port)), loop).result()

    def handle(order: Mapping[str, Any]) -> Mapping[str, Any]:
        answer, passing.passed = passing.passed, Passed()
        passing.delay = order["delay"] / 1000
        return asdict(answer)

    return handle
