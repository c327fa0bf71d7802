"""Blank nodes of a server: skolem IRIs (RDF 1.1 Concepts, section 3.5) on the wire, blank for us.

Other blank nodes have a meaning on their page only.
"""

import zlib
from collections.abc import Callable

from annotations.errors import TermError
from annotations.terms import Quad, Term, Triple, is_triple_term, triple_of_term, triple_term

SKOLEM_PATH = "/.well-known/genid/"
_PREFIX = "_:genid"


def from_wire(term: Term, page_url: str) -> Term:
    """Convert skolem IRIs to blank nodes, and scope blank nodes by their page."""
    if term.startswith("<"):
        if is_triple_term(term):
            inside = SKOLEM_PATH in term or "_:" in term
            return map_parts(term, lambda part: from_wire(part, page_url)) if inside else term
        return Term(_PREFIX + term[1:-1].encode().hex()) if SKOLEM_PATH in term else term
    if term.startswith("_:"):
        return Term(f"_:p{zlib.crc32(page_url.encode()):08x}{term[2:]}")
    return term


def as_read(term: Term) -> Term:
    """Convert the skolem IRIs of a pattern as those of its pages."""
    if is_triple_term(term):
        return map_parts(term, as_read) if SKOLEM_PATH in term else term
    return from_wire(term, "") if term.startswith("<") else term


def kept_quad(quad: Quad, page_url: str) -> Quad:
    """Convert a quad of a page; see `from_wire`."""
    subject, predicate, object_, graph = quad
    return Quad(
        from_wire(subject, page_url),
        predicate,
        from_wire(object_, page_url),
        graph and from_wire(graph, page_url),
    )


def to_wire(term: str) -> str:
    """Convert to the server's term; blank nodes that it did not skolemise stay."""
    if is_triple_term(term):
        return map_parts(Term(term), lambda part: Term(to_wire(part))) if "_:" in term else term
    if term.startswith(_PREFIX):
        try:
            return f"<{bytes.fromhex(term[len(_PREFIX) :]).decode()}>"
        except ValueError:
            return term
    return term


def askable(term: str) -> bool:
    """True unless a term is a blank node that only its page knows."""
    if is_triple_term(term) and "_:" in term:
        try:
            return all(map(askable, triple_of_term(term)))
        except TermError:
            return False
    return not term.startswith("_:") or to_wire(term) != term


def map_parts(term: Term, change: Callable[[Term], Term]) -> Term:
    """Change the terms of a triple term."""
    try:
        return triple_term(Triple(*map(change, triple_of_term(term))))
    except TermError:
        return term
