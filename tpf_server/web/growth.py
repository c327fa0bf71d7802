"""Bodies that grow when they are read: what is declared once is written out again and again.

A parser of JSON-LD copies a context for every context within its reach, and puts vocabulary, base
and prefixes before every name; one of Turtle puts the base before every relative IRI. So a body of
some kilobytes could keep a parser busy for minutes. Here a body is looked over before it is parsed,
in time that grows with its length alone.
"""

import json
import re
from typing import Final

from tpf_server.errors import BodyError

_JSON: Final = re.compile(
    rb'(?P<text>"(?:[^"\\]++|\\.)*+"?)|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL
)
_BASE: Final = re.compile(rb"base\s{0,99}+<([^<>\s]*+)", re.IGNORECASE)
_MOST_COPIED: Final = 50_000_000
"""The most bytes of contexts that a parser of JSON-LD may have to copy: a second's work."""
_READ_PER_COPIED: Final = 4
"""How many bytes of a base or of a namespace are read in the time that one of a context takes."""


def check_growth(body: bytes, media_type: str) -> None:
    """See to it that what a body declares is not written out too often.

    Raises:
        BodyError: its contexts are too large, or its bases too long.
    """
    if media_type == "application/ld+json":
        _check_contexts(body)
    elif media_type != "application/rdf+xml":
        _check_bases(body)


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1


def _check_contexts(body: bytes) -> None:
    """What a context declares is copied, or put before a name, again and again.

    A context is copied for every object in its reach with another one in it. One within another
    context is processed wherever the term is used that it belongs to, so that then every text and
    object counts.
    """
    if b"@context" not in body and b"\\u" not in body:
        return
    reach = [0]
    """Bytes of the contexts of each object around, and of what they inherit."""
    begun: tuple[int, int] | None = None
    contexts = names = longest = objects = anything = 0
    scoped = False
    for token in _JSON.finditer(body):
        if token.lastgroup == "close":
            if len(reach) > 1:
                reach.pop()
            if begun is not None and len(reach) == begun[0]:
                reach[-1] += token.end() - begun[1]
                begun = None
            continue
        anything += reach[-1]
        names += 1
        if token.lastgroup == "open":
            objects += reach[-1]
            reach.append(reach[-1])
        elif _is_context(token[0]):
            contexts += 1
            scoped = scoped or begun is not None
            begun = begun or (len(reach), token.end())
        elif begun is not None:
            longest = max(longest, token.end() - token.start())
            if len(reach) == begun[0]:
                begun = None  # the context was no object
        copied = (anything if scoped else objects) if contexts > 1 else 0
        if max(copied, longest * names // _READ_PER_COPIED) > _MOST_COPIED:
            raise BodyError(f"line {_line(body, token.start())}: its contexts are too large")


def _check_bases(body: bytes) -> None:
    """A base is put before every relative IRI, also where that leads to no triple."""
    bases = sum(len(found[1]) for found in _BASE.finditer(body))
    if bases * body.count(b"<") > _READ_PER_COPIED * _MOST_COPIED:
        raise BodyError("its bases are too long, or too many")


def _is_context(text: bytes) -> bool:
    if b"\\u" in text and len(text) <= len(rb"\u0040") * len('"@context"'):
        try:
            return bool(json.loads(text) == "@context")
        except ValueError:
            return False
    return text == b'"@context"'
