"""Whose a URL is: texts of others, that may be no URLs at all."""

from urllib.parse import urlsplit


def origin_of(url: str) -> tuple[str, str] | None:
    """The scheme of a URL, and its host with the port as they are written.

    ``None``: the text cannot be taken apart.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc
