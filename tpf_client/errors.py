"""Errors of the client.

ClientError
├── QueryError                the query itself
│   ├── QuerySyntaxError      not SPARQL: line, column and a caret under the place
│   └── UnsupportedQueryError SPARQL that this client cannot answer, said before the first request
├── SourceError               a source of fragments; names the URL
│   ├── ConnectionFailedError nobody answered: refused, timed out, cut off
│   ├── HttpError             answered with an error status
│   ├── ParseError            answered with something that is not RDF of the announced type
│   ├── PageError             answered with RDF that is not a usable page of a fragment
│   ├── PageTooLargeError     answered with more bytes than allowed
│   ├── OriginError           a link or redirect leads to another origin
│   ├── ServiceError          a SERVICE SILENT failed; queries go on without it
│   ├── HistoryError          nobody tells what held at a past instant
│   ├── SourceLimitError     an answer takes more pages, bytes or time of reading than it may
│   └── UnstableError         facts expire faster than one evaluation can read them
├── MapTilesError             tiles of a map that no browser could be sent for
├── LimitError                a query takes more time, rows or memory than it may
└── ClosedError               the client or the stream was closed meanwhile
"""


class ClientError(Exception):
    """Root of the errors of this package."""


class QueryError(ClientError, ValueError):
    """Something is wrong with the query, whatever the data."""


class QuerySyntaxError(QueryError):
    """A text that is not a query.

    Args:
        reason: what is wrong, in one line without the position.
        text: the whole query.
        position: index into `text` of the first character that does not fit.

    Attributes:
        line: number of the line, from 1.
        column: number of the column, from 1, in characters.
        pointed: the line of the query and, below it, a caret under the column.
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
    """A query that is SPARQL, but that cannot be answered here; raised before anything runs."""


class SourceError(ClientError):
    """Something is wrong with a source of fragments.

    Args:
        url: the URL that was asked.
        reason: what is wrong, in one line.
    """

    documentation: str | None = None
    """Where the answer says that the interface is described, if it is no page."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        # What a server says must not write to a terminal.
        self.reason = "".join(each if each.isprintable() else "\ufffd" for each in reason)
        super().__init__(f"{url}: {self.reason}")


class ConnectionFailedError(SourceError):
    """Nobody answered: refused, timed out, or cut off in the middle."""


class HttpError(SourceError):
    """The server answered with an error status.

    Attributes:
        status: the HTTP status code.
    """

    def __init__(self, url: str, status: int, reason: str) -> None:
        self.status = status
        super().__init__(url, f"HTTP {status} {reason}".rstrip())


class ParseError(SourceError):
    """The body is not RDF of the media type that the response announces."""


class PageError(SourceError):
    """RDF that is not a usable page of a fragment: no form, links that loop."""


class PageTooLargeError(SourceError):
    """A body with more bytes than allowed."""


class HistoryError(SourceError):
    """The facts of a past instant are wanted, and neither the server nor the data tell them."""


class OriginError(SourceError):
    """A link or redirect leads to another origin, which was not allowed."""


class ServiceError(SourceError):
    """A service that the query calls SILENT failed.

    Attributes:
        endpoint: what the query calls it, as a term.
    """

    def __init__(self, url: str, reason: str, endpoint: str) -> None:
        self.endpoint = endpoint
        super().__init__(url, reason)


class UnstableError(SourceError):
    """Facts expire faster than one evaluation can read them."""


class MapTilesError(ClientError, ValueError):
    """Tiles of a map that no browser could be sent for, or that are nobody's."""


class LimitError(ClientError):
    """A query takes more time, rows or memory than it may."""


class SourceLimitError(SourceError, LimitError):
    """The answer takes more pages, bytes or time of reading than the limits of the client allow."""


class ClosedError(ClientError):
    """The client or the stream was closed meanwhile."""
