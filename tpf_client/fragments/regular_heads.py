"""Heads of responses as nearly all are: with a page of a known length, and nothing to think about.

`http.client` reads a head as if it were that of an e-mail, which takes more than all that is done
with it. What is not as here it reads: other statuses, chunks, lines that go on in the next, what
is said twice, connections that end.

Source: RFC 9112, sections 4 (status line), 5 (field lines) and 6.3 (length of the body).
"""

import re
from http.client import HTTPMessage
from typing import Final, NamedTuple

_MOST: Final = 99
"""Fields of a head; `http.client` takes no more: the empty line is the hundredth."""
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 200 ([^\r\n]*)\r\n((?:[!#$%%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n]*\r\n){1,%d})\r\n"
    % _MOST
)
_LENGTH: Final = re.compile("[0-9]{1,18}", re.ASCII)


class RegularHead(NamedTuple):
    """The head of a response with status 200, after which the connection goes on.

    Args:
        size: bytes of it.
        reason: what the status line says beside the status.
        fields: its fields, as `http.client` has them.
        length: bytes of the body.
    """

    size: int
    reason: str
    fields: HTTPMessage
    length: int


def regular_head(start: bytes) -> RegularHead | None:
    """The head of a response to a GET request; ``None``: it is another one, or not all is there.

    Args:
        start: how the response begins.
    """
    match = _HEAD.match(start)
    if match is None:
        return None
    fields, names = HTTPMessage(), {}
    for line in match[2].decode("iso-8859-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        names[name.lower()] = value = value.lstrip(" \t")
        fields.set_raw(name, value)
    length = names.get("content-length", "")
    if len(names) < len(fields) or "transfer-encoding" in names or "connection" in names:
        return None
    if _LENGTH.fullmatch(length) is None:
        return None
    return RegularHead(match.end(), match[1].decode("iso-8859-1").strip(), fields, int(length))
