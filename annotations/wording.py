"""Words that several parts say."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def user_agent(program: str) -> str:
    """Return what a program calls itself in requests: its version, and where the project is."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        about = metadata("live-linked-data")
    except PackageNotFoundError:  # from a folder of sources
        return program
    urls = dict(each.split(", ", 1) for each in about.get_all("Project-URL", ()))
    return f"{program}/{about['Version']} (+{urls['Homepage']})"


_TOKEN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")


def check_token(token: str) -> None:
    """Raise `ValueError` for a token that no request can carry."""
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            "a token is ASCII, without control characters, and without blanks at its ends"
        )


def bearer(token: str) -> Callable[[Any], Any]:
    """Return what adds a token, unless empty, to a request of `requests`."""
    check_token(token)

    def authorize(request: Any) -> Any:
        # Among the headers that are given, a .netrc would win.
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authorize


# Foreign text may not move the cursor of a terminal, or change what is shown.
_CONTROLS = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Replace control characters, except newlines and tabs, by U+FFFD."""
    return _CONTROLS.sub("\ufffd", text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 fact``, ``2 facts``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of the project."""
    named = f"[{extra}]" if extra else ""
    return f"in a clone of the project, ./run install, or pip install '.{named}'"
