r"""A process that sends requests to a loopback server, over connections that stay open.

{"id": 1, "port": 1, "connections": 2, "seconds": 1.0, "status": 200, "pause": 0.0,
 "requests": ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", …]}
{"id": 1, "latencies": [0.001, …], "bytes": 123, "head_bytes": 456, "seconds": 1.0}
"""

import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.errors import MeasurementError
from experiments.harness.processes import LOOPBACK

_MAX_SECONDS = 120.0
_PATIENCE = 60.0


class _Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=_PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0.0
        self._received = bytearray()

    def send(self, request: bytes) -> None:
        self._received.clear()
        self.sent = time.perf_counter()
        self.socket.sendall(request)

    @property
    def head_bytes(self) -> int:
        return self._received.find(b"\r\n\r\n") + 4

    def receive(self) -> tuple[int, int] | None:
        """Read available bytes; return status and body size of a complete response."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise MeasurementError("the server closed a connection")
        self._received += piece
        return read_response(self._received)


def read_response(received: bytes | bytearray) -> tuple[int, int] | None:
    """Return status and body size of a response, if complete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end])
    if not head.startswith(b"HTTP/1.1 "):
        raise MeasurementError(f"not HTTP/1.1: {head[:40]!r}")
    status = int(head[9:12])
    fields = dict(line.partition(b":")[::2] for line in head.lower().split(b"\r\n")[1:])
    begin = end + 4
    if status in (204, 304):
        return status, 0
    if b"content-length" in fields:
        length = int(fields[b"content-length"])
        return (status, length) if len(received) >= begin + length else None
    if b"chunked" not in fields.get(b"transfer-encoding", b""):
        raise MeasurementError("a response without a length")
    if not received.endswith(b"0\r\n\r\n"):
        return None
    size = 0
    while True:
        line_end = received.find(b"\r\n", begin)
        if line_end < 0:
            return None
        length = int(bytes(received[begin:line_end]), 16)
        begin = line_end + 2 + length + 2
        if begin > len(received):
            return None
        if length == 0:
            return status, size
        size += length


def generate(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    status: int = 200,
    pause: float = 0.0,
) -> Mapping[str, Any]:
    """Send the requests in a loop until time is up."""
    opened = [_Connection(port) for _ in range(connections)]
    latencies: list[float] = []
    total, heads, turn = 0, 0, 0
    try:
        with selectors.DefaultSelector() as selector:
            begin = time.perf_counter()
            until = begin + min(seconds, _MAX_SECONDS)
            for connection in opened:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
                connection.send(requests[turn % len(requests)])
                turn += 1
            waiting = len(opened)
            while waiting:
                ready = selector.select(_PATIENCE)
                if not ready:
                    raise MeasurementError(f"no answer in {_PATIENCE:g} s")
                for key, _ in ready:
                    connection = key.data
                    answer = connection.receive()
                    if answer is None:
                        continue
                    now = time.perf_counter()
                    if answer[0] != status:
                        raise MeasurementError(f"status {answer[0]} instead of {status}")
                    latencies.append(now - connection.sent)
                    total += answer[1]
                    heads += connection.head_bytes
                    if now < until:
                        if pause:
                            time.sleep(pause)
                        connection.send(requests[turn % len(requests)])
                        turn += 1
                    else:
                        waiting -= 1
            return {
                "latencies": latencies, "bytes": total, "head_bytes": heads,
                "seconds": now - begin,
            }  # fmt: skip
    finally:
        for connection in opened:
            connection.socket.close()


def follow_order(order: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send the requests of an order."""
    try:
        return generate(
            order["port"], [text.encode("latin-1") for text in order["requests"]],
            connections=order["connections"], seconds=order["seconds"],
            status=order["status"], pause=order["pause"],
        )  # fmt: skip
    except (MeasurementError, OSError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
