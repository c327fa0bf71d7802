"""Terms as values of template variables, in Hydra's explicit representation, IRIs bare."""

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from annotations.errors import TermError
from annotations.terms import (
    Term,
    blank_node,
    iri,
    is_iri,
    is_literal,
    is_triple_term,
    literal,
    literal_parts,
    read_triple_term,
)

# Whose a URL is, and whom a request names: texts of others, that may be no URLs at all.

_HOST: Final = re.compile(r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""What a request may call a server: a name or an address, and a port."""


def origin_of(url: str) -> tuple[str, str] | None:
    """Return scheme and host with port of a URL; ``None``: it is malformed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc


def is_called(host: str, names: Collection[str]) -> bool:
    """True where a server with these names (``*``: all) may be asked by this ``Host``."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").lower().rstrip(".")
    if name == "localhost" or name in names or "*" in names:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """True for this machine's names and addresses."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parameter_of_term(term: str) -> str:
    """Return a term as the value of a template variable."""
    if is_iri(term):
        return term[1:-1]
    if not is_literal(term):
        return term
    parts = literal_parts(term)
    suffix = term[term.rfind('"') + 1 :]
    return f'"{parts.lexical}"' + (f"^^{parts.datatype}" if suffix.startswith("^^") else suffix)


def term_of_parameter(text: str) -> Term:
    """Parse the value of a template variable; datatypes also in brackets."""
    if is_triple_term(text):
        return read_triple_term(text)
    if text.startswith("_:"):
        return blank_node(text[2:])
    if text.startswith("<") and text.endswith(">"):
        return iri(text[1:-1])
    if not is_literal(text):
        return iri(text)
    end = text.rfind('"')
    lexical, suffix = text[1:end], text[end + 1 :]
    if end == 0:
        raise TermError(f"not a literal: {text!r}")
    if not suffix:
        return literal(lexical)
    if suffix.startswith("@"):
        return literal(lexical, language=suffix[1:])
    if suffix.startswith("^^"):
        datatype = suffix[2:]
        bracketed = datatype.startswith("<") and datatype.endswith(">")
        return literal(lexical, datatype=datatype[1:-1] if bracketed else datatype)
    raise TermError(f"not a literal: {text!r}")
