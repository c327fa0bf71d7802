"""A process between client and server that adds latency, and counts requests and bytes.

It passes bytes on between loopback ports. What a client sends arrives so many milliseconds later,
as over a network with that round trip; a new connection costs one round trip, too. A line on
standard input, the delay in milliseconds, is answered by a line with what passed since the last
one: ``{"requests": 1, "bytes": 2, "connections": 3}``. Clients are counted on that send one
request at a time over each connection.
"""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass

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


async def _run(target: int, port: int) -> None:
    proxy = DelayProxy(target)
    loop = asyncio.get_running_loop()
    async with await proxy.serve(port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            answer, proxy.passed = proxy.passed, Passed()
            proxy.delay = float(line) / 1000
            sys.stdout.write(json.dumps(asdict(answer)) + "\n")
            sys.stdout.flush()


def main() -> None:
    """``delay_proxy TARGET PORT``: until standard input ends."""
    asyncio.run(_run(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
