"""Files at a web server, read from any place in them where the server gives parts.

A request that is refused with 408, 429 or 5xx, or breaks off, is made again from where it came to,
five times in all.
"""

import io
from typing import Any, Final, NamedTuple, TypeVar

import requests
import urllib3

from loaders.fetching import reason_of
from tpf_server.store.static.attempts import AgainError, asked_again

AnswerT = TypeVar("AnswerT")
_SECONDS: Final = 30.0
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
_MISSING: Final = frozenset({404, 410})


class MissingError(OSError):
    """The server has no such file."""


class WebFile(NamedTuple):
    """What a web server says of a file.

    Args:
        size: its bytes; ``None``: it does not say.
        parts: whether it gives parts of it.
        tag: what changes when the file does; ``None``: it does not say.
    """

    size: int | None
    parts: bool
    tag: str | None


def found_at(url: str) -> WebFile:
    """What the server of a file says of it.

    Raises:
        MissingError: there is no such file.
        OSError: the server does not answer, or refuses.
    """
    with requests.Session() as session:
        headers = {"Range": "bytes=0-0"}
        with asked_again(lambda: _answer(session, url, headers)) as answer:
            tag = _tag(answer)
            if answer.status_code == 200:
                length = answer.headers.get("Content-Length", "")
                return WebFile(int(length) if length.isdecimal() else None, False, tag)
            # Of an empty file there is no first byte (416).
            size = answer.headers.get("Content-Range", "").rpartition("/")[2]
            return WebFile(int(size) if size.isdecimal() else None, size.isdecimal(), tag)


def open_at(url: str, file: WebFile) -> io.BufferedReader:
    """The bytes of a file; reading raises `OSError` where the server does not give them."""
    return io.BufferedReader(_Body(url, file), 1 << 20)


class _Body(io.RawIOBase):
    def __init__(self, url: str, file: WebFile) -> None:
        self._url = url
        self._file = file
        self._position = 0
        self._session = requests.Session()
        self._answer: requests.Response | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.parts

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or not self._file.parts:
            raise io.UnsupportedOperation("a web server gives files from a place on")
        self._end()
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        found = asked_again(lambda: self._more(len(view)))
        view[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _more(self, most: int) -> bytes:
        if self._position == self._file.size:
            return b""
        try:
            found: bytes = self._opened().raw.read(most, decode_content=False)
            if found or self._file.size is None:
                return found
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._end()
            if isinstance(error, (AgainError, _ChangedError)):
                raise
            raise self._broken(reason_of(error)) from None
        self._end()
        raise self._broken("an answer that is cut short")

    def _broken(self, why: str) -> OSError:
        # What is not told in parts would begin anew.
        return AgainError(why) if self._file.parts or not self._position else OSError(why)

    def close(self) -> None:
        self._end()
        self._session.close()
        super().close()

    def _opened(self) -> requests.Response:
        if self._answer is None:
            headers = {"Range": f"bytes={self._position}-"} if self._position else {}
            answer = _answer(self._session, self._url, headers)
            self._answer = answer
            if answer.status_code != (206 if headers else 200) or not self._goes_on(answer):
                raise _ChangedError("it has changed while it was read")
        return self._answer

    def _goes_on(self, answer: requests.Response) -> bool:
        """Whether what comes is of the file that was found, and from the place where we are."""
        size = str(self._file.size)
        if self._position:
            place, _, whole = answer.headers.get("Content-Range", "").partition("/")
            fits = place.startswith(f"bytes {self._position}-") and whole in (size, "*")
        else:
            fits = self._file.size is None or answer.headers.get("Content-Length", size) == size
        return fits and _tag(answer) == self._file.tag

    def _end(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None


class _ChangedError(OSError):
    """Another file than the one that was found."""


def _answer(session: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
    """A successful answer, whose body is not read yet."""
    # Where a file is compressed, that is what its name says; nobody else is to compress it.
    headers = {"Accept-Encoding": "identity", **headers}
    try:
        answer = session.get(url, headers=headers, timeout=_SECONDS, stream=True)
    except ValueError as error:  # also of requests: this, or where it redirects to, is no URL
        raise OSError(reason_of(error)) from None
    except requests.RequestException as error:
        raise AgainError(reason_of(error)) from None
    if answer.status_code in (200, 206) or (answer.status_code == 416 and "Range" in headers):
        return answer
    answer.close()
    kind: type[OSError] = AgainError if answer.status_code in _AGAIN else OSError
    if answer.status_code in _MISSING:
        kind = MissingError
    raise kind(f"HTTP {answer.status_code} {answer.reason}")


def _tag(answer: requests.Response) -> str | None:
    return answer.headers.get("ETag") or answer.headers.get("Last-Modified")
