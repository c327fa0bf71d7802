"""Errors of the continuous engines.

ServerError
└── ContinuousError                  500
    ├── ContinuousQueryError         400  the query itself
    │   ├── ContinuousSyntaxError    400  not CQELS-QL: line, column and a caret under the place
    │   └── UnsupportedContinuousQueryError  422  the language allows it, the engine cannot run it
    ├── UnknownStreamError           404  a stream that nobody created
    ├── StreamNameError              400  the name of a stream is no IRI
    ├── StreamInUseError             409  a stream that queries read or make
    ├── UnknownGraphError            404  a static graph that nobody loaded
    ├── RemoteGraphError             502  a graph that is kept elsewhere cannot be read
    ├── RemoteStreamError            502  a stream of another server cannot be read or pushed to
    ├── UnknownQueryError            404  no query of this name is registered
    ├── UnknownEventError            410  the number of an event of an earlier run of a query
    ├── RegistrationsError           500  what was registered cannot be read or kept
    ├── ElementError                 400  an element of a stream that is malformed; with its place
    ├── TimestampError               400  a timestamp that is no instant
    ├── LimitError                   429  a limit of the engine is reached
    │   ├── WindowLimitError         429  a window outgrew its memory: its query was stopped
    │   ├── JoinLimitError           429  joins made too many rows: their query was stopped
    │   └── BacklogError             429  a reader of results was too slow: it was cut off
    ├── CallbackError                500  the callback of a query raised: its query was stopped
    └── EngineClosedError            503  the engine was closed
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_server.errors import ServerError


class ContinuousError(ServerError):
    """Root of the errors of the continuous engines."""

    title = "Continuous query failed"


class ContinuousQueryError(ContinuousError):
    """Something is wrong with the query, whatever the streams hold."""

    status = 400
    title = "Bad query"


class ContinuousSyntaxError(ContinuousQueryError):
    """A text that is not a continuous query.

    Attributes:
        reason: what is wrong, in one line without the position.
        line: number of the line, from 1.
        column: number of the column, from 1, in characters.
        pointed: the line of the query and, below it, a caret under the column.
    """

    title = "Syntax error"

    def __init__(self, error: QuerySyntaxError) -> None:
        self.reason = error.reason
        self.line = error.line
        self.column = error.column
        self.pointed = error.pointed
        super().__init__(str(error))


class UnsupportedContinuousQueryError(ContinuousQueryError):
    """A query that the language allows and the engine cannot run; raised at registration."""

    status = 422
    title = "Query not supported"


@contextmanager
def as_continuous_errors() -> Iterator[None]:
    """Turn errors of a parser in this block into errors of continuous queries."""
    try:
        yield
    except QuerySyntaxError as error:
        raise ContinuousSyntaxError(error) from error
    except UnsupportedQueryError as error:
        raise UnsupportedContinuousQueryError(str(error)) from error
    except RecursionError:
        raise UnsupportedContinuousQueryError("this query is nested too deeply") from None


class UnknownStreamError(ContinuousError):
    """A stream that nobody created, where creation on first use is off."""

    status = 404
    title = "Unknown stream"


class StreamNameError(ContinuousError):
    """The name of a stream is no IRI."""

    status = 400
    title = "Bad name of a stream"


class StreamInUseError(ContinuousError):
    """A stream cannot be deleted, because queries read or make it."""

    status = 409
    title = "Stream in use"


class UnknownGraphError(ContinuousError):
    """A query names a static graph that was not loaded, where that is not allowed."""

    status = 404
    title = "Unknown graph"


class RemoteGraphError(ContinuousError):
    """A graph that is kept elsewhere cannot be read."""

    status = 502
    title = "Bad gateway"


class RemoteStreamError(ContinuousError):
    """A stream of another server cannot be read or pushed to."""

    status = 502
    title = "Bad gateway"


class UnknownQueryError(ContinuousError):
    """No query of this name is registered."""

    status = 404
    title = "Unknown query"


class UnknownEventError(ContinuousError):
    """A reader wants to go on after an event that this run of the query did not number."""

    status = 410
    title = "Unknown event"


class RegistrationsError(ContinuousError):
    """The file of registrations cannot be read or written."""

    title = "Registrations not kept"


class ElementError(ContinuousError):
    """An element of a stream that cannot be understood.

    Args:
        reason: what is wrong.
        line: its number in its batch, from 1, where it has one.
        unit: what is counted: lines, or records.
    """

    status = 400
    title = "Malformed element"

    def __init__(self, reason: str, line: int | None = None, unit: str = "line") -> None:
        self.line = line
        self.unit = unit
        super().__init__(reason if line is None else f"{unit} {line}: {reason}")


class TimestampError(ContinuousError):
    """A timestamp that is no instant."""

    status = 400
    title = "Bad timestamp"


class EngineLimitError(ContinuousError):
    """A limit of the engine is reached."""

    status = 429
    title = "Limit reached"


class WindowLimitError(EngineLimitError):
    """A window holds more rows than allowed: its query was stopped, the others go on."""


class JoinLimitError(EngineLimitError):
    """A query makes or holds more rows than allowed: it was stopped, or not begun."""


class BacklogError(EngineLimitError):
    """A reader of results was too slow: it was cut off."""


class CallbackError(ContinuousError):
    """The callback of a query raised (`__cause__`): its query was stopped, the others go on."""

    title = "Callback failed"

    def __init__(self, query: str, error: Exception) -> None:
        super().__init__(f"the callback of query {query} raised {type(error).__name__}: {error}")
        self.__cause__ = error


class EngineClosedError(ContinuousError):
    """The engine was closed."""

    status = 503
    title = "Engine closed"

    @property
    def headers(self) -> Mapping[str, str]:
        """Seconds after which to try again: a server that stops is about to be replaced."""
        return {"Retry-After": "2"}
