"""Whose a URL is: texts of others, that may be no URLs at all."""

from typing import TypeAlias
from urllib.parse import urlsplit

Origin: TypeAlias = tuple[str, str]
"""The scheme, and the host with its port as they are written."""


def origin_of(url: str) -> Origin | None:
    """The origin of a URL; ``None``: the text is none that can be taken apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc
