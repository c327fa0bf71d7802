"""Blank nodes as IRIs that come back.

A page is one document of many, and a blank node means nothing outside its document. So blank nodes
of the data are shown as IRIs below ``/.well-known/genid/`` (RDF 1.1 Concepts, section 3.5), and
such an IRI in a request is understood as the blank node again.
"""

import re
from itertools import chain
from urllib.parse import quote, unquote

from annotations.terms import Quad, Term

_BLANK_IN_TRIPLE_TERM = re.compile(r'("(?:[^"\\]|\\.)*")|(<[^<>\s]*>)|_:([^\s<>"]+)')


def names_blank_node(term: str) -> bool:
    """Whether a term is a blank node, or a triple term with one inside."""
    if term.startswith("<<("):
        return any(found[3] is not None for found in _BLANK_IN_TRIPLE_TERM.finditer(term))
    return term.startswith("_:")


class Skolemizer:
    """Blank nodes of one dataset to IRIs and back.

    Args:
        prefix: absolute IRI that those IRIs start with.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._genid = re.compile(r"<" + re.escape(prefix) + r"([^<>]+)>")

    def quads(self, quads: list[Quad]) -> list[Quad]:
        """The quads as they are shown; the same list where no blank node can be in them."""
        if "_:" not in "\n".join(chain.from_iterable(quads)):
            return quads
        return [self.quad(quad) for quad in quads]

    def quad(self, quad: Quad) -> Quad:
        """The quad as it is shown."""
        for term in quad:
            if term.startswith(("_:", "<<(")):
                return Quad(*[self.term(part) for part in quad])
        return quad

    def term(self, term: Term) -> Term:
        """The term as it is shown."""
        if term.startswith("_:"):
            return Term(f"<{self.prefix}{quote(term[2:], safe='')}>")
        if term.startswith("<<(") and "_:" in term:
            return Term(_BLANK_IN_TRIPLE_TERM.sub(self._shown, term))
        return term

    def restore(self, term: Term) -> Term:
        """The term as it is stored."""
        if self.prefix not in term:
            return term
        if term.startswith("<<("):
            return Term(self._genid.sub(lambda found: f"_:{unquote(found[1])}", term))
        found = self._genid.fullmatch(term)
        return Term(f"_:{unquote(found[1])}") if found else term

    def restore_quad(self, quad: Quad) -> Quad:
        """The quad as it is stored."""
        return Quad(*[self.restore(term) for term in quad])

    def _shown(self, match: re.Match[str]) -> str:
        return match[0] if match[3] is None else self.term(Term(f"_:{match[3]}"))
