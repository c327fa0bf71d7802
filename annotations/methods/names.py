"""Names minted for labelled facts, and the way back from a name to the fact.

``{fact_base}{kind}/{token}``: a token digests the fact and the start of its interval. Implicit
graphs use the fact's fragment (RFC 6570, section 3.2.8).
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

from annotations.instants import format_instant
from annotations.labels import Fact
from annotations.methods.base import Naming
from annotations.terms import DEFAULT_GRAPH, Quad, Term, is_iri
from annotations.urls import parameter_of_term, term_of_parameter

NameKind: TypeAlias = Literal["property", "graph", "statement", "reifier", "interval"]
"""What a minted name stands for."""

_TOKEN = re.compile(r"[0-9a-f]{32}")
_MINTED = re.compile(r"(?:property|graph|statement|reifier|interval)/[0-9a-f]{32}>")
_POSITIONS = ("subject", "predicate", "object", "graph")


def identity(fact: Fact) -> str:
    """Return the token: 32 hexadecimal digits of BLAKE2b over quad and label start."""
    start = fact.label.start if fact.label is not None else None
    # A canonical term never holds a line feed, so the parts cannot run into each other.
    text = "\n".join(fact.quad) if start is None else "\n".join((*fact.quad, format_instant(start)))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def minted(kind: NameKind, fact: Fact, naming: Naming) -> Term:
    """Return the name of this kind for a fact."""
    return Term(f"<{naming.fact_base}{kind}/{identity(fact)}>")


def token_of(term: str, kind: NameKind, naming: Naming) -> str | None:
    """Return the token of a minted name of this kind, else ``None``."""
    prefix = f"<{naming.fact_base}{kind}/"
    token = term[len(prefix) : -1]
    if term.startswith(prefix) and term.endswith(">") and _TOKEN.fullmatch(token):
        return token
    return None


def is_minted(term: str, naming: Naming) -> bool:
    """True for a minted name of any kind."""
    prefix = f"<{naming.fact_base}"
    return term.startswith(prefix) and _MINTED.fullmatch(term, len(prefix)) is not None


def fragment_iri(quad: Quad, naming: Naming) -> Term:
    """Return the IRI of this quad's fragment; no ``graph`` for the default graph."""
    pairs = zip(_POSITIONS, quad, strict=True)
    query = "&".join(
        f"{name}={(_known_expanded if len(term) <= _SHORT else _expanded)(term)}"
        for name, term in pairs
        if term != DEFAULT_GRAPH
    )
    return Term(f"<{naming.fragment_url}?{query}>")


def _expanded(term: str) -> str:
    return quote(parameter_of_term(term), safe="")


_SHORT = 256
_known_expanded = lru_cache(maxsize=4096)(_expanded)


def quad_of_fragment(term: str, naming: Naming) -> Quad | None:
    """Return the quad whose `fragment_iri` this is exactly, else ``None``."""
    quad = read_fragment_iri(term)
    return quad if quad is not None and fragment_iri(quad, naming) == term else None


def read_fragment_iri(term: str) -> Quad | None:
    """Return the quad of any fragment's IRI, whatever address, order and encoding."""
    if not is_iri(term):
        return None
    try:
        query = urlsplit(term[1:-1]).query
        parameters = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
        values = dict(parameters)
        if len(values) < len(parameters) or not {"subject", "predicate", "object"} <= set(values):
            return None
        graph = values.get("graph")
        return Quad(
            term_of_parameter(values["subject"]),
            term_of_parameter(values["predicate"]),
            term_of_parameter(values["object"]),
            term_of_parameter(graph) if graph else DEFAULT_GRAPH,
        )
    except ValueError:  # an invalid address or query (UnicodeDecodeError and TermError included)
        return None
