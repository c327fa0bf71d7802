"""Errors of the continuous engines, with the HTTP status of each.

ContinuousError 500
    ContinuousQueryError, ContinuousSyntaxError 400, UnsupportedContinuousQueryError 422
    UnknownStreamError, UnknownQueryError 404, StreamNameError 400, StreamInUseError 409
    RemoteGraphError, RemoteStreamError 502, UnknownEventError 410, RegistrationsError 500
    ElementError, TimestampError 400
    EngineLimitError 429
        ConflictError 409, WindowLimitError, JoinLimitError, BacklogError 429
    FailedEvaluationError, CallbackError 500, EngineClosedError 503
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tpf_client.dataflow.node import Work
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_server.errors import ServerError


class ContinuousError(ServerError):
    """Root of the errors of the continuous engines."""

    title = "Continuous query failed"


class ContinuousQueryError(ContinuousError):
    """The query itself is wrong."""

    status = 400
    title = "Bad query"


class ContinuousSyntaxError(ContinuousQueryError):
    """The text is not a continuous query.

    Attributes:
        pointed: the line of the query and, below it, a caret under the column.
    """

    title = "Syntax error"

    def __init__(self, error: QuerySyntaxError) -> None:
        self.reason = error.reason
        self.line = error.line
        self.column = error.column
        self.pointed = error.pointed
        super().__init__(str(error))

    @property
    def details(self) -> Mapping[str, object]:
        return {"line": self.line, "column": self.column, "pointed": self.pointed}


class UnsupportedContinuousQueryError(ContinuousQueryError):
    """The language allows the query, but the engine cannot run it; raised at registration."""

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
    """Nobody created the stream, and creation on first use is off."""

    status = 404
    title = "Unknown stream"


class StreamNameError(ContinuousError):
    """The name of a stream is no IRI."""

    status = 400
    title = "Bad name of a stream"


class StreamInUseError(ContinuousError):
    """Queries read or make the stream, so it cannot be deleted."""

    status = 409
    title = "Stream in use"


class RemoteGraphError(ContinuousError):
    """A remote graph cannot be read."""

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
    """This run of the query has not numbered the event after which a reader resumes."""

    status = 410
    title = "Unknown event"


class RegistrationsError(ContinuousError):
    """The file of registrations cannot be read or written."""

    title = "Registrations not kept"


class ElementError(ContinuousError):
    """An element of a stream cannot be understood.

    Args:
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
    """A timestamp is no instant."""

    status = 400
    title = "Bad timestamp"


class EngineLimitError(ContinuousError):
    """A limit of the engine is reached."""

    status = 429
    title = "Limit reached"


class ConflictError(EngineLimitError):
    """A query has that name already, or reads that stream with other predicates."""

    status = 409
    title = "Conflict"


class WindowLimitError(EngineLimitError):
    """A window holds too many rows: its query was stopped, the others go on."""


class JoinLimitError(EngineLimitError):
    """A query makes or holds too many rows: it was stopped, or not begun."""


class BacklogError(EngineLimitError):
    """A reader of results was too slow and was cut off."""


class FailedEvaluationError(ContinuousError):
    """To evaluate a query raised (`__cause__`): its queries were stopped, the others go on."""

    title = "Evaluation failed"

    def __init__(self, error: Exception) -> None:
        super().__init__(f"evaluating the query raised {type(error).__name__}: {error}")
        self.__cause__ = error


def ended_by(work: Work) -> ContinuousError:
    """Return why no more rows are made for a query."""
    if work.failure is not None:
        return FailedEvaluationError(work.failure)
    return JoinLimitError(work.reason or f"the query made more than {work.most} rows at once")


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
