"""Errors of the loaders.

LoaderError
├── InputError
├── OutputError
├── SettingError
└── ReplayError
    ├── PublishRefusedError
    ├── ServerUnreachableError
    └── StateError
"""

from collections.abc import Sequence
from typing import ClassVar

from annotations.terms import Quad


class LoaderError(Exception):
    """The root; its text is one line for the user."""

    exit_status: ClassVar[int] = 1
    """With which a command ends that raises it."""


class InputError(LoaderError, ValueError):
    """An input that is missing or malformed.

    Args:
        rest: what a document says besides its malformed items.
    """

    def __init__(
        self,
        message: str,
        source: str | None = None,
        line: int | None = None,
        rest: Sequence[Quad] = (),
    ) -> None:
        self.rest = rest
        self.source = source
        self.line = line
        location = "" if source is None else source if line is None else f"{source}, line {line}"
        text = f"{location}: {message}" if location else message
        # What an input says may have line ends, or move the cursor of a terminal.
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


class OutputError(LoaderError):
    """An output that exists already or cannot be written."""


class SettingError(LoaderError, ValueError):
    """A setting that makes no sense."""

    exit_status = 2


class ReplayError(LoaderError):
    """A replay that cannot go on."""


class PublishRefusedError(ReplayError):
    """The server refused a batch."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class ServerUnreachableError(ReplayError):
    """The server did not answer any attempt."""


class StateError(ReplayError):
    """The state file belongs to another replay or is damaged."""
