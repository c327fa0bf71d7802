"""Bodies of requests: whole, within a limit, within a time."""

import threading

from flask import Request
from werkzeug.exceptions import ClientDisconnected

from tpf_server.errors import (
    BodyError,
    BodyTimeoutError,
    BodyTooLargeError,
    LengthRequiredError,
)


def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The body of a request.

    Args:
        request: the request.
        limit: the most bytes that are taken.
        seconds: how long the body may take to arrive. A server has few threads, and a client that
            vanished without a word would hold one of them for ever.

    Raises:
        LengthRequiredError: the request does not say how long its body is. A chunked body that
            broke off is handed over like a whole one, so half a batch would be published.
        BodyTooLargeError: the body is over the limit; none of it is read.
        BodyError: the body broke off.
        BodyTimeoutError: the body did not arrive in time.
    """
    length = request.content_length
    if length is None:
        raise LengthRequiredError("a body needs its Content-Length; it cannot be chunked")
    if length > limit:
        raise BodyTooLargeError(f"a body has at most {limit} bytes, not {length}")
    stream = request.stream
    received: list[bytes] = []

    def receive() -> None:
        try:
            received.append(stream.read(length))
        except (ClientDisconnected, OSError):
            received.append(b"")

    # Such a read cannot be interrupted; the thread ends when the connection does.
    reader = threading.Thread(target=receive, name="body", daemon=True)
    reader.start()
    reader.join(seconds)
    if not received:
        raise BodyTimeoutError(f"the body of {length} bytes did not arrive in {seconds:g} seconds")
    if len(received[0]) < length:
        raise BodyError(f"the body ended before its Content-Length of {length} bytes")
    return received[0]
