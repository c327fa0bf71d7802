"""Bodies of answers that are sent as they come."""

import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from time import monotonic

from tpf_client.errors import ClientError
from tpf_client.live_answer import AnswerFollower
from tpf_client.solutions import Solutions

_CHUNK = 2**14
_PAUSE = 0.2

_log = logging.getLogger(__name__)


def begun(solutions: Solutions, form: str) -> Iterator[str]:
    """The text of solutions, whose first one is there: what goes wrong before has a status."""
    pieces = solutions.pieces(form)
    return chain(list(islice(pieces, 3)), pieces)


class StreamedBody:
    """The body of an answer that is not complete yet.

    Args:
        pieces: its text.
        done: called at the end.
    """

    def __init__(self, pieces: Iterator[str], done: Callable[[], None]) -> None:
        self._pieces = pieces
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        """The body in chunks that are worth sending, none held back for long."""
        waiting: list[str] = []
        size, sent = 0, monotonic() - _PAUSE
        try:
            for piece in self._pieces:
                waiting.append(piece)
                size += len(piece)
                if size >= _CHUNK or monotonic() - sent >= _PAUSE:
                    yield "".join(waiting).encode()
                    waiting, size, sent = [], 0, monotonic()
            if waiting:
                yield "".join(waiting).encode()
        except ClientError as error:
            # The status is gone already: only a connection that breaks off can tell.
            _log.warning("an answer was cut off: %s", error)
            raise ConnectionAbortedError(str(error)) from error

    def close(self) -> None:
        """Stop what is under way."""
        self._done()


class FollowedBody:
    """The body of an answer that is kept up to date.

    Args:
        follower: gives its text.
        done: called at the end.
    """

    def __init__(self, follower: AnswerFollower, done: Callable[[], None]) -> None:
        self._follower = follower
        self._done = done

    def __iter__(self) -> Iterator[bytes]:
        """The body in chunks, so that a slow reader makes nothing large wait beside it."""
        for text in self._follower:
            for start in range(0, len(text), _CHUNK):
                yield text[start : start + _CHUNK].encode()

    def close(self) -> None:
        """Stop following."""
        self._done()
