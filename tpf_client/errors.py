"""Errors of the client.

ClientError
    QueryError
        QuerySyntaxError, UnsupportedQueryError
    SourceError
        ConnectionFailedError, HttpError, ParseError, PageError, PageTooLargeError, OriginError,
        ServiceError, HistoryError, SourceLimitError, UnstableError
    MapTilesError, LimitError, ClosedError
"""

from typing import ClassVar


class ClientError(Exception):
    """Root of the errors of this package."""

    exit_status: ClassVar[int] = 1
    """With which a command ends that raises it."""


class QueryError(ClientError, ValueError):
    """The query is wrong, whatever the data."""


class QuerySyntaxError(QueryError):
    """A text that is not a query.

    `position` is the offset of the first character that does not fit; `line` and `column` count
    from 1; `pointed` is the line with a caret below.
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        position = min(position, len(text))
        start = text.rfind("\n", 0, position) + 1
        end = text.find("\n", position)
        source = text[start : len(text) if end < 0 else end].rstrip("\r")
        self.reason = reason
        self.line = text.count("\n", 0, position) + 1
        self.column = position - start + 1
        # Tabs stay tabs, so that the caret stands where the terminal puts the character.
        indent = "".join(
            "\t" if character == "\t" else " " for character in source[: position - start]
        )
        self.pointed = f"{source}\n{indent}^"
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class UnsupportedQueryError(QueryError):
    """SPARQL that cannot be answered here; raised before anything runs."""


class SourceError(ClientError):
    """A source of fragments failed."""

    documentation: str | None = None
    """Where the answer says that the interface is described, if it is no page."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        # What a server says must not write to a terminal.
        self.reason = "".join(each if each.isprintable() else "\ufffd" for each in reason)
        super().__init__(f"{url}: {self.reason}")

    def described_at(self, documentation: str | None) -> None:
        """Add where the answer says that the interface is described."""
        self.documentation = documentation


class ConnectionFailedError(SourceError):
    """The connection was refused, timed out, or was cut off."""


class HttpError(SourceError):
    """The server answered with an error status."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        self.status = status
        super().__init__(url, f"HTTP {status} {reason}".rstrip())


class ParseError(SourceError):
    """The body is not RDF of the announced media type."""


class PageError(SourceError):
    """RDF that is not a usable page: no form, links that loop."""


class PageTooLargeError(SourceError):
    """A body with more bytes than allowed."""


class HistoryError(SourceError):
    """The facts of a past instant are not available."""


class OriginError(SourceError):
    """A link or redirect leads to an origin that is not allowed."""


class ServiceError(SourceError):
    """A SERVICE SILENT failed; `endpoint` is its term in the query."""

    def __init__(self, url: str, reason: str, endpoint: str) -> None:
        self.endpoint = endpoint
        super().__init__(url, reason)


class UnstableError(SourceError):
    """Facts expire faster than one evaluation can read them."""


class MapTilesError(ClientError, ValueError):
    """A template of map tiles is invalid, or lacks an attribution."""


class LimitError(ClientError):
    """A query takes more time, rows or memory than allowed."""


class SourceLimitError(SourceError, LimitError):
    """The answer takes more pages, bytes or time of reading than allowed."""


class ClosedError(ClientError):
    """The client or the stream was closed meanwhile."""


def check_argument(name: str, value: object, *kinds: type) -> None:
    """Check the type of an argument; ``None``: absent."""
    if value is not None and (
        not isinstance(value, kinds) or (isinstance(value, str) and str not in kinds)
    ):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: {expected}, not {type(value).__name__}")
