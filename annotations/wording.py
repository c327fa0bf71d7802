"""Words that several parts say."""

from functools import cache
from typing import Final

HOME: Final = "https://live-linked-data.example/"
"""Where the project is, as `[project.urls]` in pyproject.toml states."""


@cache
def user_agent(program: str) -> str:
    """Return what a program calls itself in requests, with a contact."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{program}/{version('live-linked-data')} (+{HOME})"
    except PackageNotFoundError:  # from a folder of sources
        return f"{program} (+{HOME})"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 fact``, ``2 facts``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of the project."""
    named = f"[{extra}]" if extra else ""
    return f"in a clone of the project, ./run install, or pip install '.{named}'"
