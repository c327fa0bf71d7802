"""A proxy process that delays what clients send, and counts requests and bytes.

The order ``{"delay": 20.0}`` (milliseconds) is answered with the counts since the last one.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.harness.processes import LOOPBACK

_CHUNK = 1 << 16
_MOST_CONNECTIONS = 8192


@dataclass(slots=True)
class Passed:
    """Counts of requests, response bytes with heads, and new connections."""

    requests: int = 0
    bytes: int = 0
    connections: int = 0


class DelayProxy:
    """A proxy from a loopback port to the server's."""

    def __init__(self, target: str, port: str) -> None:
        self._target = int(target)
        self._open = 0
        self._delay = 0.0
        self._passed = Passed()
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        listening = asyncio.start_server(
            self._connected, LOOPBACK, int(port), backlog=_MOST_CONNECTIONS
        )
        self._server = asyncio.run_coroutine_threadsafe(listening, loop).result()

    def __call__(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set the delay and return the counts since the last order."""
        answer, self._passed = self._passed, Passed()
        self._delay = order["delay"] / 1000
        return asdict(answer)

    async def _connected(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        if self._open >= _MOST_CONNECTIONS:
            to_client.close()
            return
        self._open += 1
        self._passed.connections += 1
        try:
            if self._delay:
                await asyncio.sleep(self._delay)
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
                self._passed.requests += 1
            if self._delay:
                await asyncio.sleep(self._delay)
            sink.write(chunk)
            await sink.drain()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(_CHUNK):
                self._passed.bytes += len(chunk)
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()
