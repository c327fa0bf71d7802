"""Errors of the server, with the HTTP status of each.

ServerError 500
    RequestError 400
        TermSyntaxError, BodyError 400, UnauthorizedError 401, ForbiddenError 403,
        NotFoundError 404, MethodNotAllowedError 405, NotAcceptableError 406,
        LengthRequiredError 411, BodyTooLargeError 413, MediaTypeError 415, BusyError 503
    ListenError, SettingsError 500, UnreadyError 503
    StoreError 503
        StoreFormatError (NoStoreError, StoreVersionError, CorruptStoreError), StoreBusyError,
        StoreUnreachableError, StoreClosedError, RdfInputError 503
        PastUnknown 404, SnapshotExpired 410, PublishError 422
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
        return {}

    @property
    def details(self) -> Mapping[str, object]:
        """What its answer has more in JSON."""
        return {}


class RequestError(ServerError):
    """The request cannot be understood."""

    status = 400
    title = "Bad request"


class TermSyntaxError(RequestError):
    """A parameter of a fragment's URL is not a term."""

    title = "Malformed term"

    def __init__(self, parameter: str, text: str, reason: str) -> None:
        super().__init__(f"{parameter}: {text!r} is not a term: {reason}")
        self.parameter = parameter
        self.text = text


class BodyError(RequestError):
    """The body is not RDF of its format; the message names the line."""

    title = "Malformed body"


class UnauthorizedError(RequestError):
    """The token is missing or wrong."""

    status = 401
    title = "Unauthorized"

    @property
    def headers(self) -> Mapping[str, str]:
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
        return {"Allow": ", ".join(self.allowed)}


class NotAcceptableError(RequestError):
    """No accepted media type can be made."""

    status = 406
    title = "Not acceptable"


class LengthRequiredError(RequestError):
    """The request does not state the length of its body."""

    status = 411
    title = "Length required"


class BodyTooLargeError(RequestError):
    """The body is larger than the limit."""

    status = 413
    title = "Body too large"


class MediaTypeError(RequestError):
    """The server does not read the format of the body."""

    status = 415
    title = "Unsupported media type"


class BusyError(RequestError):
    """Too many bodies are arriving at once."""

    status = 503
    title = "Busy"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": "1"}


class ListenError(ServerError):
    """Another server listens there, or the address is not one of this machine."""

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
    """The store is refused at opening."""


class NoStoreError(StoreFormatError):
    """There is no store at this path."""


class StoreVersionError(StoreFormatError):
    """The store was written in another version of the format."""


class CorruptStoreError(StoreFormatError):
    """A file of the store is missing, cut short or altered."""


class StoreBusyError(StoreError):
    """Another process is writing this store."""


class StoreUnreachableError(StoreError):
    """The object store does not answer, or refuses."""


class StoreClosedError(StoreError):
    """The store has been closed."""


class RdfInputError(StoreError):
    """RDF cannot be indexed; the message names the file and, where known, the line."""


class SnapshotExpired(StoreError):  # noqa: N818 - named by the store protocol
    """The snapshot is no longer retained: start again at the first page."""

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
    """The facts are unlabelled, already ended, or overlapping."""

    status = 422
    title = "Facts refused"


class SettingsError(ServerError):
    """A setting is unknown or has a bad value."""

    title = "Bad setting"
