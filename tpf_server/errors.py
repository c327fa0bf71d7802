"""Errors of the server. Each class carries the HTTP status that it is answered with.

ServerError                 500
├── RequestError            400  a request that cannot be understood
│   ├── TermSyntaxError     400  a parameter that is not a term, quoted
│   ├── BodyError           400  a body that is not RDF, with its line
│   ├── UnauthorizedError   401  no token, or not the right one
│   ├── ForbiddenError      403  publishing is off
│   ├── NotFoundError       404  no such dataset, view or page
│   ├── MethodNotAllowedError 405  the resource does not know this method
│   ├── NotAcceptableError  406  none of the media types that the client takes
│   ├── LengthRequiredError 411  a body that does not say how long it is
│   ├── BodyTooLargeError   413  a body over the limit
│   ├── MediaTypeError      415  a body in a format that the server does not read
│   └── BusyError           503  too many bodies are arriving; try again
├── ListenError             500  another server listens there, or the address is not here
├── UnreadyError            503  a store does not answer
├── StoreError              503
│   ├── StoreFormatError    503  a store that is refused at opening
│   │   ├── NoStoreError        503  there is no store at this path
│   │   ├── StoreVersionError   503  the store was written in another version of the format
│   │   └── CorruptStoreError   503  a file of the store is missing, cut short or altered
│   ├── StoreBusyError      503  another process is writing this store
│   ├── StoreUnreachableError  an object store does not answer, or refuses
│   ├── StoreClosedError    503  the store has been closed
│   ├── RdfInputError       503  RDF that cannot be indexed; names file and line
│   ├── SnapshotExpired     410  a snapshot that is no longer retained
│   ├── PastUnknown         404  an instant of which nobody knows what held
│   └── PublishError        422  facts that cannot be published
└── SettingsError           500  a setting that is unknown or has no sense
"""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar


class ServerError(Exception):
    """Root of the errors of this package."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal server error"

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields that the answer needs beside its body."""
        return {}


class RequestError(ServerError):
    """A request that cannot be understood."""

    status = 400
    title = "Bad request"


class TermSyntaxError(RequestError):
    """A parameter of a fragment's URL that is not a term."""

    title = "Malformed term"

    def __init__(self, parameter: str, text: str, reason: str) -> None:
        super().__init__(f"{parameter}: {text!r} is not a term: {reason}")
        self.parameter = parameter
        self.text = text


class BodyError(RequestError):
    """A body that is not RDF in the format that it says; the message names the line."""

    title = "Malformed body"


class UnauthorizedError(RequestError):
    """A request without a token, or not with the right one."""

    status = 401
    title = "Unauthorized"

    @property
    def headers(self) -> Mapping[str, str]:
        """The scheme that is asked for."""
        return {"WWW-Authenticate": "Bearer"}


class ForbiddenError(RequestError):
    """Publishing to this dataset is off."""

    status = 403
    title = "Forbidden"


class NotFoundError(RequestError):
    """There is no such dataset or view."""

    status = 404
    title = "Not found"


class MethodNotAllowedError(RequestError):
    """The resource does not know this method."""

    status = 405
    title = "Method not allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        super().__init__(f"{method} is not allowed here, only {', '.join(allowed)}")

    @property
    def headers(self) -> Mapping[str, str]:
        """The methods that are allowed."""
        return {"Allow": ", ".join(self.allowed)}


class NotAcceptableError(RequestError):
    """None of the media types that the client accepts can be made."""

    status = 406
    title = "Not acceptable"


class LengthRequiredError(RequestError):
    """The request does not say how long its body is."""

    status = 411
    title = "Length required"


class BodyTooLargeError(RequestError):
    """The body is larger than the server's limit."""

    status = 413
    title = "Body too large"


class MediaTypeError(RequestError):
    """The body is in a format that the server does not read."""

    status = 415
    title = "Unsupported media type"


class BusyError(RequestError):
    """Too many bodies are arriving at the same time."""

    status = 503
    title = "Busy"

    @property
    def headers(self) -> Mapping[str, str]:
        """Seconds after which to try again."""
        return {"Retry-After": "1"}


class ListenError(ServerError):
    """The server cannot listen: another one does, or the address is not one of this machine."""

    title = "Cannot listen"


class UnreadyError(ServerError):
    """A store does not answer: others should not ask this server now."""

    status = 503
    title = "Not ready"


class StoreError(ServerError):
    """Root of the errors of the stores.

    Their messages, with paths and hosts, are for the log; clients read only that a store failed.
    """

    status = 503
    title = "Store failure"


class StoreFormatError(StoreError):
    """A store that is corrupt, half-written or of another version; it is refused at opening."""


class NoStoreError(StoreFormatError):
    """There is no store at this path."""


class StoreVersionError(StoreFormatError):
    """The store was written in another version of the format."""


class CorruptStoreError(StoreFormatError):
    """A file of the store is missing, cut short or altered."""


class StoreBusyError(StoreError):
    """Another process is writing this store."""


class StoreUnreachableError(StoreError):
    """An object store that does not answer, or refuses."""


class StoreClosedError(StoreError):
    """The store has been closed."""


class RdfInputError(StoreError):
    """RDF that cannot be indexed; the message names the file and, where known, the line."""


class SnapshotExpired(StoreError):  # noqa: N818 - named by the store protocol
    """The snapshot is older than what the store retains: start again at the first page."""

    status = 410
    title = "Snapshot expired"


class PastUnknown(StoreError):  # noqa: N818 - like the other one
    """The state at an instant is unknown: expirations have no start."""

    status = 404
    title = "The past is not known"

    def __init__(self, message: str, earliest: datetime | None = None) -> None:
        super().__init__(message)
        self.earliest = earliest


class PublishError(StoreError):
    """Facts that cannot be published: unlabelled, already ended, or overlapping."""

    status = 422
    title = "Facts refused"


class SettingsError(ServerError):
    """A setting that is unknown or has a value without sense."""

    title = "Bad setting"
