"""Fetches what a feed says, within bounds of time and size."""

import threading
from http.client import HTTPException
from queue import SimpleQueue

import requests
import urllib3

from loaders.errors import InputError

MAX_MESSAGE = 1 << 26
"""Bytes of a message, after decompression."""
_SECONDS = 30.0
_CHUNK = 1 << 16


def fetched(session: requests.Session, url: str) -> bytes:
    """The body of a successful answer.

    Another thread asks: one that is told a byte from time to time, and no timeout of a socket ends,
    is left alone after `_SECONDS`.

    Raises:
        InputError: no answer in time, an error, or more than `MAX_MESSAGE` bytes.
    """
    answers: SimpleQueue[bytes | InputError] = SimpleQueue()
    late = threading.Event()
    asking = threading.Thread(target=_ask, args=(session, url, answers, late), daemon=True)
    asking.start()
    asking.join(_SECONDS)
    if asking.is_alive():
        late.set()
        raise InputError(f"no complete answer in {_SECONDS:g} s", url)
    answer = answers.get()
    if isinstance(answer, InputError):
        raise answer
    return answer


def _ask(
    session: requests.Session,
    url: str,
    answers: "SimpleQueue[bytes | InputError]",
    late: threading.Event,
) -> None:
    try:
        with session.get(url, timeout=_SECONDS, stream=True) as answer:
            if not answer.ok:
                answers.put(InputError(f"HTTP {answer.status_code} {answer.reason}", url))
                return
            content = bytearray()
            for chunk in answer.iter_content(_CHUNK):
                content += chunk
                if late.is_set():
                    return
                if len(content) > MAX_MESSAGE:
                    answers.put(InputError(f"more than {MAX_MESSAGE >> 20} MB", url))
                    return
            answers.put(bytes(content))
    except (requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError) as e:
        answers.put(InputError(reason_of(e), url))


def reason_of(error: BaseException) -> str:
    """Why, in words: the messages of requests name the objects of its parts."""
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
        case requests.exceptions.InvalidURL() | requests.exceptions.InvalidSchema():
            return "no URL that can be asked"
    return "an answer that is cut short or damaged"
