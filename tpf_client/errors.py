"""Errors of the client.

ClientError
├── QueryError                the query itself
│   ├── QuerySyntaxError      not SPARQL: line, column and a caret under the place
│   └── UnsupportedQueryError SPARQL that this client cannot answer, said before the first request
└── (the errors of fragments over HTTP join the tree here)
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
