"""Bodies of requests: whole, within a limit, and few at a time."""

import hmac
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from flask import Request
from werkzeug.exceptions import ClientDisconnected

from tpf_server.errors import (
    BodyError,
    BodyTooLargeError,
    BusyError,
    ForbiddenError,
    LengthRequiredError,
    MediaTypeError,
    UnauthorizedError,
)
from tpf_server.workers import MOST_AT_ONCE

# Bearer tokens (RFC 6750): who may change what, and see what is not for everybody.


def authorize(request: Request, token: str, what: str) -> None:
    """See to it that a request carries a token.

    Args:
        request: the request.
        token: the right one; nobody has it where it is empty.
        what: what needs it, for the message.

    Raises:
        ForbiddenError: there is no right one.
        UnauthorizedError: the request carries none, or another one.
    """
    if not token:
        raise ForbiddenError(f"{what} is off: the server has no publish_token")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthorizedError(f"{what} needs Authorization: Bearer TOKEN")
    if not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise UnauthorizedError("this is not the right token")


class BodyReader:
    """Reads the bodies of requests of one worker.

    Args:
        limit: the most bytes that are taken.
        watched: a context while a body comes from an address, in which it is not waited for long.

    Attributes:
        limit: see above.
    """

    def __init__(
        self, limit: int, watched: Callable[[str], AbstractContextManager[None]] | None = None
    ) -> None:
        self.limit = limit
        self._watched = watched or nullcontext
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)

    def read(self, request: Request) -> bytes:
        """The whole body.

        Raises:
            LengthRequiredError: the request does not say how long its body is. A chunked body that
                broke off is handed over like a whole one, so half a batch would be published.
            BodyTooLargeError: the body is over the limit; none of it is read.
            BodyError: the body broke off.
            BusyError: too many bodies are arriving.
            MediaTypeError: the body is compressed, or in another encoding of characters than UTF-8.
        """
        _check_encoding(request)
        length = request.content_length
        if length is None:
            raise LengthRequiredError("a body needs its Content-Length; it cannot be chunked")
        if length > self.limit:
            raise BodyTooLargeError(f"a body has at most {self.limit} bytes, not {length}")
        if not self._free.acquire(blocking=False):
            raise BusyError(f"{MOST_AT_ONCE} bodies are arriving already; try again")
        try:
            with self._watched(request.remote_addr or ""):
                body = request.stream.read(length)
        except (ClientDisconnected, OSError):
            body = b""
        finally:
            self._free.release()
        if len(body) < length:
            raise BodyError(f"the body ended before its Content-Length of {length} bytes")
        return body


def _check_encoding(request: Request) -> None:
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding != "identity":
        raise MediaTypeError(f"a body cannot be encoded ({coding}) here: send it as it is")
    # All formats of RDF are UTF-8; read as that, another encoding could be taken for other text.
    charset = request.mimetype_params.get("charset", "utf-8")
    if charset.lower() not in ("utf-8", "us-ascii"):
        raise MediaTypeError(f"a body is in UTF-8, not in {charset}")
