"""Whose a URL is, and whom a request names: texts of others, that may be no URLs at all."""

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_HOST: Final = re.compile(r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""What a request may call a server: a name or an address, and a port."""


def origin_of(url: str) -> tuple[str, str] | None:
    """The scheme of a URL, and its host with the port as they are written.

    ``None``: the text cannot be taken apart.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc


def is_called(host: str, names: Collection[str]) -> bool:
    """Whether a server that has these `names` may be asked by this ``Host``.

    It may by ``localhost`` and by any address: the name of a web page can be made to mean our
    address, but an address cannot.

    Args:
        host: the header field: a name or an address, and perhaps a port.
        names: in small letters; ``*`` stands for all.
    """
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").lower().rstrip(".")
    if name == "localhost" or name in names or "*" in names:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
