"""Read files by HTTP, from any offset; a request that fails is sent five times in all."""

import io
import json
import time
from collections.abc import Callable, Container
from typing import Any, Final, TypeVar

import requests
import urllib3

ResultT = TypeVar("ResultT")
_SECONDS: Final = 30.0
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
_MISSING: Final = frozenset({404, 410})
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.2
"""Seconds before the second attempt; each further one waits twice as long."""
_BUFFER: Final = 1 << 20
MALFORMED: Final = (
    ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What reading JSON of another shape raises."""
_MAX_REFUSAL: Final = 1 << 16
"""Bytes that are read of the body of a refusal."""


class AgainError(OSError):
    """A request failed that may succeed when it is repeated."""


class MissingError(OSError):
    """The server has no such file."""


class ChangedError(OSError):
    """The file has changed since it was looked up."""

    def __init__(self) -> None:
        super().__init__("it has changed while it was read")


def asked_again(ask: Callable[[], ResultT]) -> ResultT:
    """Return the result of a request that is made five times at most."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return ask()
        except AgainError:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
    return ask()


def http_answer(
    method: str, url: str, accepted: Container[int] = range(200, 400), **options: Any
) -> requests.Response:
    """Return an answer of an accepted status, without reading its body."""
    # Where a file is compressed, its name says so; nothing else is to compress it.
    headers = {"Accept-Encoding": "identity", **options.pop("headers", {})}
    try:
        answer = requests.request(
            method, url, headers=headers, timeout=_SECONDS, stream=True, **options
        )
    except ValueError as error:  # also of requests: this, or where it redirects to, is no URL
        raise OSError(reason_of(error)) from None
    except requests.RequestException as error:
        raise AgainError(reason_of(error)) from None
    if answer.status_code in accepted:
        return answer
    with answer:
        raise _refusal(answer)


def _refusal(answer: requests.Response) -> OSError:
    try:
        body = answer.raw.read(_MAX_REFUSAL, decode_content=True)
        exception = json.loads(body)["RemoteException"]
        name, message = (f"{exception[key]}\n".splitlines()[0] for key in ("exception", "message"))
    except (*MALFORMED, urllib3.exceptions.HTTPError, OSError):
        name, message = "", f"HTTP {answer.status_code} {answer.reason}"
    if name == "FileNotFoundException":
        return FileNotFoundError(message)
    again = answer.status_code in _AGAIN or name in ("StandbyException", "RetriableException")
    kind = AgainError if again else MissingError if answer.status_code in _MISSING else OSError
    return kind(f"{name}: {message}" if name else message)


def reason_of(error: BaseException) -> str:
    """Return why a request failed, without names of Python objects."""
    match error:
        case requests.Timeout():
            return "no answer in time"
        case requests.exceptions.SSLError():
            return "no secure connection"
        case requests.ConnectionError() if "refused" in str(error):
            return "connection refused"
        case requests.ConnectionError():
            return "no connection"
        case requests.TooManyRedirects():
            return "too many redirections"
        case requests.exceptions.InvalidHeader():
            return "a header that cannot be sent"
        case ValueError():  # also of requests; or it redirects to such a one
            return "no URL that can be asked"
    return "an answer that is cut short or damaged"


def open_http(
    request: Callable[[int], requests.Response], size: int | None, parts: bool = True
) -> io.BufferedReader:
    """Open a file for reading, which may raise `OSError`."""
    return io.BufferedReader(_HttpFile(request, size, parts), _BUFFER)


class _HttpFile(io.RawIOBase):
    def __init__(
        self, request: Callable[[int], requests.Response], size: int | None, parts: bool
    ) -> None:
        self._request = request
        self._size = size
        self._parts = parts
        self._position = 0
        self._answer: requests.Response | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._parts

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if not self._parts or (whence == io.SEEK_END and self._size is None):
            raise io.UnsupportedOperation("the server gives this file only from its first byte on")
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size or 0}[whence]
        if begin + offset != self._position:
            self._end()
            self._position = begin + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        block = asked_again(lambda: self._more(len(view)))
        view[: len(block)] = block
        self._position += len(block)
        return len(block)

    def _more(self, most: int) -> bytes:
        if self._size is not None and self._position >= self._size:
            return b""
        if self._answer is None:
            self._answer = self._request(self._position)
        try:
            block: bytes = self._answer.raw.read(most, decode_content=False)
            if block or self._size is None:
                return block
            why = "an answer that is cut short"
        except (urllib3.exceptions.HTTPError, OSError) as error:
            why = reason_of(error)
        self._end()
        # A file that is not given in parts would begin anew.
        raise AgainError(why) if self._parts or not self._position else OSError(why)

    def close(self) -> None:
        self._end()
        super().close()

    def _end(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
